use std::io::Write as _;
use std::net::TcpStream;

use quictun_engine::{Engine, EngineConfig, ServerEngine, ServerRole, Transport};
use quictun_io::poller::{Poller, WaitPlan};
use quictun_io::udp_port::{self, UdpPort};
use quictun_trust::{identity, tls};

use super::*;

/// Places for connections of strangers. A single address gets half of them.
const STRANGERS: usize = 4;

/// A worker with one listener.
struct Fixture {
    listeners: CarrierListeners,
    strangers: CommonShares,
    engine: ServerEngine<AppSocket>,
    poller: Poller,
    udp: UdpPort,
    now: Instant,
    address: SocketAddr,
}

impl Fixture {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("an option");
        let address = listener.local_addr().expect("bound");
        let strangers = CommonShares::new(STRANGERS, 1);
        let socket = udp_port::bind(SocketAddr::from(([127, 0, 0, 1], 0)), false);
        let mut fixture = Self {
            listeners: CarrierListeners::new([listener].into(), Vec::new(), strangers.clone()),
            strangers,
            engine: engine(),
            poller: Poller::new().expect("a poller"),
            udp: UdpPort::new(socket.expect("a port"), 1 << 20, true).expect("options"),
            now: Instant::now(),
            address,
        };
        fixture.with(|listeners, cx| listeners.start(cx).expect("a new listener"));
        fixture
    }

    fn with<T>(
        &mut self,
        act: impl FnOnce(&mut CarrierListeners, &mut ServerContext<'_>) -> T,
    ) -> T {
        let mut cx = ServerContext {
            now: self.now,
            engine: &mut self.engine,
            poller: &self.poller,
            udp: &self.udp,
        };
        act(&mut self.listeners, &mut cx)
    }

    /// Returns the keys of what is ready, after `limit` at the latest.
    fn ready(&mut self, limit: Duration) -> Vec<Key> {
        let mut ready = Vec::new();
        let until = Some(Instant::now() + limit);
        let waited = self.poller.wait(until, WaitPlan::default(), &mut ready);
        waited.expect("a poller");
        ready.iter().map(|event| event.key).collect()
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).expect("the system accepts it")
    }

    /// Lets a client connect, and accepts its connection.
    fn accept(&mut self) -> (TcpStream, ConnectionId) {
        let mut client = self.connect();
        assert_eq!(self.ready(SOON), [Key::CarrierListener(0)]);
        self.with(|listeners, cx| listeners.accept(cx, 0));
        client.write_all(&[22]).expect("room");
        loop {
            let carrier = |key: &Key| match key {
                Key::Carrier(connection) => Some(*connection),
                _ => None,
            };
            // Its first event may be that it has room.
            if let Some(connection) = self.ready(SOON).iter().find_map(carrier) {
                return (client, connection);
            }
        }
    }
}

const SOON: Duration = Duration::from_secs(20);
const BRIEF: Duration = Duration::from_millis(20);

fn here() -> Holder {
    Holder::at([127, 0, 0, 1].into())
}

fn engine() -> ServerEngine<AppSocket> {
    let identity = identity::ephemeral().expect("a key");
    let crypto = tls::server_config(&identity, &tls::SharedConfig::default());
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

#[test]
fn a_connection_has_a_place_of_strangers_until_its_client_is_admitted() {
    let mut fixture = Fixture::new();
    let (_one, connection) = fixture.accept();
    let (_other, other) = fixture.accept();
    assert!(
        fixture.strangers.place(&here()).is_none(),
        "two have half of the places"
    );
    let admitted = CommonShares::new(1, 4);
    let take = || admitted.place(&here());
    assert!(fixture.with(|_, cx| CarrierListeners::admit(cx, connection, take)));
    assert!(
        fixture.strangers.place(&here()).is_some(),
        "one place is free again"
    );
    let take = || admitted.place(&here());
    assert!(!fixture.with(|_, cx| CarrierListeners::admit(cx, other, take)));
    let now = fixture.now;
    drop(fixture.engine.take_carrier(now, connection));
    assert!(
        admitted.place(&here()).is_some(),
        "it ends with the connection"
    );
}

#[test]
fn the_listeners_rest_while_descriptors_are_short() {
    let mut fixture = Fixture::new();
    let start = fixture.now;
    fixture.with(|listeners, cx| listeners.rest(cx));
    let _client = fixture.connect();
    assert_eq!(
        fixture.ready(BRIEF),
        [],
        "a connection waits, and the worker sleeps"
    );
    assert_eq!(fixture.listeners.next_timeout(), Some(start + REST));
    fixture.now = start + REST / 2;
    fixture.with(|listeners, cx| listeners.handle_timeout(cx));
    assert_eq!(fixture.ready(BRIEF), []);
    fixture.now = start + REST;
    fixture.with(|listeners, cx| listeners.handle_timeout(cx));
    assert_eq!(fixture.ready(SOON), [Key::CarrierListener(0)]);
    assert_eq!(fixture.listeners.next_timeout(), None);
    // A server that drains accepts no more.
    fixture.with(|listeners, cx| listeners.stop(cx));
    fixture.with(|listeners, cx| listeners.rest(cx));
    assert_eq!(fixture.listeners.next_timeout(), None);
}
