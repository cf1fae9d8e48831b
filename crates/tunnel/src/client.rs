//! The client process: starts the workers, the control plane, listeners and devices, and runs them until the end.

mod announcement;
mod forwards;
mod kept_forwards;
mod server_list;
mod sockets;
mod tun_setup;

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use quictun_engine::report::Side;
use quictun_engine::{ClientRole, Engine, ServerToDial};
use tracing::warn;

use crate::client_worker::reverse::ReverseForwarder;
use crate::client_worker::{ClientWorker, FlowSources, Forwards, ServerDialling};
use crate::failure::Failure;
use crate::forward_listener::ForwardListener;
use crate::launch::{self, Launch, WorkerInputs};
use crate::memory_budget::MemoryBudget;
use crate::moves::Moves;
use crate::network_watch::NetworkWatch;
use crate::reload::change::Rules;
use crate::reload::client::ClientRules;
use crate::reload::forwards::{ForwardNumber, ForwardTable};
use crate::reload::running_client::{ClientState, RunningClient};
use crate::reload::source::ReloadSource;
use crate::reload::{self, ReadConfig, Reload, RereadClient};
use crate::request_handler::Sources;
use crate::servers::Servers;
use crate::service::{Services, places};
use crate::settings::{BOND_TTL_MAX, ClientSettings, Reverse, TransportSettings};
use crate::single_flow::{FlowOutcome, SingleFlow};
use crate::worker::WorkerParts;
use announcement::{Banner, announce};
use forwards::{
    forward_destination, forward_listeners, forward_table, listeners, logins, token_files,
};
use kept_forwards::KeptForwards;
use quictun_control::flow_log::FlowLog;
use quictun_control::line_budget::LineBudget;
use quictun_control::rest::{self, ListenAddresses, ProcessFacts, ReverseForwards};
use quictun_control::settings::Phrases;
use quictun_stackd::settings::{TunDevice, TunSettings};
use quictun_trust::identity;
use quictun_trust::logins::Logins;
use quictun_trust::settings::{HeaderTargets, ServerTrust};
use quictun_trust::tls;
use quictun_wire::listening::HOLDER_LEN;
use quictun_wire::target::Target;
use server_list::{dialled_servers, server_known, server_names, servers_shown, servers_to_dial};
pub(crate) use sockets::any_socket;
use sockets::{mark, marked_socket, udp_ports};
use tun_setup::{TunSetup, detour, keep_closed, tun_setup};

/// Time for which an application waits for a connection to the server before it is reset. It exceeds the longest pause
/// between two attempts.
const WAIT_TIMEOUT: Duration = Duration::from_secs(15);

/// Number of streams on one connection to an original server, which stops at 100 and leaks some of them.
const COMPAT_STREAMS: usize = 80;

/// Runs a client until a signal ends it. The client listens first, then dials the server and never gives up. On SIGHUP
/// it reads its configuration again by `read_again`, if given: its forwards, its servers, and the rules for connections
/// that it makes from then on.
///
/// # Errors
///
/// Returns the reason why the client cannot start, with the remedy: addresses in use, unreadable keys and secrets,
/// invalid token sources. Once it has started, only the failure of a worker is an error.
pub fn run(
    settings: ClientSettings,
    read_again: Option<ReadConfig<RereadClient>>,
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

/// Starts the client and runs it to its end. The inner result is that of the workers.
fn serve(
    mut settings: ClientSettings,
    read_again: Option<ReadConfig<RereadClient>>,
    mut connect: Option<(ConnectRequest, FlowOutcome)>,
) -> Result<Result<(), Failure>> {
    let connections = settings.transport.connections.max(1);
    let workers = settings.transport.workers.clamp(1, connections);
    start_keeper(&settings, read_again.as_ref())?;
    let log = launch::prepare(&settings.control)?;
    let listeners = listeners(&mut settings)?;
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
    let dialled_servers = Arc::new(dialled_servers(&settings));
    let rules = ClientRules::new(&settings, dialled_servers.places(), &shared)?;
    let rules = Arc::new(rules);
    warn_of_risks(&settings);
    let destinations = settings.forwards.iter().map(forward_destination);
    let destinations = destinations.collect::<Result<Vec<_>, _>>()?;
    let (destinations, plugins): (Vec<_>, Vec<_>) = destinations.into_iter().unzip();
    // Until the last worker has ended.
    let mut detour = detour(&settings)?;
    let mut tun = tun_setup(&settings, detour.as_ref())?;
    let role = client_role(
        &settings,
        servers_to_dial(&dialled, &rules),
        connections.div_ceil(workers),
        read_again.is_some(),
    );
    let (table, listeners) = forward_table(&settings.forwards, listeners);
    let listen = table.addresses();
    let started = Arc::new(AtomicBool::new(false));
    let phrases = settings.control.log.phrases;
    let names = servers_shown(&settings, &dialled);
    let at_first: Vec<_> = role.servers.iter().map(|server| server.place).collect();
    let bonds = !role.bond_ttl.is_zero();
    let server_statuses = Arc::new(Servers::new(&at_first, names.clone(), bonds));
    let listen_shown = ListenAddresses::from(listen.clone());
    let running = RunningClient {
        state: Arc::new(ClientState::new(table, dialled_servers.clone())),
        servers: server_statuses.clone(),
        listen: listen_shown.clone(),
    };
    let transport = settings.transport.clone();
    let reload = read_again.map(|read| reload_of(read, (rules, transport), shared, running));
    let banner = settings.control.banner.map(|say| Banner {
        say,
        servers: servers.clone(),
    });
    let shown = ReverseForwards::default();
    let mut reverse = Some(settings.reverse.clone());
    let lines = LineBudget::default();
    let (header_targets, sends_sources) = (settings.header_targets.clone(), settings.sends_sources);
    let launch = Launch {
        side: Side::Client,
        log,
        ports,
        path_mtu,
        memory: MemoryBudget::open(settings.transport.memory_budget),
        one_process: tun.as_ref().is_some_and(TunSetup::is_one_process),
        sources: Sources {
            server_known: server_known(&settings, detour.as_ref()),
            probe: Some((marked_socket(&servers, mark)?, server_statuses.clone())),
            services: Services::new(&dialled, &server_statuses),
            servers: dialled_servers,
            plugins,
        },
        http,
        announce: announce(listen, settings.forwards, started.clone(), banner),
        facts: ProcessFacts {
            listen: listen_shown,
            aead,
            servers: names,
            reverse: shown.clone(),
        },
        reload,
        usage: None,
        uses: None,
        network: Some(NetworkWatch::open(Side::Client).context("cannot watch the network")?),
        lines: lines.clone(),
        transport: settings.transport,
        control: settings.control,
    };
    // It takes the listeners along: those of the workers are the only ones left.
    let outcome = launch.run(move |_| {
        let forwards = forward_listeners(&listeners, &destinations);
        let single_flow = connect.take().map(|(connect, outcome)| {
            let socket = (connect.start)().context("cannot take the application's socket")?;
            anyhow::Ok(SingleFlow::new(socket, &connect.target, outcome, phrases))
        });
        // One worker serves the device, and one has the reverse forwards.
        let (role, tun, servers) = (role.clone(), tun.take(), server_statuses.clone());
        let reverse = (reverse.take().unwrap_or_default(), shown.clone());
        let apps = Applications {
            forwards,
            logins: logins.clone(),
            single_flow: single_flow.transpose()?,
            reverse,
            header_targets: header_targets.clone(),
            sends_sources,
            lines: lines.clone(),
        };
        Ok(move |inputs| build(inputs, role, apps, tun, servers, phrases))
    })?;
    let outcome = outcome.map_err(Failure::of_workers);
    if started.load(Ordering::Relaxed) {
        keep_closed(detour.as_mut(), &outcome);
    }
    Ok(outcome)
}

/// Returns the reload of a client that runs with these rules.
fn reload_of(
    read: ReadConfig<RereadClient>,
    (rules, transport): (Arc<ClientRules>, TransportSettings),
    shared: tls::SharedConfig,
    running: RunningClient,
) -> Reload {
    let load = reload::source::of_client(read, running.state.clone(), shared);
    Reload::new(ReloadSource::new(load, Rules::Client(rules), transport)).of_client(running)
}

/// Returns the part of each worker. `connections` is their number for one worker and one server.
fn client_role(
    settings: &ClientSettings,
    servers: Vec<ServerToDial>,
    connections: usize,
    may_reload: bool,
) -> ClientRole {
    ClientRole {
        servers,
        connections,
        joiner: None,
        // A reload may add the first reverse forward.
        reverse: !settings.reverse.is_empty() || may_reload,
        wait_timeout: WAIT_TIMEOUT,
        bond_ttl: settings.transport.bond_ttl.unwrap_or(BOND_TTL_MAX),
        compat_streams: COMPAT_STREAMS,
    }
}

/// Starts the process that opens files again. A client that keeps the device also keeps its privileges and opens files
/// itself, so it needs no keeper.
fn start_keeper(settings: &ClientSettings, read: Option<&ReadConfig<RereadClient>>) -> Result<()> {
    let apart = |tun: &TunSettings| matches!(tun.device, TunDevice::Apart(_));
    if !settings.tun.as_ref().is_none_or(apart) {
        return Ok(());
    }
    let kept = KeptForwards::new(&settings.forwards);
    let load = read.map(|read| {
        let servers = Arc::new(dialled_servers(settings));
        let state = Arc::new(ClientState::new(ForwardTable::default(), servers));
        let shared = tls::SharedConfig::default();
        let load = reload::source::of_client(read.clone(), state, shared);
        let kept = kept.clone();
        reload::source::reader(load, move |rules| {
            if let Rules::Client(rules) = rules {
                kept.note(&rules.forwards);
            }
        })
    });
    let listen = read.map(|_| kept.fns());
    launch::start_keeper(&settings.control, token_files(settings), load, None, listen)
}

/// The applications that a worker serves.
#[derive(Default)]
struct Applications {
    forwards: BTreeMap<ForwardNumber, ForwardListener>,
    logins: Option<Logins>,
    single_flow: Option<SingleFlow>,
    reverse: (Vec<Reverse>, ReverseForwards),
    header_targets: HeaderTargets,
    sends_sources: bool,
    lines: LineBudget,
}

fn build(
    inputs: WorkerInputs,
    role: ClientRole,
    apps: Applications,
    tun: Option<TunSetup>,
    servers: Arc<Servers>,
    phrases: Phrases,
) -> Result<WorkerParts<ClientWorker>> {
    let dialled = role.servers.len();
    let config = inputs.config(role, launch::random()?)?;
    let (reverse, shown) = apps.reverse;
    let asking = (inputs.index, inputs.requests.clone());
    let proxy = (apps.logins, apps.sends_sources);
    let worker = ClientWorker {
        sources: FlowSources {
            forwards: Forwards::new(asking.clone(), apps.forwards, proxy, phrases),
            reverse: ReverseForwarder::new(
                asking.clone(),
                (reverse, apps.header_targets),
                holder()?,
                (shown, apps.lines),
            ),
            tun: tun.map(|tun| tun.build(phrases)).transpose()?,
            single_flow: apps.single_flow,
        },
        dialling: ServerDialling::new(asking, servers, dialled),
        moves: Moves::default(),
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
