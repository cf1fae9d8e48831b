//! The client process.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use quictun_engine::report::Side;
use quictun_engine::{ClientRole, Engine, EngineConfig, PathMtu, Transport};
use quictun_sys::{Tun, set_mark};
use slab::Slab;
use tracing::{info, warn};

use crate::client_duty::{ClientDuty, ForwardDuty};
use crate::control::{self, Request};
use crate::launch::{self, Launch, Post};
use crate::listener::{self, Listener};
use crate::mailbox::{Inbox, Mailbox};
use crate::refusal::Refused;
use crate::reload::{self, ClientRules, ClientSource, Read, Reload};
use crate::settings::{ClientSettings, Forward, ForwardTo, HostPort, ListenOn, TokenSource};
use crate::token_source::{self, TokenPlugin};
use crate::tun_port::TunPort;
use crate::worker::Parts;
use quictun_control::flow_log::FlowLog;
use quictun_control::line_budget::LineBudget;
use quictun_control::log::shown_url;
use quictun_control::rest;
use quictun_control::settings::Phrases;
use quictun_control::systemd::{self, Activated};
use quictun_io::udp_port::{self, UdpPort};
use quictun_stackd::detour::{self, Detour, DetourError};
use quictun_stackd::netstackd::{self, Remote};
use quictun_stackd::settings::{TunDevice, TunSettings};
use quictun_trust::confinement::{self, Off};
use quictun_trust::identity;
use quictun_trust::settings::ServerTrust;
use quictun_trust::tls;

/// How long an application waits for a connection to the server before it is reset: longer than the
/// longest pause between two attempts.
const WAIT_TIMEOUT: Duration = Duration::from_secs(15);

/// Streams on one connection to an original server, which stops at 100 and leaks some.
const COMPAT_STREAMS: usize = 80;

/// Runs a client until a signal ends it. It listens first and dials the server for ever. SIGHUP has it read its
/// configuration by `read_again`, where that is given, for the connections that it makes from then on.
///
/// # Errors
///
/// Whatever keeps it from starting, with the remedy: addresses in use, keys and secrets that cannot be
/// read, token sources that make no sense; later only the failure of a worker.
pub fn run(settings: ClientSettings, read_again: Option<Read<ClientSettings>>) -> Result<()> {
    let workers = settings
        .transport
        .workers
        .clamp(1, settings.transport.connections.max(1));
    // A process that keeps the device keeps its rights, too, and opens files itself.
    let apart = |tun: &TunSettings| matches!(tun.device, TunDevice::Apart(_));
    if settings.tun.as_ref().is_none_or(apart) {
        let load = read_again.clone().map(reload::reads_of_client);
        launch::start_keeper(&settings.control, token_files(&settings), load)?;
    }
    let mut log = launch::prepare(&settings.control)?;
    let listeners = listeners(&settings)?;
    let mark = mark(&settings)?;
    let ports = udp_ports(&settings, workers, mark)?;
    let path_mtu = path_mtu(&settings, mark)?;
    let http = rest::bind(&settings.control)?;
    if let Some(first) = ports.first() {
        launch::tell_of_udp(first, &settings.transport);
    }
    let key_log = tls::open_key_log(settings.transport.key_log.as_deref())?;
    let (trust, identity) = (&settings.trust, &settings.identity);
    let rules = ClientRules::new(trust, identity, settings.offer, key_log)?;
    let rules = Arc::new(rules);
    warn_of_unsafe(&settings);
    identity::warn_of_wide(settings.identity.psk_file.as_deref());
    let (tokens, plugins) = tokens(&settings)?;
    // Until the last worker has ended.
    let mut detour = detour(&settings)?;
    let mut tun = tun_plan(&settings, detour.as_ref())?;
    let role = ClientRole {
        crypto: rules.crypto.clone(),
        fallback: rules.fallback.clone(),
        server_name: settings.server.host.clone(),
        connections: settings.transport.connections.max(1).div_ceil(workers),
        prover: rules.prover.clone(),
        wait_timeout: WAIT_TIMEOUT,
        compat_streams: COMPAT_STREAMS,
    };
    let transport = launch::transport(&settings.transport, path_mtu)?;
    let (request_sender, requests) = control::requests();
    let Post { mailboxes, inboxes } = launch::post(workers, settings.transport.memory_budget)?;
    let refused = Arc::<Refused>::default();
    let one_process = tun.as_ref().is_some_and(TunPlan::is_one_process);
    confinement::enter(confinement::Plan {
        writes: settings.transport.qlog_dir.iter().cloned().collect(),
        off: match (settings.control.confine, one_process) {
            (false, _) => Some(Off::Asked),
            (true, true) => Some(Off::OneProcess),
            (true, false) => None,
        },
    });
    log.start()?;
    let mut makers = Vec::new();
    for (index, (inbox, udp)) in inboxes.into_iter().zip(ports).enumerate() {
        let forwards = listeners.iter().zip(&tokens).map(|(listener, token)| {
            Ok(ForwardDuty {
                listener: listener.try_clone()?,
                token: token.clone(),
            })
        });
        let plan = Plan {
            index,
            udp,
            inbox,
            siblings: mailboxes.clone(),
            role: role.clone(),
            forwards: forwards
                .collect::<std::io::Result<_>>()
                .context("listener")?,
            transport: transport.clone(),
            // One worker serves the device.
            tun: tun.take(),
            refused: refused.clone(),
            phrases: settings.control.log.phrases,
            requests: request_sender.clone(),
        };
        makers.push(move || plan.build());
    }
    let port = settings.server.port;
    let known = settings.server_addresses.iter();
    let known = known.map(|address| SocketAddr::new(*address, port));
    let server_known = match &detour {
        Some(detour) => detour.server().to_vec(),
        None => known.collect(),
    };
    let addresses: Vec<String> = listeners.iter().map(Listener::address).collect();
    drop(listeners);
    let listen = addresses.clone();
    let forwards = settings.forwards;
    let started = Arc::new(AtomicBool::new(false));
    let has_started = started.clone();
    let announce = move || {
        has_started.store(true, Ordering::Relaxed);
        for (address, forward) in addresses.iter().zip(&forwards) {
            let to = destination(forward);
            info!(target: "quictun", { "listen address" = address, to }, "Client endpoint start up successful");
        }
    };
    let launch = Launch {
        side: Side::Client,
        lines: LineBudget::default(),
        transport: settings.transport,
        control: settings.control,
        server: Some(settings.server),
        server_known,
        plugins,
        requests,
        log_files: log.files().clone(),
        http,
        listen,
        reload: read_again.map(|read| Reload::new(Arc::new(ClientSource::new(read, rules)))),
        announce: Box::new(announce),
    };
    let outcome = launch.run(mailboxes, makers);
    if started.load(Ordering::Relaxed) {
        keep_closed(detour.as_mut(), &outcome);
    }
    outcome
}

/// Where a forward leads, as logs show it.
fn destination(forward: &Forward) -> String {
    match &forward.to {
        ForwardTo::Target(target) => target.to_string(),
        ForwardTo::Source(TokenSource::Fixed(token)) => token.clone(),
        ForwardTo::Source(TokenSource::File(path)) => path.display().to_string(),
        ForwardTo::Source(TokenSource::Http(url)) => shown_url(url),
    }
}

/// Leaves the device's rules and filter as they are where the tunnel has failed by itself.
fn keep_closed(detour: Option<&mut Detour>, outcome: &Result<()>) {
    let failed = outcome.as_ref().is_err_and(|error| !was_interrupted(error));
    if let Some(detour) = detour.filter(|_| failed)
        && detour.stay_closed()
    {
        warn!(target: "quictun", "the tunnel has failed, and nothing leaves beside it: start it again, or let traffic go with `quictun down`");
    }
}

/// Whether a second signal has ended it: that was asked for.
fn was_interrupted(error: &anyhow::Error) -> bool {
    let mut causes = error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    causes.any(|cause| cause.kind() == std::io::ErrorKind::Interrupted)
}

/// What one worker is built from, on its own thread.
struct Plan {
    index: usize,
    transport: Transport,
    inbox: Inbox,
    siblings: Vec<Mailbox>,
    role: ClientRole,
    forwards: Vec<ForwardDuty>,
    udp: UdpPort,
    tun: Option<TunPlan>,
    refused: Arc<Refused>,
    phrases: Phrases,
    requests: tokio::sync::mpsc::Sender<Request>,
}

impl Plan {
    fn build(self) -> Result<Parts<ClientDuty>> {
        let config = EngineConfig {
            role: self.role,
            transport: self.transport,
            worker: u8::try_from(self.index).context("too many workers: at most 256")?,
            seed: launch::random()?,
            reset_key: launch::random()?,
        };
        let tun = self.tun.map(TunPlan::build).transpose()?;
        let tun = tun.map(|tun| tun.with_phrases(self.phrases));
        Ok(Parts {
            index: self.index,
            engine: Engine::client(config)?,
            udp: self.udp,
            inbox: self.inbox,
            // Each worker has an address of its own: no datagram can reach the wrong one.
            siblings: self.siblings.into_iter().take(1).collect(),
            duty: ClientDuty {
                index: self.index,
                forwards: self.forwards,
                tun,
                control: self.requests,
                waiting: Slab::new(),
                tickets: 0,
                paused: None,
                stopped: false,
                refused: self.refused,
                log: FlowLog::new(Side::Client, self.index, self.phrases),
            },
        })
    }
}

/// Whose packets are carried, and which name server is asked.
#[derive(Debug)]
struct TunPlan {
    source: Source,
    dns: Option<IpAddr>,
    for_command: bool,
}

#[derive(Debug)]
enum Source {
    Device(Tun),
    /// The process that has the device is at the other end of this socket.
    Apart(OwnedFd),
}

fn tun_plan(settings: &ClientSettings, detour: Option<&Detour>) -> Result<Option<TunPlan>> {
    let Some(tun) = &settings.tun else {
        return Ok(None);
    };
    let device = |number| Tun::inherit(number).context("the TUN device");
    let source = match &tun.device {
        TunDevice::Apart(number) => {
            netstackd::end_with_parent()?;
            let socket = quictun_sys::inherit_socket(*number).context("the network stack")?;
            Source::Apart(socket)
        }
        TunDevice::Inherited(number) => Source::Device(device(*number)?),
        TunDevice::Own(_) => Source::Device(device(detour.map_or(-1, Detour::descriptor))?),
    };
    Ok(Some(TunPlan {
        source,
        dns: tun.dns,
        for_command: tun.for_command,
    }))
}

impl TunPlan {
    fn is_one_process(&self) -> bool {
        matches!(self.source, Source::Device(_))
    }

    fn build(self) -> Result<TunPort> {
        let for_command = self.for_command;
        Ok(self.port()?.for_command(for_command))
    }

    fn port(self) -> Result<TunPort> {
        let tun = match self.source {
            Source::Device(tun) => tun,
            Source::Apart(socket) => {
                let remote = Remote::new(socket, self.dns.is_some());
                let remote = remote.context("meeting the process with the network stack")?;
                return Ok(TunPort::apart(remote, self.dns)?);
            }
        };
        let random = launch::random()?;
        let words = random.as_chunks().0.iter();
        let seed = words.fold(0, |seed, word| seed ^ u64::from_ne_bytes(*word));
        Ok(TunPort::here(tun, self.dns, seed)?)
    }
}

/// A device of ours, where the settings want one.
fn detour(settings: &ClientSettings) -> Result<Option<Detour>> {
    let own = settings.tun.as_ref().and_then(|tun| match &tun.device {
        TunDevice::Own(routes) => Some(routes),
        TunDevice::Inherited(_) | TunDevice::Apart(_) => None,
    });
    let names = settings.tun.as_ref().is_some_and(|tun| tun.dns.is_some());
    let made = own.map(|routes| {
        let server = (settings.server.host.as_str(), settings.server.port);
        Detour::new(routes, names, server)
    });
    let made = made.transpose()?;
    for note in made.iter().flat_map(Detour::notes) {
        info!(target: "quictun", note, "the device for this host");
    }
    Ok(made)
}

/// The mark that sockets towards the server get, so that a device for the whole host does not take their packets.
///
/// Without the right to set it there is none: a client behind a device for one command needs none.
fn mark(settings: &ClientSettings) -> Result<Option<u32>> {
    let Some(tun) = &settings.tun else {
        return Ok(None);
    };
    let probe = any_socket(&settings.server).context("UDP socket")?;
    match set_mark(&probe, detour::MARK) {
        Ok(()) => Ok(Some(detour::MARK)),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => match tun.device {
            TunDevice::Own(_) => Err(DetourError::Rights.into()),
            TunDevice::Inherited(_) | TunDevice::Apart(_) => Ok(None),
        },
        Err(error) => Err(error).context("marking a UDP socket"),
    }
}

/// What tells the MTU of routes towards the server, for sockets with this mark.
fn path_mtu(settings: &ClientSettings, mark: Option<u32>) -> Result<PathMtu> {
    let most = settings.transport.max_udp_payload;
    match mark {
        Some(mark) => udp_port::marked_path_mtu(most, mark).context("UDP socket"),
        None => Ok(udp_port::path_mtu(most)),
    }
}

/// A UDP socket for each worker.
fn udp_ports(settings: &ClientSettings, workers: usize, mark: Option<u32>) -> Result<Vec<UdpPort>> {
    let open = |_| {
        let socket = any_socket(&settings.server).context("UDP socket")?;
        if let Some(mark) = mark {
            set_mark(&socket, mark).context("marking a UDP socket")?;
        }
        launch::open_udp(socket, &settings.transport)
    };
    (0..workers).map(open).collect()
}

/// Files that are read again for each connection.
fn token_files(settings: &ClientSettings) -> Vec<(PathBuf, u64)> {
    let files = settings
        .forwards
        .iter()
        .filter_map(|forward| match &forward.to {
            ForwardTo::Source(TokenSource::File(path)) => {
                Some((path.clone(), token_source::MAX_FILE))
            }
            _ => None,
        });
    files.collect()
}

/// A UDP socket that reaches IPv4 and IPv6 servers, or IPv4 ones where the host has no IPv6.
fn any_socket(server: &HostPort) -> std::io::Result<UdpSocket> {
    let v4: SocketAddr = ([0, 0, 0, 0], 0).into();
    let v6: SocketAddr = (std::net::Ipv6Addr::UNSPECIFIED, 0).into();
    match server.host.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => udp_port::bind(v4, false),
        Ok(IpAddr::V6(_)) => udp_port::bind(v6, false),
        Err(_) => udp_port::bind(v6, false).or_else(|_| udp_port::bind(v4, false)),
    }
}

/// The fixed token of each forward, and the plugins of the others.
#[expect(clippy::type_complexity, reason = "two parallel lists")]
fn tokens(settings: &ClientSettings) -> Result<(Vec<Option<String>>, Vec<Option<TokenPlugin>>)> {
    let mut tokens = Vec::new();
    let mut plugins = Vec::new();
    for forward in &settings.forwards {
        match &forward.to {
            ForwardTo::Target(target) => {
                tokens.push(Some(target.to_string()));
                plugins.push(None);
            }
            ForwardTo::Source(source) => {
                let plugin = TokenPlugin::new(source)?;
                tokens.push(plugin.fixed().map(str::to_owned));
                plugins.push(Some(plugin));
            }
        }
    }
    Ok((tokens, plugins))
}

/// One listener for each forward: inherited from systemd in their order, or bound.
fn listeners(settings: &ClientSettings) -> Result<Vec<Listener>> {
    let mut inherited = Vec::new();
    for (name, activated) in systemd::listen_fds()? {
        match activated {
            Activated::Tcp(listener) => inherited.push(Listener::Tcp(listener)),
            Activated::Unix(listener) => inherited.push(Listener::Unix(listener)),
            Activated::Udp(_) => {
                warn!(target: "quictun", name, "an inherited socket is no listener: not used");
            }
        }
    }
    let mut inherited = inherited.into_iter();
    let mut listeners = Vec::new();
    for forward in &settings.forwards {
        listeners.push(match inherited.next() {
            Some(listener) => listener,
            None => {
                listener::bind(&forward.listen).with_context(|| cannot_listen(&forward.listen))?
            }
        });
    }
    Ok(listeners)
}

fn cannot_listen(address: &ListenOn) -> String {
    match address {
        ListenOn::Tcp(address) => {
            format!("cannot listen on TCP {address}")
        }
        ListenOn::Unix(path) => format!("cannot listen on the Unix socket {}", path.display()),
    }
}

/// One line for each unsafe mode, with what closes it.
fn warn_of_unsafe(settings: &ClientSettings) {
    if settings.trust == ServerTrust::Insecure {
        warn!(target: "quictun", "UNSAFE: the server is not verified, anyone on the way can read the traffic; close it with --pin sha256:... or --verify-remote-endpoint --ca-file FILE");
    }
    if let Some(path) = &settings.transport.key_log {
        warn!(target: "quictun", path = %path.display(), "UNSAFE: TLS secrets are written to a file, whoever reads it reads the traffic");
    }
}

#[cfg(test)]
mod tests;
