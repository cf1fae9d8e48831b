//! Thousands of strangers that begin a handshake and never finish it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quictun_sim::{HostEngine, HostId, Network, Script, Seed, SimulatedDial, WriteStep, config};
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{ClientConfig, ConnectionId, Dir, Endpoint, EndpointConfig};

use crate::guests::Guests as _;
use crate::tunnel_pair::{MS, SECOND, TunnelPair, wire};

/// Sends the first flights of clients that never answer, each from a different address.
struct SilentClients {
    endpoint: Endpoint,
    config: ClientConfig,
    server: SocketAddr,
    next: u32,
}

impl SilentClients {
    fn new(network: &Network, server: HostId) -> Self {
        let tls = rustls::ClientConfig::clone(&config::client_tls(config::NATIVE));
        let crypto = QuicClientConfig::try_from(tls).expect("TLS for QUIC");
        Self {
            endpoint: Endpoint::new(Arc::new(EndpointConfig::default()), None, true, None),
            config: ClientConfig::new(Arc::new(crypto)),
            server: network.address(server),
            next: 0,
        }
    }

    /// Creates strangers whose connection ids name the server's first worker.
    fn routed(network: &Network, server: HostId) -> Self {
        let mut strangers = Self::new(network, server);
        let count = AtomicU64::new(0);
        strangers.config.initial_dst_cid_provider(Arc::new(move || {
            let mut id = [0; 18];
            let number = count.fetch_add(1, Ordering::Relaxed);
            id[10..].copy_from_slice(&number.to_be_bytes());
            ConnectionId::new(&id)
        }));
        strangers
    }

    fn send_first_flight(&mut self, network: &mut Network, server: HostId) {
        self.next += 1;
        let [_, high, middle, low] = self.next.to_be_bytes();
        let from = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(172, 16 + high, middle, low)), 4000);
        let (handle, mut connection) = self
            .endpoint
            .connect(
                network.now(),
                self.config.clone(),
                self.server,
                "server.test",
            )
            .expect("a valid address");
        let mut bytes = Vec::new();
        let transmit = connection
            .poll_transmit(network.now(), 1, &mut bytes)
            .expect("a first flight");
        bytes.truncate(transmit.size);
        network.inject(from, server, bytes);
        self.endpoint
            .handle_event(handle, quinn_proto::EndpointEvent::drained());
    }
}

/// Lets `count` strangers arrive within a second. A legitimate client arrives in the middle of it.
fn flood(count: u32, retry_above: usize) -> TunnelPair {
    let mut server = config::server(1);
    server.role.max_handshakes = 128;
    server.role.retry_above = retry_above;
    let mut pair = TunnelPair::with(
        Seed::fixed(1),
        config::client(1),
        server,
        wire(20 * MS),
        wire(20 * MS),
    );
    let host = pair.server;
    pair.network
        .host(host)
        .serve("echo", SimulatedDial::connects(), Script::echo());
    let mut strangers = SilentClients::new(&pair.network, host);
    let nobody = Err("not yet".to_owned());
    pair.network
        .host(pair.client)
        .set_resolver(nobody, SECOND / 2);
    let address = pair.network.address(host);
    pair.network
        .host(pair.client)
        .set_resolver(Ok(vec![address]), SECOND / 2);
    let app = pair.network.open(
        pair.client,
        "echo",
        Script::echoed(1).write([WriteStep::Send(100), WriteStep::Finish]),
    );
    let mut most = 0;
    for _ in 0..1000 {
        for _ in 0..count / 1000 {
            strangers.send_first_flight(&mut pair.network, host);
        }
        pair.network.run_for(MS);
        most = most.max(pair.network.host(host).engine().connection_reports().len());
    }
    assert!(most <= 128 + 2, "{most} connections at once");
    let outcome = pair.network.outcome(app);
    assert!(outcome.is_clean(), "{outcome:?}");
    let after = outcome.first_byte_after().expect("an answer");
    // The name look-up, possibly a Retry, the handshake, and the answer.
    assert!(after <= SECOND / 2 + 65 * MS, "{after:?}");
    pair
}

// PROTOCOL QUIC-3, LIMIT-1.
#[test]
fn a_flood_that_names_a_worker_begins_few_handshakes_there() {
    let mut pair = TunnelPair::new(Seed::fixed(1), config::NATIVE, wire(20 * MS));
    pair.connect();
    let server = pair.server;
    let begun = |pair: &mut TunnelPair, mut strangers: SilentClients| {
        for _ in 0..100 {
            strangers.send_first_flight(&mut pair.network, server);
            pair.network.run_for(MS);
        }
        let begun = pair.network.host(server).engine();
        let begun = begun.connection_reports().len();
        pair.network.run_for(30 * SECOND);
        begun
    };
    let routed = SilentClients::routed(&pair.network, server);
    assert_eq!(begun(&mut pair, routed), 1 + 16);
    let plain = SilentClients::new(&pair.network, server);
    assert_eq!(begun(&mut pair, plain), 1 + 64);
}

// PROTOCOL QUIC-3, LIMIT-1.
#[test]
fn half_open_handshakes_are_bounded_and_a_legitimate_client_gets_in() {
    let mut pair = flood(10_000, 64);
    pair.network.run_for(30 * SECOND);
    let left = pair
        .network
        .host(pair.server)
        .engine()
        .connection_reports()
        .len();
    assert_eq!(left, 1, "the strangers must be forgotten");
}

#[test]
fn without_retry_a_new_handshake_replaces_the_oldest() {
    // This holds as long as a handshake is faster than the strangers that fill the table.
    let mut pair = flood(2000, usize::MAX);
    pair.network.run_for(30 * SECOND);
    let left = pair
        .network
        .host(pair.server)
        .engine()
        .connection_reports()
        .len();
    assert_eq!(left, 1, "the strangers must be forgotten");
}

#[test]
fn connections_beyond_the_limit_are_refused_and_served_when_there_is_room() {
    let mut server = config::server(1);
    server.role.max_connections = 2;
    let mut pair = TunnelPair::with(
        Seed::fixed(1),
        config::client(1),
        server,
        wire(20 * MS),
        wire(20 * MS),
    );
    let host = pair.server;
    let clients: Vec<HostId> = (2..5)
        .map(|seed| {
            let client = pair.network.add_client("more", config::client(seed), host);
            pair.network
                .link(client, host, wire(20 * MS), wire(20 * MS));
            client
        })
        .collect();
    pair.network.run_for(10 * SECOND);
    let connected = |pair: &mut TunnelPair| {
        let up = clients
            .iter()
            .filter(|&&client| pair.network.client(client).is_connected());
        up.count() + usize::from(pair.network.client(pair.client).is_connected())
    };
    assert_eq!(connected(&mut pair), 2);
    let first = pair.client;
    pair.network.command(first, HostEngine::close);
    pair.network.run_for(6 * SECOND);
    assert_eq!(connected(&mut pair), 2, "another client takes the place");
}

// PROTOCOL QUIC-2, LIMIT-1.
#[test]
fn a_client_gets_no_more_streams_than_the_limit() {
    for most in [10, 1000] {
        let mut server = config::server(1);
        server.transport.max_flows = most;
        let link = wire(20 * MS);
        let mut pair = TunnelPair::with(
            Seed::fixed(1),
            config::client(1),
            server,
            link.clone(),
            link,
        );
        let bare = pair.network.add_bare("bare", config::NATIVE, pair.server);
        pair.network
            .link(bare, pair.server, wire(20 * MS), wire(20 * MS));
        pair.network.run_for(SECOND);
        let mut opened = 0;
        for _ in 0..30 {
            while let Some(stream) = pair.network.bare(bare).connection().streams().open(Dir::Bi) {
                pair.network.bare(bare).write(stream, b"x");
                opened += 1;
            }
            pair.network.run_for(SECOND / 10);
        }
        assert_eq!(opened, most);
        let connection = pair.network.bare(bare).connection();
        assert_eq!(connection.streams().open(Dir::Uni), None);
    }
}

#[test]
fn an_address_that_sends_rubbish_is_ignored() {
    let mut pair = TunnelPair::new(Seed::fixed(1), config::NATIVE, wire(20 * MS));
    pair.connect();
    let mut random = pair.network.seed().random(9);
    for round in 0..3000u32 {
        let length = random.magnitude(1, 1500);
        let mut bytes: Vec<u8> = (0..length).map(|_| random.any().to_le_bytes()[0]).collect();
        if round % 3 == 0 {
            // A long header of an existing or a non-existing version.
            bytes[0] |= 0xc0;
            let version: [u8; 4] = if round % 2 == 0 {
                [0, 0, 0, 1]
            } else {
                [9, 9, 9, 9]
            };
            for (byte, value) in bytes.iter_mut().skip(1).zip(version) {
                *byte = value;
            }
        }
        let to = if round % 2 == 0 {
            pair.server
        } else {
            pair.client
        };
        let from = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(172, 16, 0, 1)), 4000);
        pair.network.inject(from, to, bytes);
        pair.network.run_for(MS);
    }
    pair.network
        .host(pair.server)
        .serve("echo", SimulatedDial::connects(), Script::echo());
    let script = Script::echoed(1).write([WriteStep::Send(100), WriteStep::Finish]);
    let app = pair.network.open(pair.client, "echo", script);
    pair.network.run_for(SECOND);
    assert!(pair.network.outcome(app).is_clean());
    let reports = pair.network.host(pair.server).engine().connection_reports();
    assert_eq!(reports.len(), 1);
}

#[test]
fn half_open_handshakes_do_not_take_the_places_of_a_small_server() {
    let mut server = config::server(1);
    server.role.max_connections = 20;
    let link = wire(20 * MS);
    let mut pair = TunnelPair::with(
        Seed::fixed(1),
        config::client(1),
        server,
        link.clone(),
        link,
    );
    let host = pair.server;
    let nobody = Err("not yet".to_owned());
    pair.network.host(pair.client).set_resolver(nobody, SECOND);
    let address = pair.network.address(host);
    pair.network
        .host(pair.client)
        .set_resolver(Ok(vec![address]), SECOND);
    let mut strangers = SilentClients::new(&pair.network, host);
    for _ in 0..2000 {
        strangers.send_first_flight(&mut pair.network, host);
        pair.network.run_for(MS);
        let open = pair.network.host(host).engine().connection_reports().len();
        assert!(open <= 20, "{open} connections");
    }
    assert!(pair.network.client(pair.client).is_connected());
}
