//! The client process: starts the workers, the control plane, listeners and devices, and runs them until the end.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use quictun_engine::report::{ServerId, Side};
use quictun_engine::{ClientRole, Engine, PathMtu, ServerPlace, ServerToDial};
use quictun_sys::{Tun, set_mark};
use slab::Slab;
use socket2::{Domain, Socket, Type};
use tracing::{info, warn};

use crate::banner;
use crate::client_worker::reverse::ReverseForwarder;
use crate::client_worker::{ClientWorker, DialState, ForwardDestination, ForwardListener};
use crate::failure::Failure;
use crate::launch::{self, Launch, WorkerInputs};
use crate::listener::{self, Listener};
use crate::moves::Moves;
use crate::network_watch::NetworkWatch;
use crate::proxy::Proxy;
use crate::reload::change::Rules;
use crate::reload::client::ClientRules;
use crate::reload::source::ReloadSource;
use crate::reload::{self, ReadConfig, Reload};
use crate::request_handler::Sources;
use crate::servers::Servers;
use crate::service::{Services, places};
use crate::settings::{
    Address, BOND_TTL_MAX, ClientSettings, Forward, ForwardTo, ListenOn, Reverse, TokenSource,
};
use crate::single_flow::{FlowOutcome, SingleFlow};
use crate::token_source::{self, TokenPlugin, TokenSourceError};
use crate::transparent::DivertMethod;
use crate::tun_port::{TunPort, TunStack};
use crate::worker::WorkerParts;
use quictun_control::flow_log::FlowLog;
use quictun_control::line_budget::LineBudget;
use quictun_control::log::shown_url;
use quictun_control::rest::{self, ProcessFacts, ReverseForwards, ServerName, ServerNames};
use quictun_control::settings::Phrases;
use quictun_control::systemd::{self, ActivatedSocket};
use quictun_io::udp_port::{self, UdpPort};
use quictun_stackd::detour::{self, Detour, DetourError};
use quictun_stackd::netstackd::{self, NetstackProcess};
use quictun_stackd::own_stack::OwnStack;
use quictun_stackd::settings::{TunDevice, TunSettings};
use quictun_trust::identity;
use quictun_trust::logins::Logins;
use quictun_trust::settings::{HeaderTargets, ServerTrust};
use quictun_trust::tls;
use quictun_wire::listening::HOLDER_LEN;
use quictun_wire::target::Target;

/// How long an application waits for a connection to the server before it is reset. It exceeds the longest pause
/// between two attempts.
const WAIT_TIMEOUT: Duration = Duration::from_secs(15);

/// Number of streams on one connection to an original server, which stops at 100 and leaks some of them.
const COMPAT_STREAMS: usize = 80;

/// Runs a client until a signal ends it. The client listens first, then dials the server and never gives up. On SIGHUP
/// it reads its configuration again by `read_again`, if given, and applies it to the connections that it makes from
/// then on.
///
/// # Errors
///
/// Returns the reason why the client cannot start, with the remedy: addresses in use, unreadable keys and secrets,
/// invalid token sources. Once it has started, only the failure of a worker is an error.
pub fn run(
    settings: ClientSettings,
    read_again: Option<ReadConfig<ClientSettings>>,
) -> Result<(), Failure> {
    serve(settings, read_again, None)?
}

/// A single flow, and a client process that runs for it alone.
pub struct ConnectRequest {
    /// The target of the flow.
    pub target: Target,
    /// Returns the application's end of a socket pair; the caller keeps the other end. It is called once everything is
    /// ready, and may start threads.
    pub start: Box<dyn FnOnce() -> std::io::Result<UnixStream> + Send>,
}

impl std::fmt::Debug for ConnectRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectRequest")
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

/// Runs a client for one flow, until the flow is over and all its data has arrived.
///
/// # Errors
///
/// Returns the errors of [`run`], and [`Failure::Other`] if the flow was refused or cut.
pub fn connect(settings: ClientSettings, connect: ConnectRequest) -> Result<(), Failure> {
    let outcome = FlowOutcome::default();
    let target = connect.target.to_string();
    serve(settings, None, Some((connect, outcome.clone())))??;
    let ended = outcome.take().map_err(anyhow::Error::msg);
    Ok(ended.context(target)?)
}

/// The inner result is that of the workers.
fn serve(
    mut settings: ClientSettings,
    read_again: Option<ReadConfig<ClientSettings>>,
    mut connect: Option<(ConnectRequest, FlowOutcome)>,
) -> Result<Result<(), Failure>> {
    let connections = settings.transport.connections.max(1);
    let workers = settings.transport.workers.clamp(1, connections);
    start_keeper(&settings, read_again.as_ref())?;
    settings.forwards.retain(is_possible);
    let log = launch::prepare(&settings.control)?;
    let listeners = listeners(&settings)?;
    let logins = logins(
        settings.proxy_users.as_deref(),
        &settings.forwards,
        &listeners,
    )?;
    let mark = mark(&settings)?;
    let (ports, path_mtu) = udp_ports(&settings, mark, workers)?;
    let http = rest::bind(&settings.control)?;
    launch::log_udp(&ports[0], &settings.transport);
    let shared = launch::tls(&settings.transport)?;
    let aead = shared.suites.to_string();
    let servers = server_names(&settings);
    let dialled = places::expand_services(&servers);
    let rules = Arc::new(ClientRules::new(&settings, &dialled, &shared)?);
    warn_of_risks(&settings);
    let destinations = settings.forwards.iter().map(forward_destination);
    let destinations = destinations.collect::<Result<Vec<_>, _>>()?;
    let (destinations, plugins): (Vec<_>, Vec<_>) = destinations.into_iter().unzip();
    // Until the last worker has ended.
    let mut detour = detour(&settings)?;
    let mut tun = tun_setup(&settings, detour.as_ref())?;
    let role = ClientRole {
        servers: servers_to_dial(&dialled, &rules),
        connections: connections.div_ceil(workers),
        joiner: None,
        reverse: !settings.reverse.is_empty(),
        wait_timeout: WAIT_TIMEOUT,
        bond_ttl: settings.transport.bond_ttl.unwrap_or(BOND_TTL_MAX),
        compat_streams: COMPAT_STREAMS,
    };
    let reload = read_again.map(|read| {
        let load = reload::source::of_client(read, dialled.clone(), shared);
        Reload::new(ReloadSource::new(load, Rules::Client(rules)))
    });
    let listen: Vec<String> = listeners.iter().map(Listener::address).collect();
    let started = Arc::new(AtomicBool::new(false));
    let phrases = settings.control.log.phrases;
    let names = servers_shown(&settings, &dialled);
    let at_first: Vec<_> = role.servers.iter().map(|server| server.place).collect();
    let bonds = !role.bond_ttl.is_zero();
    let server_statuses = Arc::new(Servers::new(&at_first, names.clone(), bonds));
    let banner = settings.control.banner.map(|say| Banner {
        say,
        servers: servers.clone(),
    });
    let shown = ReverseForwards::default();
    let mut reverse = Some(settings.reverse.clone());
    let (header_targets, sends_sources) = (settings.header_targets.clone(), settings.sends_sources);
    let launch = Launch {
        side: Side::Client,
        log,
        ports,
        path_mtu,
        one_process: tun.as_ref().is_some_and(TunSetup::is_one_process),
        sources: Sources {
            server_known: server_known(&settings, detour.as_ref()),
            probe: Some((marked_socket(&servers, mark)?, server_statuses.clone())),
            services: Services::new(&dialled, &server_statuses),
            servers: dialled,
            plugins,
        },
        http,
        announce: announce(listen.clone(), settings.forwards, started.clone(), banner),
        facts: ProcessFacts {
            listen,
            aead,
            servers: names,
            reverse: shown.clone(),
        },
        reload,
        usage: None,
        uses: None,
        network: Some(NetworkWatch::open().context("cannot watch the network")?),
        lines: LineBudget::default(),
        transport: settings.transport,
        control: settings.control,
    };
    // It takes the listeners along: those of the workers are the only ones left.
    let outcome = launch.run(move |_| {
        let forwards =
            forward_listeners(&listeners, &destinations).context("cannot duplicate a listener")?;
        let single_flow = connect.take().map(|(connect, outcome)| {
            let socket = (connect.start)().context("cannot take the application's socket")?;
            anyhow::Ok(SingleFlow::new(socket, &connect.target, outcome))
        });
        let single_flow = single_flow.transpose()?;
        // One worker serves the device, and one has the reverse forwards.
        let (role, tun, servers) = (role.clone(), tun.take(), server_statuses.clone());
        let reverse = (reverse.take().unwrap_or_default(), shown.clone());
        let apps = Applications {
            forwards,
            logins: logins.clone(),
            single_flow,
            reverse,
            header_targets: header_targets.clone(),
            sends_sources,
        };
        Ok(move |inputs| build(inputs, role, apps, tun, servers, phrases))
    })?;
    let outcome = outcome.map_err(Failure::of_workers);
    if started.load(Ordering::Relaxed) {
        keep_closed(detour.as_mut(), &outcome);
    }
    Ok(outcome)
}

/// Returns a worker's handles of the listeners, each with the destination of its connections.
fn forward_listeners(
    listeners: &[Listener],
    destinations: &[ForwardDestination],
) -> std::io::Result<Vec<ForwardListener>> {
    let forwards = listeners.iter().zip(destinations);
    let forwards = forwards.map(|(listener, destination)| {
        let (listener, destination) = (listener.try_clone()?, destination.clone());
        Ok(ForwardListener {
            listener,
            destination,
        })
    });
    forwards.collect()
}

/// Starts the process that opens files again. A client that keeps the device also keeps its privileges and opens files
/// itself, so it needs no keeper.
fn start_keeper(
    settings: &ClientSettings,
    read: Option<&ReadConfig<ClientSettings>>,
) -> Result<()> {
    let apart = |tun: &TunSettings| matches!(tun.device, TunDevice::Apart(_));
    if !settings.tun.as_ref().is_none_or(apart) {
        return Ok(());
    }
    let load = read.map(|read| {
        let servers = places::expand_services(&server_names(settings));
        let shared = tls::SharedConfig::default();
        reload::source::reader(reload::source::of_client(read.clone(), servers, shared))
    });
    launch::start_keeper(&settings.control, token_files(settings), load, None, None)
}

fn server_names(settings: &ClientSettings) -> Vec<Address> {
    let servers = settings.servers().into_iter();
    servers.map(|server| server.server).collect()
}

fn servers_to_dial(servers: &[Address], rules: &ClientRules) -> Vec<ServerToDial> {
    let dialled = servers.iter().enumerate().filter_map(|(index, server)| {
        let rules = rules.of(ServerId(index))?;
        // Dialling the first place of a service starts the look-up of its records.
        let wanted = index == 0 || server.at().is_some() || servers[index - 1] != *server;
        Some(ServerToDial {
            crypto: rules.crypto.clone(),
            fallback: rules.fallback.clone(),
            name: server.name().to_owned(),
            prover: rules.prover.clone(),
            place: ServerPlace {
                wanted,
                ..ServerPlace::default()
            },
        })
    });
    dialled.collect()
}

/// Returns the servers in the form that people see: as given, with the addresses of a name if they are known.
fn servers_shown(settings: &ClientSettings, dialled: &[Address]) -> ServerNames {
    let known = &settings.server_addresses;
    let named = |(index, server): (usize, &Address)| {
        let has_name = server.name().parse::<IpAddr>().is_err();
        let name = if index == 0 && !known.is_empty() && has_name {
            let addresses: Vec<_> = known.iter().map(IpAddr::to_string).collect();
            format!("{server} ({})", addresses.join(", "))
        } else {
            server.to_string()
        };
        let is_first = index == 0 || server.at().is_some() || dialled[index - 1] != *server;
        is_first.then(|| ServerName {
            name,
            ..ServerName::default()
        })
    };
    ServerNames::new(dialled.iter().enumerate().map(named).collect())
}

/// Returns the known addresses of the first server. If there are any, its name is not looked up.
fn server_known(settings: &ClientSettings, detour: Option<&Detour>) -> Vec<SocketAddr> {
    let port = settings.server.at().map_or(0, |server| server.port);
    let given = settings.server_addresses.iter();
    match detour {
        Some(detour) => detour.server().to_vec(),
        None => given.map(|ip| SocketAddr::new(*ip, port)).collect(),
    }
}

fn announce(
    addresses: Vec<String>,
    forwards: Vec<Forward>,
    started: Arc<AtomicBool>,
    banner: Option<Banner>,
) -> Box<dyn FnOnce()> {
    Box::new(move || {
        started.store(true, Ordering::Relaxed);
        let destinations = forwards.iter().map(destination);
        let pairs: Vec<_> = addresses.into_iter().zip(destinations).collect();
        for (address, _) in &pairs {
            systemd::notify(&format!("{}={address}", systemd::LISTEN));
        }
        if let Some(Banner { say, servers }) = banner {
            return say(banner::client(&servers, &pairs).trim_end());
        }
        for (address, to) in pairs {
            info!(target: "quictun", { "listen address" = address, to }, "Client endpoint start up successful");
        }
    })
}

/// Prints the start's lines at a terminal.
struct Banner {
    say: fn(&str),
    servers: Vec<Address>,
}

fn destination(forward: &Forward) -> String {
    match &forward.to {
        ForwardTo::Target(target) => target.to_string(),
        ForwardTo::Proxy => "anywhere (SOCKS5, SOCKS4a, HTTP CONNECT)".to_owned(),
        ForwardTo::Destination => "wherever connections are made to".to_owned(),
        ForwardTo::Source(TokenSource::Fixed(token)) => token.clone(),
        ForwardTo::Source(TokenSource::File(path)) => path.display().to_string(),
        ForwardTo::Source(TokenSource::Http(url)) => shown_url(url),
    }
}

/// Leaves the device's routing rules and packet filter in place if the tunnel has failed by itself.
fn keep_closed(detour: Option<&mut Detour>, outcome: &Result<(), Failure>) {
    let failed = !matches!(outcome, Ok(()) | Err(Failure::Interrupted));
    if let Some(detour) = detour.filter(|_| failed)
        && detour.stay_closed()
    {
        warn!(target: "quictun", "the tunnel has failed, and no packet bypasses it: start it again, or let traffic out with `quictun down`");
    }
}

/// The applications that a worker serves.
#[derive(Default)]
struct Applications {
    forwards: Vec<ForwardListener>,
    logins: Option<Logins>,
    single_flow: Option<SingleFlow>,
    reverse: (Vec<Reverse>, ReverseForwards),
    header_targets: HeaderTargets,
    sends_sources: bool,
}

fn build(
    inputs: WorkerInputs,
    role: ClientRole,
    apps: Applications,
    tun: Option<TunSetup>,
    servers: Arc<Servers>,
    phrases: Phrases,
) -> Result<WorkerParts<ClientWorker>> {
    let config = inputs.config(role, launch::random()?)?;
    let holder = holder()?;
    let (reverse, shown) = apps.reverse;
    let worker = ClientWorker {
        index: inputs.index,
        forwards: apps.forwards,
        proxy: Proxy::new(apps.logins),
        single_flow: apps.single_flow,
        reverse: ReverseForwarder::new(
            inputs.index,
            inputs.requests.clone(),
            (reverse, apps.header_targets),
            holder,
            shown,
        ),
        sends_sources: apps.sends_sources,
        incoming: HashMap::new(),
        tun: tun.map(|tun| tun.build(phrases)).transpose()?,
        control: inputs.requests.clone(),
        waiting: Slab::new(),
        tickets: 0,
        paused: None,
        stopped: false,
        dialling: vec![DialState::default(); servers.count()],
        servers,
        moves: Moves::default(),
        direct: false,
        log: FlowLog::new(Side::Client, inputs.index, phrases),
    };
    let mut parts = inputs.parts(Engine::client(config)?, worker);
    // Each worker has its own address, so no datagram reaches the wrong worker.
    parts.siblings.truncate(1);
    Ok(parts)
}

/// Returns the identifier of this process, by which the server knows the holder of its listeners.
fn holder() -> Result<[u8; HOLDER_LEN]> {
    let mut holder = [0; HOLDER_LEN];
    holder.copy_from_slice(&launch::random()?[..HOLDER_LEN]);
    Ok(holder)
}

/// The origin of the packets that are carried, and the name server that is asked.
#[derive(Debug)]
struct TunSetup {
    source: TunSource,
    dns: Option<IpAddr>,
    for_command: bool,
}

#[derive(Debug)]
enum TunSource {
    Device(Tun),
    /// Another process has the device; it is at the other end of this socket.
    Apart(OwnedFd),
}

fn tun_setup(settings: &ClientSettings, detour: Option<&Detour>) -> Result<Option<TunSetup>> {
    let Some(tun) = &settings.tun else {
        return Ok(None);
    };
    let device = |number| Tun::inherit(number).context("cannot use the inherited TUN device");
    let source = match &tun.device {
        TunDevice::Apart(number) => {
            netstackd::end_with_parent()?;
            let socket = quictun_sys::inherit_socket(*number)
                .context("cannot use the inherited socket to the network stack")?;
            TunSource::Apart(socket)
        }
        TunDevice::Inherited(number) => TunSource::Device(device(*number)?),
        TunDevice::Own(_) => TunSource::Device(device(detour.map_or(-1, Detour::descriptor))?),
    };
    Ok(Some(TunSetup {
        source,
        dns: tun.dns,
        for_command: tun.for_command,
    }))
}

impl TunSetup {
    fn is_one_process(&self) -> bool {
        matches!(self.source, TunSource::Device(_))
    }

    fn build(self, phrases: Phrases) -> Result<TunPort> {
        let stack = match self.source {
            TunSource::Device(tun) => TunStack::Own(OwnStack::new(tun, self.dns.is_some())?),
            TunSource::Apart(socket) => {
                let remote = NetstackProcess::new(socket, self.dns.is_some());
                TunStack::Remote(remote.context("cannot set up the channel to netstackd")?)
            }
        };
        Ok(TunPort::new(stack, self.dns, self.for_command, phrases)?)
    }
}

fn detour(settings: &ClientSettings) -> Result<Option<Detour>> {
    let own = settings.tun.as_ref().and_then(|tun| match &tun.device {
        TunDevice::Own(routes) => Some(routes),
        TunDevice::Inherited(_) | TunDevice::Apart(_) => None,
    });
    let names = settings.tun.as_ref().is_some_and(|tun| tun.dns.is_some());
    let made = own.map(|routes| {
        let server = settings
            .server
            .at()
            .context("a client with a device has exactly one server")?;
        anyhow::Ok(Detour::new(
            routes,
            names,
            (server.host.as_str(), server.port),
        )?)
    });
    let made = made.transpose()?;
    for note in made.iter().flat_map(Detour::notes) {
        info!(target: "quictun", note, "the device for this host");
    }
    Ok(made)
}

/// Returns the mark of sockets towards the server, so that a device for the whole host does not take their packets.
///
/// Without the right to set a mark, the result is `None`: a client behind a device for one command needs no mark.
fn mark(settings: &ClientSettings) -> Result<Option<u32>> {
    let led = |forward: &Forward| matches!(forward.listen, ListenOn::Transparent(..));
    let Some(tun) = &settings.tun else {
        // The rules that lead connections to the listeners leave marked packets alone. They do not take UDP, so the
        // client also works without a mark.
        let probe = any_socket(&server_names(settings).iter().map(Address::name))
            .context("cannot make a UDP socket")?;
        let marked = settings.forwards.iter().any(led) && set_mark(&probe, detour::MARK).is_ok();
        return Ok(marked.then_some(detour::MARK));
    };
    let probe = any_socket(&server_names(settings).iter().map(Address::name))
        .context("cannot make a UDP socket")?;
    match set_mark(&probe, detour::MARK) {
        Ok(()) => Ok(Some(detour::MARK)),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => match tun.device {
            TunDevice::Own(_) => Err(DetourError::Rights.into()),
            TunDevice::Inherited(_) | TunDevice::Apart(_) => Ok(None),
        },
        Err(error) => Err(error).context("cannot mark a UDP socket"),
    }
}

/// Opens a UDP socket for each worker, and the source of path MTUs of the routes towards the server.
fn udp_ports(
    settings: &ClientSettings,
    mark: Option<u32>,
    workers: usize,
) -> Result<(Vec<UdpPort>, PathMtu)> {
    let servers = server_names(settings);
    let open = |_| {
        let socket = marked_socket(&servers, mark)?;
        launch::open_udp(socket, &settings.transport)
    };
    let ports = (0..workers).map(open).collect::<Result<_>>()?;
    let most = settings.transport.max_udp_payload;
    let path_mtu = match mark {
        Some(mark) => udp_port::marked_path_mtu(most, mark).context("cannot make a UDP socket")?,
        None => udp_port::path_mtu(most),
    };
    Ok((ports, path_mtu))
}

fn marked_socket(servers: &[Address], mark: Option<u32>) -> Result<UdpSocket> {
    let socket =
        any_socket(&servers.iter().map(Address::name)).context("cannot make a UDP socket")?;
    if let Some(mark) = mark {
        set_mark(&socket, mark).context("cannot mark a UDP socket")?;
    }
    Ok(socket)
}

fn token_files(settings: &ClientSettings) -> Vec<(PathBuf, u64)> {
    let forwards = settings.forwards.iter();
    let files = forwards.filter_map(|forward| match &forward.to {
        ForwardTo::Source(TokenSource::File(path)) => Some((path.clone(), token_source::MAX_FILE)),
        _ => None,
    });
    files.collect()
}

/// A UDP socket that reaches IPv4 and IPv6 servers, or IPv4 ones where the host has no IPv6.
pub(crate) fn any_socket<'a>(
    servers: &(impl Iterator<Item = &'a str> + Clone),
) -> std::io::Result<UdpSocket> {
    let v4: SocketAddr = ([0, 0, 0, 0], 0).into();
    let v6: SocketAddr = (std::net::Ipv6Addr::UNSPECIFIED, 0).into();
    let all = |is: fn(&IpAddr) -> bool| {
        let mut literals = servers.clone().map(str::parse);
        literals.all(|literal| literal.is_ok_and(|literal| is(&literal)))
    };
    if all(IpAddr::is_ipv4) {
        return udp_port::bind(v4, false);
    }
    let both = udp_port::bind(v6, false);
    if all(IpAddr::is_ipv6) {
        return both;
    }
    both.or_else(|_| udp_port::bind(v4, false))
}

/// Returns the destination of a forward's connections, and the plugin that gives their token once or for each of them.
fn forward_destination(
    forward: &Forward,
) -> Result<(ForwardDestination, Option<TokenPlugin>), TokenSourceError> {
    match &forward.to {
        ForwardTo::Target(target) => Ok((ForwardDestination::Token(target.to_string()), None)),
        ForwardTo::Proxy => Ok((ForwardDestination::Proxy, None)),
        ForwardTo::Destination => Ok((ForwardDestination::Original, None)),
        ForwardTo::Source(source) => {
            let plugin = TokenPlugin::new(source)?;
            let fixed = plugin.fixed().map(str::to_owned);
            Ok((
                fixed.map_or(ForwardDestination::Plugin, ForwardDestination::Token),
                Some(plugin),
            ))
        }
    }
}

/// Reads the users of the proxies. Without users, a proxy must listen on a loopback address. A listener that systemd
/// has made may be open to other machines, whatever the configuration says.
fn logins(
    users: Option<&Path>,
    forwards: &[Forward],
    listeners: &[Listener],
) -> Result<Option<Logins>> {
    if let Some(path) = users {
        return Ok(Some(Logins::load(path)?));
    }
    for (forward, listener) in forwards.iter().zip(listeners) {
        anyhow::ensure!(
            forward.to != ForwardTo::Proxy || listener.is_local(),
            "the proxy on {} would serve everyone who reaches that address: listen on 127.0.0.1, or give users and their passwords with --proxy-users FILE",
            listener.address()
        );
    }
    Ok(None)
}

/// Returns one listener for each forward: inherited from systemd in the order of the forwards, or bound here.
fn listeners(settings: &ClientSettings) -> Result<Vec<Listener>> {
    let mut inherited = Vec::new();
    for (name, activated) in systemd::listen_fds()? {
        match activated {
            ActivatedSocket::Tcp(listener) => inherited.push(Listener::Tcp(listener)),
            ActivatedSocket::Unix(listener) => inherited.push(Listener::Unix(listener)),
            ActivatedSocket::Udp(_) => {
                warn!(target: "quictun", name, "an inherited socket is not a listener: it is not used");
            }
        }
    }
    let mut inherited = inherited.into_iter();
    let mut listeners = Vec::new();
    for forward in &settings.forwards {
        // Redirected connections need a socket with its own options, so no inherited one is used.
        let given = match forward.listen {
            ListenOn::Transparent(..) => None,
            ListenOn::Tcp(_) | ListenOn::Unix(_) => inherited.next(),
        };
        listeners.push(match given {
            Some(listener) => listener,
            None => {
                listener::bind(&forward.listen).with_context(|| cannot_listen(&forward.listen))?
            }
        });
    }
    Ok(listeners)
}

/// Returns whether the kernel supports the address family of a forward. Redirected connections come in both families,
/// and a kernel may lack one.
fn is_possible(forward: &Forward) -> bool {
    match forward.listen {
        ListenOn::Transparent(_, at) => {
            Socket::new(Domain::for_address(at), Type::STREAM, None).is_ok()
        }
        ListenOn::Tcp(_) | ListenOn::Unix(_) => true,
    }
}

fn cannot_listen(address: &ListenOn) -> String {
    match address {
        ListenOn::Tcp(address) | ListenOn::Transparent(DivertMethod::Redirect, address) => {
            format!("cannot listen on TCP {address}")
        }
        ListenOn::Transparent(DivertMethod::Tproxy, address) => {
            format!("cannot listen on TCP {address} for tproxy, which needs CAP_NET_ADMIN")
        }
        ListenOn::Unix(path) => format!("cannot listen on the Unix socket {}", path.display()),
    }
}

/// Warns of files with secrets that other users may read.
fn warn_of_wide_files(settings: &ClientSettings) {
    for server in settings.servers() {
        identity::warn_of_wide(server.identity.psk_file.as_deref());
    }
    identity::warn_of_wide(settings.proxy_users.as_deref());
}

fn warn_of_risks(settings: &ClientSettings) {
    warn_of_wide_files(settings);
    let servers = settings.servers();
    let mut trusts = servers.iter().map(|server| &server.trust);
    if trusts.any(|trust| *trust == ServerTrust::Insecure) {
        warn!(target: "quictun", "UNSAFE: the server is not verified, anyone on the path can read the traffic; verify it with --pin sha256:... or --verify-remote-endpoint --ca-file FILE");
    }
    launch::warn_of_key_log(&settings.transport);
}

#[cfg(test)]
mod tests;
