//! The client process, in stages that consume one another.
//!
//! ```text
//!  ClientSettings ─► ClientPlan ── the keeper starts, all is opened ──► BoundClient ── rights end ──► workers, until the end
//! ```

mod announcement;
mod client_template;
mod forwards;
mod kept_forwards;
mod plan;
mod sockets;
mod tun_setup;

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use quictun_engine::report::Side;
use quictun_engine::{ClientRole, ServerToDial, Surroundings};
use tracing::warn;

use crate::failure::Failure;
use crate::handover::{
    Commitment, HandoverPort, Offered, OfferedBySide, TakeOver, TakenFlows, TakenState,
};
use crate::launch::{self, DataPath, Duties, Launch, SideDuties};
use crate::listener::Listener;
use crate::marked_sockets::MarkedSockets;
use crate::memory_budget::MemoryBudget;
use crate::network_watch::NetworkWatch;
use crate::outbound_proxy::{OpenProxy, ProxyLogin};
use crate::reload::change::Rules;
use crate::reload::client::ClientRules;
use crate::reload::running_client::{ClientState, RunningClient};
use crate::reload::source::ReloadSource;
use crate::reload::{self, ReadConfig, Reload, RereadClient};
use crate::request_handler::Sources;
use crate::servers::Servers;
use crate::service::Services;
use crate::settings::{BOND_TTL_MAX, CarrierChoice, ClientSettings, Forward, TransportSettings};
use crate::single_flow::{FlowOutcome, SingleFlow};
use announcement::announce;
use client_template::{ClientTemplate, FirstSources};
use forwards::{OpenForwards, listeners, logins};
use plan::ClientPlan;
use quictun_control::line_budget::LineBudget;
use quictun_control::log::LogGuard;
use quictun_control::rest::{self, ListenAddresses, ProcessFacts, ReverseForwards, ServerNames};
use quictun_stackd::detour::Detour;
use quictun_trust::identity;
use quictun_trust::logins::Logins;
use quictun_trust::settings::ServerTrust;
use quictun_trust::tls;
use quictun_wire::target::Target;
use sockets::ClientSockets;
pub(crate) use sockets::any_socket;
use tun_setup::TunSetup;

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
    serve(ClientPlan::new(settings, read_again), || Ok(None))?
}

/// Runs a client for one flow to this target, until the flow is over and all its data has arrived.
///
/// `start` returns the application's end of a socket pair, whose other end the caller keeps. It is called once
/// everything is ready, and may start threads.
///
/// # Errors
///
/// Returns the errors of [`run`], and [`Failure::Other`] if the flow was refused or cut.
pub fn connect(
    settings: ClientSettings,
    target: &Target,
    start: impl FnOnce() -> std::io::Result<UnixStream>,
) -> Result<(), Failure> {
    let (outcome, phrases) = (FlowOutcome::default(), settings.control.log.phrases);
    let of_flow = outcome.clone();
    let flow = || {
        let socket = start().context("cannot take the application's socket")?;
        Ok(Some(SingleFlow::new(socket, target, of_flow, phrases)))
    };
    serve(ClientPlan::new(settings, None), flow)??;
    let ended = outcome.take().map_err(anyhow::Error::msg);
    Ok(ended.context(target.to_string())?)
}

/// Starts the client and runs it to its end. The inner result is that of the workers.
fn serve(
    plan: ClientPlan,
    single_flow: impl FnOnce() -> Result<Option<SingleFlow>>,
) -> Result<Result<(), Failure>, Failure> {
    plan.start_keeper()?;
    let settings = &plan.settings;
    let log = launch::prepare(&settings.control)?;
    let take_over = settings.take_over.then(|| TakeOver::of_client(settings));
    let take_over = take_over.transpose().map_err(Failure::NotTakenOver)?;
    Ok(BoundClient::open(plan, log, take_over)?.run(single_flow)?)
}

/// A client that has opened everything that needs its rights, and still has them.
struct BoundClient {
    launch: Launch,
    template: ClientTemplate,
    first: FirstSources,
    /// The sockets of each worker for TLS over TCP, if they need a mark.
    marked: Vec<MarkedSockets>,
    /// Until the last worker has ended.
    detour: Option<Detour>,
    /// True once the start was announced.
    started: Arc<AtomicBool>,
}

impl BoundClient {
    fn open(mut plan: ClientPlan, log: LogGuard, take_over: Option<TakeOver>) -> Result<Self> {
        let settings = &mut plan.settings;
        let shared = launch::tls(&settings.transport)?;
        let aead = shared.suites.to_string();
        let mut rules = ClientRules::new(settings, plan.places.places(), &shared)?;
        let proxy = OpenProxy::open(settings.outbound_proxy.as_ref())?;
        let sockets = ClientSockets::open(settings, &plan.named, plan.workers)?;
        // From here on, the old process waits.
        let mut taken = take_over.map(TakeOver::take).transpose()?;
        let (listeners, logins, http) = open_local(settings, taken.as_mut())?;
        rules.forwards.clone_from(&settings.forwards);
        let rules = Arc::new(rules);
        plan.places.set(rules.dialled.clone());
        launch::log_udp(&sockets.ports[0], &settings.transport);
        log_beginning(settings, proxy.as_deref());
        let forwards = OpenForwards::new(&settings.forwards, listeners)?;
        let answers_for_others = settings.forwards.iter().any(Forward::is_for_other_hosts);
        let (tun, detour) = tun_setup::open(settings)?;
        let memory = MemoryBudget::open(settings.transport.memory_budget);
        let network = NetworkWatch::open(Side::Client).context("cannot watch the network")?;
        let role = ClientRole {
            surroundings: sockets.surroundings,
            ..role(&plan, plan.to_dial(&rules))
        };
        let names = plan.shown();
        let servers = shared_servers(&role, &names, &plan.settings.transport);
        let known = detour.as_ref().map(|detour| detour.server().to_vec());
        let services = Services::new(&plan.dialled, &servers);
        let sources = Sources {
            server_known: known.unwrap_or(plan.known),
            probe: Some((sockets.probe, servers.clone())),
            rejections: sockets.rejections,
            services: services.clone(),
            servers: plan.places.clone(),
            plugins: forwards.plugins,
            outbound_proxy: proxy.clone(),
        };
        let addresses = forwards.table.addresses();
        let listen = ListenAddresses::from(addresses.clone());
        let running = RunningClient {
            state: Arc::new(ClientState::new(forwards.table, plan.places)),
            servers: servers.clone(),
            listen: listen.clone(),
        };
        let (handover, flows, commitment) =
            hand_over_later(&plan.settings, taken, http.as_ref(), &running.state);
        let dialled = running.state.dialled.clone();
        let (reverse_shown, lines) = (ReverseForwards::default(), LineBudget::default());
        let settings = plan.settings;
        let started = Arc::<AtomicBool>::default();
        let duties = Duties {
            of_side: SideDuties::Client(sources),
            handover,
            commitment,
            http,
            facts: facts(
                (listen, aead, names),
                reverse_shown.clone(),
                proxy.as_deref(),
            ),
            reload: plan
                .read_again
                .map(|read| reload_of(read, (rules, settings.transport.clone()), shared, running)),
            network: Some(network),
            lines: lines.clone(),
            announce: announce(
                addresses,
                settings.forwards,
                plan.named,
                started.clone(),
                settings.control.banner,
            ),
        };
        let template = ClientTemplate {
            role,
            servers,
            forwards: forwards.of_workers,
            logins,
            sends_sources: settings.sends_sources,
            header_targets: settings.header_targets,
            reverse_shown,
            lines,
            phrases: settings.control.log.phrases,
            tcp_congestion: settings.transport.tcp_congestion.clone(),
            outbound_proxy: proxy,
            dialled,
            services,
            taken: flows,
        };
        let launch = Launch {
            control: settings.control,
            log,
            one_process: tun.as_ref().is_some_and(TunSetup::is_one_process),
            answers_for_others,
            data_path: DataPath {
                settings: settings.transport,
                ports: sockets.ports,
                path_mtu: sockets.path_mtu,
                memory,
            },
            duties,
        };
        let first = FirstSources {
            tun,
            reverse: settings.reverse,
            single_flow: None,
        };
        Ok(Self {
            launch,
            template,
            first,
            marked: sockets.marked,
            detour,
            started,
        })
    }

    /// Gives up the rights, and runs the workers to their end.
    fn run(
        self,
        single_flow: impl FnOnce() -> Result<Option<SingleFlow>>,
    ) -> Result<Result<(), Failure>> {
        let (template, mut first, mut detour) = (self.template, self.first, self.detour);
        let mut marked = self.marked;
        let confined = self.launch.confine()?;
        first.single_flow = single_flow()?;
        // The closure takes the template along: the listeners of the workers are the only ones left.
        let ended = confined.run(move || {
            let (template, first) = (template.clone(), std::mem::take(&mut first));
            let marked = marked.pop();
            move |inputs| template.build(inputs, first, marked)
        })?;
        let outcome = ended.map_err(Failure::of_workers);
        if self.started.load(Ordering::Relaxed) {
            tun_setup::keep_closed(detour.as_mut(), &outcome);
        }
        Ok(outcome)
    }
}

/// Opens the listeners for applications and people, of which the previous process may have passed some on, and reads the
/// users of the proxies.
fn open_local(
    settings: &mut ClientSettings,
    mut taken: Option<&mut TakenState>,
) -> Result<(Vec<Listener>, Option<Logins>, Option<rest::BoundListener>)> {
    let passed = taken.as_mut();
    let passed = passed.map(|taken| std::mem::take(&mut taken.forwards));
    let listeners = listeners(settings, passed.unwrap_or_default())?;
    let users = settings.proxy_users.as_deref();
    let logins = logins(users, &settings.forwards, &listeners)?;
    let http = taken.and_then(|taken| taken.http.take());
    let http = rest::bind(&settings.control, http)?;
    Ok((listeners, logins, http))
}

/// Returns the facts for people.
fn facts(
    (listen, aead, servers): (ListenAddresses, String, ServerNames),
    reverse: ReverseForwards,
    proxy: Option<&OpenProxy>,
) -> ProcessFacts {
    ProcessFacts {
        listen,
        aead,
        servers,
        reverse,
        outbound_proxy: proxy.map(ToString::to_string),
        ..ProcessFacts::default()
    }
}

/// Returns the servers that all workers share.
fn shared_servers(
    role: &ClientRole,
    names: &ServerNames,
    transport: &TransportSettings,
) -> Arc<Servers> {
    let at_first: Vec<_> = role.servers.iter().map(|server| server.place).collect();
    let bonds = !role.bond_ttl.is_zero();
    let chooses = transport.carrier == CarrierChoice::Auto;
    let servers = Servers::new(&at_first, names.clone(), bonds);
    Arc::new(servers.choosing_carriers(chooses))
}

/// Opens the socket for the next hand-over, or continues that of the old process. Returns it, the flows that this process
/// continues, and the last step of taking them.
fn hand_over_later(
    settings: &ClientSettings,
    taken: Option<TakenState>,
    http: Option<&rest::BoundListener>,
    state: &Arc<ClientState>,
) -> (Option<HandoverPort>, TakenFlows, Option<Commitment>) {
    let (port, flows, commitment) = match taken {
        Some(taken) => (taken.port, taken.flows, Some(taken.commitment)),
        None => (None, TakenFlows::default(), None),
    };
    let offered = Offered {
        program: settings.control.program,
        http: http.and_then(rest::BoundListener::to_pass_on),
        of_side: OfferedBySide::Client(state.clone()),
    };
    // Flows of a device belong to its network stack.
    let directory = settings
        .state_dir
        .as_deref()
        .filter(|_| settings.tun.is_none());
    let is_default = settings.state_dir_is_default;
    let handover =
        directory.and_then(|directory| HandoverPort::open((directory, is_default), port, offered));
    (handover, flows, commitment)
}

/// Returns the reload of a client that runs with these rules.
fn reload_of(
    read: ReadConfig<RereadClient>,
    (rules, transport): (Arc<ClientRules>, TransportSettings),
    shared: tls::SharedConfig,
    running: RunningClient,
) -> Reload {
    let load = reload::source::of_client(read, running.state.clone(), shared);
    let source = ReloadSource::new(load, Rules::Client(rules), transport);
    Reload::new(source, Some(running))
}

/// Returns the part of each worker.
fn role(plan: &ClientPlan, servers: Vec<ServerToDial>) -> ClientRole {
    ClientRole {
        servers,
        connections: plan.connections,
        joiner: None,
        // A reload may add the first reverse forward.
        reverse: !plan.settings.reverse.is_empty() || plan.read_again.is_some(),
        wait_timeout: WAIT_TIMEOUT,
        bond_ttl: plan.settings.transport.bond_ttl.unwrap_or(BOND_TTL_MAX),
        compat_streams: COMPAT_STREAMS,
        surroundings: Surroundings::default(),
    }
}

/// Warns of files with secrets that other users may read.
fn warn_of_wide_files(settings: &ClientSettings) {
    for server in settings.servers() {
        identity::warn_of_wide(server.identity.psk_file.as_deref());
    }
    identity::warn_of_wide(settings.proxy_users.as_deref());
    if let Some(ProxyLogin::File(path)) = settings.outbound_proxy.as_ref().map(|it| &it.login) {
        identity::warn_of_wide([&**path]);
    }
}

/// Logs the risks of these settings, and the outbound proxy.
fn log_beginning(settings: &ClientSettings, proxy: Option<&OpenProxy>) {
    if let Some(proxy) = proxy {
        proxy.announce();
    }
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
