//! Tests of a client that asks for listeners again and again.

use std::net::SocketAddr;

use quictun_engine::report::Side;
use quictun_engine::{Engine, EngineConfig, ServerEngine, ServerRole, Transport};
use quictun_io::poller::Poller;
use quictun_io::udp_port::{self, UdpPort};
use quictun_trust::access::Policy;
use quictun_trust::identity;
use quictun_trust::settings::{Access, ClientLimits, ClientProof, NamedClient};
use quictun_trust::shares::CommonShares;
use quictun_trust::tls;
use quictun_wire::listening::{HOLDER_LEN, Listen};
use tokio::sync::mpsc::Receiver;

use super::*;
use crate::allowances::Allowances;
use crate::app_socket::AppSocket;
use crate::carrier_listeners::CarrierListeners;
use crate::dial::{DialMemory, Dials};
use crate::flow_records::FlowRecords;
use crate::left_flows::{LeftFlows, LeftTable};
use crate::line_counter::count_lines;
use crate::listener::AcceptOutcome;
use crate::login_delays::LoginDelays;
use crate::lookups::{self, Lookups};
use crate::moves::Moves;
use crate::requests::{REQUESTS, Request, Requester};
use crate::reverse::bind::{for_client, remove_for_client};
use crate::reverse::holders::ListenOutcome;
use crate::server_worker::{
    DatagramPlaces, Headers, HeldRequests, LimitState, ListenerSources, TakenOver,
};
use crate::settings::TokenParser;
use quictun_control::flow_log::FlowLog;
use quictun_control::line_budget::LineBudget;
use quictun_control::settings::Phrases;
use quictun_trust::descriptors::{self, Descriptors};

/// Number of lines that one client may cause at once (PROTOCOL section 8).
const BURST: usize = 100;

const CONNECTION: ConnectionId = ConnectionId(1);

/// A worker, and its requests to the control plane. Its client may listen on any port of 127.0.0.1.
struct Fixture {
    worker: ServerWorker,
    engine: ServerEngine<AppSocket>,
    poller: Poller,
    udp: UdpPort,
    requests: Receiver<(usize, Request)>,
    now: Instant,
}

impl Fixture {
    fn new() -> Self {
        let (control, requests) = tokio::sync::mpsc::channel(REQUESTS);
        let control = Requester::new(0, control);
        let (joins, _) = tokio::sync::mpsc::channel(1);
        let identity = identity::ephemeral().expect("a key");
        let client = NamedClient {
            name: "laptop".to_owned(),
            proofs: vec![ClientProof::Pin(identity.pin)],
            allow: Vec::new(),
            listen: ["127.0.0.1:*", "unix:/*"]
                .map(|rule| rule.parse().expect("a rule"))
                .into(),
            limits: ClientLimits::default(),
            names_sources: false,
        };
        let (clients, ca) = (vec![client], None);
        let policy = Policy::new(&Access::Named { clients, ca }).expect("a policy");
        let peer = policy.identify(Some(&identity.chain));
        let lines = LineBudget::default();
        let log = FlowLog::new(Side::Server, 0, Phrases::Own);
        let holders = Holders::new(CommonShares::new(1000, 4));
        let grace = Duration::from_secs(1);
        let now = Instant::now();
        let worker = ServerWorker {
            taken: TakenOver::default(),
            index: 0,
            policy: Arc::new(policy),
            token_parser: TokenParser::Cleartext,
            dial_timeout: Duration::from_secs(1),
            control,
            joins,
            clients: None,
            dials: Dials::new(descriptors::places(1024), DialMemory::default()),
            datagram_places: DatagramPlaces::default(),
            listener_sources: ListenerSources::default(),
            source_places: DatagramPlaces::default(),
            peers: HashMap::from([(CONNECTION, peer)]),
            moves: Moves::default(),
            lookups: Lookups::new(lookups::places()),
            descriptors: Descriptors::new(CommonShares::new(16, 1)),
            flows: FlowRecords::new(log, lines.clone(), TokenParser::Cleartext),
            lines,
            listeners: Listeners::new(0, holders, grace, Vec::new()),
            left: LeftFlows::new(LeftTable::default(), 0),
            allowances: Allowances::new(now),
            limit_state: LimitState::default(),
            headers: Headers::default(),
            carriers: CarrierListeners::new(Arc::default(), Vec::new(), CommonShares::new(0, 1)),
            held: HeldRequests::new(LoginDelays::default()),
        };
        let socket = udp_port::bind(SocketAddr::from(([127, 0, 0, 1], 0)), false);
        Self {
            worker,
            engine: engine(&identity),
            poller: Poller::new().expect("a poller"),
            udp: UdpPort::new(socket.expect("a port"), 1 << 20, true).expect("options"),
            requests,
            now,
        }
    }

    fn with_worker(&mut self, act: impl FnOnce(&mut ServerWorker, &mut ServerContext<'_>)) {
        let mut cx = ServerContext {
            now: self.now,
            engine: &mut self.engine,
            poller: &self.poller,
            udp: &self.udp,
        };
        act(&mut self.worker, &mut cx);
    }

    /// Lets the client ask for a listener. Another `holder` takes an existing listener over.
    fn listen(&mut self, id: ListenId, holder: u8, address: &str) {
        let listen = Listen {
            id,
            wait: false,
            holder: [holder; HOLDER_LEN],
            address: address.to_owned(),
        };
        let remote = SocketAddr::from(([192, 0, 2, 1], 7500));
        self.with_worker(|worker, cx| worker.handle_listen(cx, CONNECTION, remote, &listen));
    }

    /// Makes the listeners that the worker has asked for, and removes the socket files that it wants removed.
    fn bind(&mut self) {
        while let Ok((_, request)) = self.requests.try_recv() {
            match request {
                Request::Listen {
                    number, address, ..
                } => {
                    let result = for_client(&address, None).map_err(|_| ListenCode::InUse);
                    self.with_worker(|worker, cx| worker.handle_bound(cx, number, result));
                }
                Request::RemoveSocket(address) => {
                    remove_for_client(&address).expect("the listener is closed");
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// Returns the only listener.
    fn own(&self) -> &OwnListener {
        let (_, own) = self.worker.listeners.own.iter().next().expect("made");
        own
    }

    fn unlisten(&mut self, id: ListenId) {
        self.with_worker(|worker, cx| worker.handle_unlisten(cx, CONNECTION, &[id]));
    }
}

fn engine(identity: &identity::Identity) -> ServerEngine<AppSocket> {
    let crypto = tls::server_config(identity, &tls::SharedConfig::default());
    let role = ServerRole {
        crypto: crypto.expect("a configuration"),
        max_connections: 10,
        max_handshakes: 10,
        retry_above: 10,
        always_retry: false,
        https_proxy: false,
        identify: true,
        open_timeout: Duration::from_secs(10),
        bond_ttl: Duration::ZERO,
    };
    let config = EngineConfig {
        role,
        transport: Transport::new(Arc::new(|_| 1200)),
        worker: 0,
        seed: [0; 32],
        reset_key: [0; 32],
    };
    Engine::server(config).expect("an engine")
}

// PROTOCOL LOG-1.
#[test]
fn a_client_that_asks_for_an_occupied_address_again_and_again_causes_few_lines() {
    let mut fixture = Fixture::new();
    let occupied = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("tcp:{}", occupied.local_addr().expect("it is bound"));
    let lines = count_lines(|| {
        for id in 0..3 * BURST as u64 {
            fixture.listen(id, 1, &address);
            fixture.bind();
        }
    });
    assert_eq!(lines, BURST);
}

// PROTOCOL LOG-1.
#[test]
fn a_client_that_listens_and_withdraws_again_and_again_causes_few_lines() {
    let mut fixture = Fixture::new();
    let lines = count_lines(|| {
        for id in 0..BURST as u64 {
            fixture.listen(id, 1, "tcp:127.0.0.1:0");
            fixture.bind();
            fixture.unlisten(id);
        }
    });
    assert_eq!(lines, BURST, "two for each listener, up to the budget");
}

// PROTOCOL LOG-1.
#[test]
fn a_listener_that_changes_hands_again_and_again_causes_few_lines() {
    let mut fixture = Fixture::new();
    let lines = count_lines(|| {
        fixture.listen(1, 0, "tcp:127.0.0.1:0");
        fixture.bind();
        let bound = fixture.own().bound.to_string();
        for holder in 1..=u8::MAX {
            fixture.listen(1, holder, &bound);
        }
    });
    assert_eq!(lines, BURST);
}

// PROTOCOL REVERSE-6.
#[test]
fn a_connection_made_while_the_client_is_silent_moves_with_the_listener() {
    let mut fixture = Fixture::new();
    fixture.listen(1, 1, "tcp:127.0.0.1:0");
    fixture.bind();
    let ListenAddress::Tcp(at) = fixture.own().bound else {
        panic!("TCP was asked for");
    };
    let (number, address) = (fixture.own().number, fixture.own().asked.clone());
    let _application = std::net::TcpStream::connect(at).expect("it listens");
    // The engine of this test has no connection, so the client takes no flow.
    let key = fixture.worker.listeners.keys_where(|_| true)[0];
    fixture.with_worker(|worker, cx| worker.accept(cx, key));
    assert_eq!(fixture.own().state, State::Resting(fixture.now + REST));
    // The client returns on a connection of another worker.
    let listen = Listen {
        id: 1,
        wait: false,
        holder: [1; HOLDER_LEN],
        address: address.to_string(),
    };
    let location = HolderLocation {
        worker: 1,
        connection: ConnectionId(2),
    };
    let holders = fixture.worker.listeners.holders.clone();
    let answer = holders.ask(&"laptop".into(), &listen, &address, location);
    let ListenOutcome::Exists(moved) = answer else {
        panic!("{answer:?}");
    };
    fixture.with_worker(|worker, cx| worker.handle_listener_taken(cx, (number, 1, false)));
    assert_eq!(fixture.worker.listeners.own.len(), 0);
    let accepted = moved.listener.accept();
    assert!(
        matches!(accepted, AcceptOutcome::Connection(..)),
        "{accepted:?}"
    );
}

// PROTOCOL REVERSE-11.
#[test]
fn a_connection_made_while_the_client_is_silent_waits_until_it_takes_flows() {
    let mut fixture = Fixture::new();
    fixture.listen(1, 1, "tcp:127.0.0.1:0");
    fixture.bind();
    let ListenAddress::Tcp(at) = fixture.own().bound else {
        panic!("TCP was asked for");
    };
    let _application = std::net::TcpStream::connect(at).expect("it listens");
    let key = fixture.worker.listeners.keys_where(|_| true)[0];
    fixture.with_worker(|worker, cx| worker.accept(cx, key));
    fixture.listen(1, 1, "tcp:127.0.0.1:0");
    for _ in 0..3 {
        let next = fixture.worker.listeners.next_timeout();
        fixture.now = next.expect("the worker asks again whether the client takes flows");
        fixture.with_worker(ServerWorker::handle_listener_timeout);
    }
    let accepted = fixture.own().listener.accept();
    assert!(
        matches!(accepted, AcceptOutcome::Connection(..)),
        "{accepted:?}"
    );
}

// PROTOCOL REVERSE-12.
#[test]
fn a_listener_is_closed_if_a_reload_forbids_it_while_it_is_being_made() {
    let mut fixture = Fixture::new();
    fixture.listen(1, 1, "tcp:127.0.0.1:0");
    let (clients, ca) = (Vec::new(), None);
    let policy = Policy::new(&Access::Named { clients, ca }).expect("a policy");
    fixture.worker.policy = Arc::new(policy);
    fixture.bind();
    assert_eq!(fixture.worker.listeners.own.len(), 0);
}

// Otherwise a client fills the directory that its rule names.
#[test]
fn listeners_that_are_withdrawn_leave_no_socket_files() {
    let mut fixture = Fixture::new();
    let directory = tempfile::tempdir().expect("a directory");
    let files = || {
        std::fs::read_dir(directory.path())
            .expect("readable")
            .count()
    };
    for id in 0..20 {
        let address = format!("unix:{}/{id}", directory.path().display());
        fixture.listen(id, 1, &address);
        if id % 2 == 0 {
            fixture.bind();
            assert_eq!(files(), 1);
        }
        // Otherwise the listener is being made when the client withdraws.
        fixture.unlisten(id);
        fixture.bind();
    }
    assert_eq!(files(), 0);
}
