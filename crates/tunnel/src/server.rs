//! The server process: starts the workers, the control plane and the sockets, and runs them until the end.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, ensure};
use quictun_engine::report::Side;
use quictun_engine::{Engine, ServerRole, places_for_strangers};
use tracing::{info, warn};

use crate::allowances::Allowances;
use crate::banner::{self, ServerBanner, with_secrets};
use crate::carrier_listeners::CarrierListeners;
use crate::dial::{DialMemory, Dials};
use crate::failure::Failure;
use crate::flow_records::FlowRecords;
use crate::handover::{
    Commitment, HandoverPort, Offered, OfferedBySide, ReadUsed, TakeOver, TakenFlows, TakenState,
};
use crate::launch::{self, DataPath, Duties, Launch, ServerDuties, SideDuties, WorkerInputs};
use crate::left_flows::{LeftFlows, LeftTable};
use crate::login_delays::LoginDelays;
use crate::lookups::{self, Lookups};
use crate::memory_budget::MemoryBudget;
use crate::moves::Moves;
use crate::network_watch::NetworkWatch;
use crate::public_certificate::{self, CertificateDuty};
use crate::reload::change::Rules;
use crate::reload::server::ServerRules;
use crate::reload::source::ReloadSource;
use crate::reload::{self, ReadConfig, Reload, RereadServer};
use crate::reverse::bind;
use crate::reverse::holders::Holders;
use crate::server_sockets::ServerSockets;
use crate::server_worker::listeners::Listeners;
use crate::server_worker::{
    DatagramPlaces, Headers, HeldRequests, LimitState, ListenerSources, ServerWorker, TakenOver,
};
use crate::settings::{BOND_TTL, BOND_TTL_OPEN, ServerSettings, TokenParser, TransportSettings};
use crate::usage::UsageStore;
use crate::worker::WorkerParts;
use quictun_control::flow_log::FlowLog;
use quictun_control::line_budget::LineBudget;
use quictun_control::log::LogGuard;
use quictun_control::rest::{self, CertificateReports, ProcessFacts};
use quictun_control::settings::Phrases;
use quictun_control::systemd;
use quictun_io::udp_port::{self, UdpPort};
use quictun_trust::access::Policy;
use quictun_trust::descriptors::{Descriptors, ServerPlaces};
use quictun_trust::enrolment::Directory;
use quictun_trust::identity::{self, Identity, IdentityError};
use quictun_trust::limits::Month;
use quictun_trust::settings::{Access, Pin, ServerIdentity};
use quictun_trust::shares::CommonShares;
use quictun_trust::tls;

/// Number of handshakes in progress, over all workers, above which clients must prove their address first.
const RETRY_ABOVE: usize = 256;

/// Number of places for strangers that few descriptors leave: that of the smallest budgets.
const STRANGERS_MIN: usize = 16;

/// Time limit for a client to send the request of a stream.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs a server until a signal ends it. On SIGHUP it reads its configuration again by `read_again`, if given.
///
/// # Errors
///
/// Returns the reason why the server cannot start, with the remedy: addresses in use, unreadable keys, invalid rules.
/// Once it has started, only the failure of a worker is an error.
pub fn run(
    settings: ServerSettings,
    read_again: Option<ReadConfig<RereadServer>>,
) -> Result<(), Failure> {
    let rules = bind::KeeperRules::at_start(&settings.access);
    let load = read_again.clone().map(|read| {
        let load = reload::source::of_server(read, None, tls::SharedConfig::default());
        let rules = rules.clone();
        reload::source::reader(load, move |applied| rules.apply(applied))
    });
    let clients = clients(&settings, read_again.as_ref());
    let listen = bind::by_rules(rules);
    let reads = public_certificate::watched(&settings);
    launch::start_keeper(&settings.control, reads, load, clients, Some(listen))?;
    // Rules, secrets and authorities are checked before the server creates any file.
    let policy = Policy::new(&settings.access)?;
    check_logins(&settings, &policy)?;
    let log = launch::prepare(&settings.control)?;
    let take_over = settings.take_over.then(|| TakeOver::of_server(&settings));
    let take_over = take_over.transpose().map_err(Failure::NotTakenOver)?;
    let BoundServer { launch, template } =
        BoundServer::open(settings, policy, read_again, (log, take_over))?;
    let ended = launch.confine()?.run(move || {
        let template = template.clone();
        move |inputs| template.build(inputs)
    })?;
    ended.map_err(Failure::of_workers)
}

/// Checks that an HTTPS proxy has clients. Without them it would serve no one, or, in open mode, everyone.
fn check_logins(settings: &ServerSettings, policy: &Policy) -> Result<()> {
    ensure!(
        !settings.https_proxy || policy.names().next().is_some(),
        "--https-proxy serves clients that log in, and no client is named: allow a target by --allow, or add a [[client]] with a psk_file to the configuration file"
    );
    Ok(())
}

/// A server that has opened everything that needs its rights, and still has them.
struct BoundServer {
    launch: Launch,
    template: WorkerTemplate,
}

impl BoundServer {
    fn open(
        settings: ServerSettings,
        policy: Policy,
        read_again: Option<ReadConfig<RereadServer>>,
        (log, take_over): (LogGuard, Option<TakeOver>),
    ) -> Result<Self> {
        let identity = server_identity(&settings)?;
        let shared = launch::tls(&settings.transport)?;
        let aead = shared.suites.to_string();
        warn_of_unsafe(&settings);
        let memory = MemoryBudget::open(settings.transport.memory_budget);
        let lines = LineBudget::default();
        let clients = clients(&settings, read_again.as_ref());
        let reports = CertificateReports::default();
        let certificate =
            CertificateDuty::open(&settings, clients.as_ref(), &shared.public, &reports)?;
        // From here on, the old process waits.
        let mut taken = take_over.map(TakeOver::take).transpose()?;
        let sockets = ServerSockets::open(&settings, taken.as_mut())?;
        let (address, carriers) = (sockets.address, sockets.carriers);
        let tls = addresses_of(&carriers)?;
        let ports = open_ports(sockets.udp, &settings.transport)?;
        // The policy has to know the address of the HTTP interface before a client can ask for it.
        let http = taken.as_mut().and_then(|taken| taken.http.take());
        let http = rest::bind(&settings.control, http)?;
        let own_http = http
            .as_ref()
            .map(rest::BoundListener::as_target)
            .transpose()?;
        let policy = policy
            .with_own_http(own_http.clone())
            .with_header_targets(settings.header_targets.clone())
            .with_dial_family(settings.dial_family);
        let rules = ServerRules::new(&settings.access, policy, &identity, &shared)?;
        let rules = Arc::new(rules);
        let places = descriptor_places(&carriers);
        let allowances = Allowances::new(Instant::now());
        allowances.apply(&rules.policy);
        let usage = open_usage(clients.clone(), &allowances, taken.as_ref());
        let carriers: Arc<[TcpListener]> = carriers.into();
        let listeners = (address, carriers.clone(), http.as_ref());
        let (handover, flows, commitment) =
            hand_over_later(&settings, taken, listeners, &allowances);
        let template = WorkerTemplate {
            role: role(
                &settings.transport,
                strangers_max(memory.account().budget(), &places),
                &rules,
                settings.https_proxy,
                ports.len(),
            ),
            policy: rules.policy.clone(),
            token_parser: settings.token_parser,
            dial_timeout: settings.dial_timeout,
            phrases: settings.control.log.phrases,
            reset_key: reset_key(&identity),
            lookups: lookups::places(),
            holders: Holders::new(places.admitted.clone()),
            places,
            dial_memory: DialMemory::default(),
            lines: lines.clone(),
            left: LeftTable::default(),
            listener_grace: settings.reverse_grace,
            allowances: allowances.clone(),
            clients,
            carriers,
            taken: flows,
            delays: LoginDelays::default(),
            other_protocols: public_certificate::protocols(&settings),
        };
        let say = settings.control.banner;
        let listen = shown_addresses(address, &tls);
        let banner = banner_of(&settings, (address, &tls), identity.pin, http.is_some());
        let (workers, started_aead) = (ports.len(), aead.clone());
        // From here on only the TLS library keeps the key.
        drop(identity);
        let reload = read_again.map(|read| {
            let load = reload::source::of_server(read, own_http, shared);
            let rules = Rules::Server(rules);
            let source = ReloadSource::new(load, rules, settings.transport.clone());
            Reload::new(source, None)
        });
        let launch = Launch {
            control: settings.control,
            log,
            one_process: false,
            answers_for_others: false,
            data_path: DataPath {
                path_mtu: udp_port::path_mtu(settings.transport.max_udp_payload),
                settings: settings.transport,
                ports,
                memory,
            },
            duties: Duties {
                of_side: SideDuties::Server(Box::new(ServerDuties {
                    usage,
                    uses: Box::new(move || allowances.uses()),
                    certificate,
                })),
                handover,
                commitment,
                http,
                facts: ProcessFacts {
                    listen: listen.into(),
                    certificate: reports,
                    aead,
                    ..ProcessFacts::default()
                },
                reload,
                // Without it, an address that was outrun is tried last until the memory ends.
                network: NetworkWatch::open(Side::Server).ok(),
                lines,
                announce: Box::new(move || announce(&banner, say, workers, &started_aead)),
            },
        };
        Ok(Self { launch, template })
    }
}

fn shown_addresses(udp: SocketAddr, tls: &[SocketAddr]) -> Vec<String> {
    let tls = tls.iter().map(|address| format!("tls {address}"));
    [format!("udp {udp}")].into_iter().chain(tls).collect()
}

fn addresses_of(listeners: &[TcpListener]) -> Result<Vec<SocketAddr>> {
    let addresses = listeners.iter().map(TcpListener::local_addr);
    let addresses = addresses.collect::<io::Result<_>>();
    addresses.context("cannot read the address of a TCP listener")
}

fn open_ports(sockets: Vec<UdpSocket>, settings: &TransportSettings) -> Result<Vec<UdpPort>> {
    let ports = sockets.into_iter();
    let ports = ports.map(|socket| launch::open_udp(socket, settings));
    let ports = ports.collect::<Result<Vec<_>>>()?;
    launch::log_udp(&ports[0], settings);
    Ok(ports)
}

fn open_usage(
    clients: Option<Directory>,
    allowances: &Allowances,
    taken: Option<&TakenState>,
) -> Option<UsageStore> {
    let mut usage = UsageStore::open(allowances.clone(), clients?);
    if let Some(taken) = taken {
        usage.take_over(&taken.month, &taken.usage);
    }
    Some(usage)
}

/// Opens the socket for the next hand-over, or continues that of the old process. Returns it, the flows that this process
/// continues, and the last step of taking them.
fn hand_over_later(
    settings: &ServerSettings,
    taken: Option<TakenState>,
    (listen, tls, http): (SocketAddr, Arc<[TcpListener]>, Option<&rest::BoundListener>),
    allowances: &Allowances,
) -> (Option<HandoverPort>, TakenFlows, Option<Commitment>) {
    let used = used_by(allowances);
    let offered = Offered {
        program: settings.control.program,
        http: http.and_then(rest::BoundListener::to_pass_on),
        of_side: OfferedBySide::Server { listen, tls, used },
    };
    let (port, flows, commitment) = match taken {
        Some(taken) => (taken.port, taken.flows, Some(taken.commitment)),
        None => (None, TakenFlows::default(), None),
    };
    let state_dir = settings.clients_in.as_deref();
    let handover = state_dir.and_then(|dir| HandoverPort::open((dir, false), port, offered));
    (handover, flows, commitment)
}

fn used_by(allowances: &Allowances) -> ReadUsed {
    let allowances = allowances.clone();
    Arc::new(move || {
        let used = allowances.used().into_iter();
        let used = used.map(|(name, usage)| (name, usage.used)).collect();
        (Month::of(SystemTime::now()).to_string(), used)
    })
}

/// Returns the facts for the lines at the start.
fn banner_of(
    settings: &ServerSettings,
    (udp, tls): (SocketAddr, &[SocketAddr]),
    pin: Pin,
    has_http: bool,
) -> ServerBanner {
    ServerBanner {
        listen: udp,
        tls_port: other_port(udp, tls),
        own_address: settings.control.banner.and_then(|_| banner::own_address()),
        pin,
        access: settings.access.clone(),
        http: settings.control.httpd.clone().filter(|_| has_http),
    }
}

/// Announces that the server has started: to the service manager, and to a person by `say` or to the log.
fn announce(banner: &ServerBanner, say: Option<fn(&str)>, workers: usize, aead: &str) {
    let (address, pin) = (banner.listen, banner.pin);
    systemd::notify(&format!(
        "{}={address}\n{}={pin}",
        systemd::LISTEN,
        systemd::PIN
    ));
    if let Some(say) = say {
        return say(banner.text().trim_end());
    }
    info!(target: "quictun", { "listen address" = %address, pin = %pin, workers, aead }, "Server endpoint start up successful");
    print_client_line(banner);
}

/// Returns the port that clients have to know for TLS, if none of these TCP listeners has the port of the UDP socket.
fn other_port(udp: SocketAddr, tls: &[SocketAddr]) -> Option<u16> {
    let has_same = tls.iter().any(|tls| tls.port() == udp.port());
    let first = tls.first().map(SocketAddr::port);
    first.filter(|_| !has_same)
}

/// Returns the directory of invited clients, or `None` if none can join. Joining needs rules that can change at run
/// time.
fn clients(
    settings: &ServerSettings,
    read_again: Option<&ReadConfig<RereadServer>>,
) -> Option<Directory> {
    let state = settings.clients_in.as_deref();
    state.filter(|_| read_again.is_some()).map(Directory::of)
}

/// Returns the places for descriptors. A server without a TCP port needs none for strangers.
fn descriptor_places(carriers: &[TcpListener]) -> ServerPlaces {
    let limit = launch::descriptor_limit();
    if carriers.is_empty() {
        ServerPlaces::without_tcp(limit)
    } else {
        ServerPlaces::new(limit)
    }
}

/// Returns the number of places for strangers (PROTOCOL AUTH-6). On TCP each needs a descriptor. Half of those for
/// strangers is for connections that wait for another worker, or that end.
fn strangers_max(budget: u64, places: &ServerPlaces) -> usize {
    let most = (places.strangers_max / 2).max(STRANGERS_MIN);
    places_for_strangers(budget).min(most)
}

/// Returns each worker's share of the limits of the whole server.
fn role(
    settings: &TransportSettings,
    strangers_max: usize,
    rules: &ServerRules,
    https_proxy: bool,
    workers: usize,
) -> ServerRole {
    let known = rules.policy.identifies_clients();
    let bond_ttl = if known { BOND_TTL } else { BOND_TTL_OPEN };
    ServerRole {
        crypto: rules.crypto.clone(),
        max_connections: settings.max_connections.div_ceil(workers),
        max_handshakes: strangers_max.div_ceil(workers),
        retry_above: RETRY_ABOVE.min(strangers_max / 2).div_ceil(workers),
        always_retry: false,
        https_proxy,
        identify: known,
        open_timeout: OPEN_TIMEOUT,
        bond_ttl: settings.bond_ttl.unwrap_or(bond_ttl),
    }
}

#[derive(Clone)]
struct WorkerTemplate {
    role: ServerRole,
    policy: Arc<Policy>,
    token_parser: TokenParser,
    dial_timeout: Duration,
    phrases: Phrases,
    reset_key: [u8; 32],
    lookups: CommonShares,
    places: ServerPlaces,
    dial_memory: DialMemory,
    lines: LineBudget,
    holders: Holders,
    left: LeftTable,
    /// Time for which listeners wait for a client that does not answer.
    listener_grace: Duration,
    allowances: Allowances,
    /// The directory of invited clients, or `None` if none can join.
    clients: Option<Directory>,
    carriers: Arc<[TcpListener]>,
    taken: TakenFlows,
    delays: LoginDelays,
    /// The protocols of authorities, which handshakes over TCP select, too.
    other_protocols: Vec<Vec<u8>>,
}

impl WorkerTemplate {
    fn build(self, inputs: WorkerInputs) -> Result<WorkerParts<ServerWorker>> {
        let config = inputs.config(self.role, self.reset_key)?;
        let log = FlowLog::new(Side::Server, inputs.index, self.phrases);
        let mut worker = ServerWorker {
            index: inputs.index,
            policy: self.policy,
            token_parser: self.token_parser,
            dial_timeout: self.dial_timeout,
            control: inputs.requests.clone(),
            joins: inputs.joins.clone(),
            clients: self.clients,
            dials: Dials::new(self.places.admitted.clone(), self.dial_memory),
            datagram_places: DatagramPlaces::default(),
            listener_sources: ListenerSources::default(),
            source_places: DatagramPlaces::default(),
            peers: HashMap::new(),
            moves: Moves::default(),
            lookups: Lookups::new(self.lookups),
            descriptors: Descriptors::new(self.places.admitted),
            flows: FlowRecords::new(log, self.lines.clone(), self.token_parser),
            lines: self.lines,
            listeners: Listeners::new(
                inputs.index,
                self.holders,
                self.listener_grace,
                inputs.siblings.clone(),
            ),
            left: LeftFlows::new(self.left, inputs.index),
            allowances: self.allowances,
            limit_state: LimitState::default(),
            headers: Headers::default(),
            carriers: CarrierListeners::new(
                self.carriers,
                inputs.siblings.clone(),
                self.places.strangers,
            ),
            held: HeldRequests::new(self.delays),
            taken: TakenOver::default(),
        };
        let mut engine = Engine::server(config)?;
        let taken = self.taken.take(inputs.index, inputs.siblings.len());
        worker.take_over(&mut engine, Instant::now(), taken);
        engine.set_other_protocols(self.other_protocols);
        Ok(inputs.parts(engine, worker))
    }
}

/// Returns the server's key: given, or made on the first run.
fn server_identity(settings: &ServerSettings) -> Result<Identity> {
    let is_open = matches!(settings.access, Access::Open { .. });
    let identity = match &settings.identity {
        ServerIdentity::Files(files) => identity::load_files(files)?,
        ServerIdentity::State(dir) => match identity::load_or_generate(dir, "server") {
            Ok((identity, made)) => {
                if made && settings.control.banner.is_none() {
                    info!(target: "quictun", directory = %dir.display(), pin = %identity.pin, "first run: the server's key was made");
                }
                identity
            }
            Err(error) if error.is_unusable_directory() && is_open => {
                let cause = quictun_trust::error_chain(&error);
                warn!(target: "quictun", cause, "the server creates a new key at every start, so it cannot be pinned: give --key-file and --cert-file, or a writable state directory");
                identity::ephemeral()?
            }
            Err(error) => {
                let kept = matches!(error, IdentityError::Complete(..));
                let unusable = kept || error.is_unusable_directory();
                let error = anyhow::Error::from(error);
                return Err(if unusable {
                    error.context(format!("--state-dir {}", dir.display()))
                } else {
                    error
                });
            }
        },
    };
    if let Some(warning) = &identity.warning {
        warn!(target: "quictun", "{warning}");
    }
    if let ServerIdentity::State(dir) = &settings.identity {
        identity::warn_of_wide([dir.as_path()]);
    }
    let secrets = with_secrets(settings.access.clients());
    identity::warn_of_wide(secrets.map(|(_, path)| path));
    Ok(identity)
}

/// Derives the key of stateless reset tokens from the server's key: it must survive a restart, and change with that
/// key.
fn reset_key(identity: &Identity) -> [u8; 32] {
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, identity.key.secret_der());
    let tag = aws_lc_rs::hmac::sign(&key, b"quictun stateless reset");
    let mut bytes = [0; 32];
    bytes.copy_from_slice(tag.as_ref());
    bytes
}

fn warn_of_unsafe(settings: &ServerSettings) {
    if let Access::Open { ca: None, .. } = &settings.access {
        warn!(target: "quictun", "UNSAFE: anyone who reaches this port may connect to any TCP target from here; ask for client certificates with --verify-remote-endpoint --ca-file FILE, or name clients and targets with `quictun server`");
    }
    launch::warn_of_key_log(&settings.transport);
    if let Access::Named { clients, .. } = &settings.access
        && clients
            .iter()
            .all(|client| client.allow.is_empty() && client.listen.is_empty())
    {
        warn!(target: "quictun", "no client may reach any target: invite one with `quictun invite NAME --allow HOST:PORT`, or allow some with --allow HOST:PORT, or [[client]] entries in the configuration file");
    }
}

/// Logs the command line for the client, for each secret in the rules.
fn print_client_line(banner: &ServerBanner) {
    let (port, pin) = (banner.listen.port(), banner.pin);
    let tls_port = banner.tls_port.map(|port| format!(" --tls-port {port}"));
    let tls_port = tls_port.unwrap_or_default();
    for (_, path) in with_secrets(banner.access.clients()) {
        let name = path.file_name().map_or(Path::new("client.psk"), Path::new);
        info!(
            target: "quictun",
            "on the client, after copying {} there: quictun client --server THIS-HOST:{port}{tls_port} --pin {} --psk-file {} -L 127.0.0.1:PORT=TARGET",
            path.display(),
            pin,
            name.display(),
        );
    }
}
