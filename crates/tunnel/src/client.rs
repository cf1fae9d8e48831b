//! The client process.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use quictun_engine::report::Side;
use quictun_engine::{ClientRole, Engine, EngineConfig, Prover, Transport};
use quictun_sys::Tun;
use slab::Slab;
use tracing::{info, warn};

use crate::client_duty::{ClientDuty, ForwardDuty};
use crate::control::{self, Request};
use crate::launch::{self, Launch, Post};
use crate::listener::{self, Listener};
use crate::mailbox::{Inbox, Mailbox};
use crate::psk;
use crate::refusal::Refused;
use crate::settings::{ClientSettings, ForwardTo, HostPort, ListenOn, ServerTrust, TokenSource};
use crate::systemd::{self, Activated};
use crate::tls;
use crate::token_source::TokenPlugin;
use crate::tun_port::TunPort;
use crate::udp_port;
use crate::worker::Parts;

/// How long an application waits for a connection to the server before it is reset: longer than the
/// longest pause between two attempts.
const WAIT_TIMEOUT: Duration = Duration::from_secs(15);

/// Streams on one connection to an original server, which stops at 100 and leaks some.
const COMPAT_STREAMS: usize = 80;

/// Runs a client until a signal ends it. It listens first and dials the server for ever.
///
/// # Errors
///
/// Whatever keeps it from starting, with the remedy: addresses in use, keys and secrets that cannot be
/// read, token sources that make no sense; later only the failure of a worker.
pub fn run(settings: ClientSettings) -> Result<()> {
    let log = launch::prepare(&settings.control)?;
    let key_log = settings.transport.key_log.as_deref();
    let crypto = tls::client_config(&settings.trust, &settings.identity, settings.offer, key_log)?;
    warn_of_unsafe(&settings);
    let (tokens, plugins) = tokens(&settings)?;
    let prover = prover(&settings)?;
    let listeners = listeners(&settings)?;
    let workers = settings
        .transport
        .workers
        .clamp(1, settings.transport.connections.max(1));
    let role = ClientRole {
        crypto,
        server_name: settings.server.host.clone(),
        connections: settings.transport.connections.max(1).div_ceil(workers),
        prover,
        wait_timeout: WAIT_TIMEOUT,
        compat_streams: COMPAT_STREAMS,
    };
    let transport = launch::transport(&settings.transport, workers)?;
    let (request_sender, requests) = control::requests();
    let Post { mailboxes, inboxes } = launch::post(workers)?;
    let refused = Arc::<Refused>::default();
    let mut makers = Vec::new();
    for (index, inbox) in inboxes.into_iter().enumerate() {
        let forwards = listeners.iter().zip(&tokens).map(|(listener, token)| {
            Ok(ForwardDuty {
                listener: listener.try_clone()?,
                token: token.clone(),
            })
        });
        let plan = Plan {
            index,
            inbox,
            siblings: mailboxes.clone(),
            role: role.clone(),
            forwards: forwards
                .collect::<std::io::Result<_>>()
                .context("listener")?,
            transport: transport.clone(),
            settings: settings.clone(),
            refused: refused.clone(),
            requests: request_sender.clone(),
        };
        makers.push(move || plan.build());
    }
    let addresses: Vec<String> = listeners.iter().map(Listener::address).collect();
    drop(listeners);
    let forwards = settings.forwards;
    let announce = move || {
        for (address, forward) in addresses.iter().zip(&forwards) {
            let to = match &forward.to {
                ForwardTo::Target(target) => target.to_string(),
                ForwardTo::Source(TokenSource::Fixed(token)) => token.clone(),
                ForwardTo::Source(TokenSource::File(path)) => path.display().to_string(),
                ForwardTo::Source(TokenSource::Http(url)) => url.clone(),
            };
            info!(target: "quictun", { "listen address" = address, to }, "Client endpoint start up successful");
        }
    };
    let launch = Launch {
        side: Side::Client,
        transport: settings.transport,
        control: settings.control,
        server: Some(settings.server),
        plugins,
        requests,
        log_files: log.files().clone(),
        announce: Box::new(announce),
    };
    launch.run(mailboxes, makers)
}

/// What one worker is built from, on its own thread.
struct Plan {
    index: usize,
    transport: Transport,
    inbox: Inbox,
    siblings: Vec<Mailbox>,
    role: ClientRole,
    forwards: Vec<ForwardDuty>,
    settings: ClientSettings,
    refused: Arc<Refused>,
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
        let socket = any_socket(&self.settings.server).context("UDP socket")?;
        // One worker serves the device.
        let tun = match self.settings.tun.filter(|_| self.index == 0) {
            None => None,
            Some(settings) => {
                let tun = Tun::inherit(settings.descriptor).context("--tun-fd")?;
                let random = launch::random()?;
                let words = random.as_chunks().0.iter();
                let seed = words.fold(0, |seed, word| seed ^ u64::from_ne_bytes(*word));
                Some(TunPort::new(tun, settings.dns, seed)?)
            }
        };
        let udp = launch::udp_port(socket, &self.settings.transport, self.index == 0)?;
        Ok(Parts {
            index: self.index,
            engine: Engine::client(config, std::time::Instant::now())?,
            udp,
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
            },
        })
    }
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

fn prover(settings: &ClientSettings) -> Result<Option<Prover>> {
    let Some(path) = &settings.identity.psk_file else {
        return Ok(None);
    };
    let secret = psk::load_secret(path)?;
    Ok(Some(Arc::new(move |exporter| secret.prove(exporter))))
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
