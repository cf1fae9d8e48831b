//! Thousands of strangers that begin a handshake and never finish it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quictun_sim::engine::Engine;
use quictun_sim::{Dial, HostId, Network, Script, Seed, Write, config};
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{ClientConfig, ConnectionId, Dir, Endpoint, EndpointConfig};

use crate::guests::Guests as _;
use crate::world::{MS, SECOND, World, wire};

/// Sends the first flights of clients that never answer, each from a different address.
struct Strangers {
    endpoint: Endpoint,
    config: ClientConfig,
    server: SocketAddr,
    next: u32,
}

impl Strangers {
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

    fn knock(&mut self, network: &mut Network, server: HostId) {
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
fn flood(count: u32, retry_above: usize) -> World {
    let mut server = config::server(1);
    server.role.max_handshakes = 128;
    server.role.retry_above = retry_above;
    let mut world = World::with(
        Seed::fixed(1),
        config::client(1),
        server,
        wire(20 * MS),
        wire(20 * MS),
    );
    let host = world.server;
    world
        .network
        .host(host)
        .serve("echo", Dial::connects(), Script::echo());
    let mut strangers = Strangers::new(&world.network, host);
    let nobody = Err("not yet".to_owned());
    world
        .network
        .host(world.client)
        .set_resolver(nobody, SECOND / 2);
    let address = world.network.address(host);
    world
        .network
        .host(world.client)
        .set_resolver(Ok(vec![address]), SECOND / 2);
    let app = world.network.open(
        world.client,
        "echo",
        Script::echoed(1).write([Write::Send(100), Write::Finish]),
    );
    let mut most = 0;
    for _ in 0..1000 {
        for _ in 0..count / 1000 {
            strangers.knock(&mut world.network, host);
        }
        world.network.run_for(MS);
        most = most.max(world.network.host(host).engine().connection_reports().len());
    }
    assert!(most <= 128 + 2, "{most} connections at once");
    let outcome = world.network.outcome(app);
    assert!(outcome.is_clean(), "{outcome:?}");
    let after = outcome.first_byte_after().expect("an answer");
    // The name look-up, possibly a Retry, the handshake, and the answer.
    assert!(after <= SECOND / 2 + 65 * MS, "{after:?}");
    world
}

// PROTOCOL QUIC-3, LIMIT-1.
#[test]
fn a_flood_that_names_a_worker_begins_few_handshakes_there() {
    let mut world = World::new(Seed::fixed(1), config::NATIVE, wire(20 * MS));
    world.connect();
    let server = world.server;
    let begun = |world: &mut World, mut strangers: Strangers| {
        for _ in 0..100 {
            strangers.knock(&mut world.network, server);
            world.network.run_for(MS);
        }
        let begun = world.network.host(server).engine();
        let begun = begun.connection_reports().len();
        world.network.run_for(30 * SECOND);
        begun
    };
    let routed = Strangers::routed(&world.network, server);
    assert_eq!(begun(&mut world, routed), 1 + 16);
    let plain = Strangers::new(&world.network, server);
    assert_eq!(begun(&mut world, plain), 1 + 64);
}

// PROTOCOL QUIC-3, LIMIT-1.
#[test]
fn half_open_handshakes_are_bounded_and_a_legitimate_client_gets_in() {
    let mut world = flood(10_000, 64);
    world.network.run_for(30 * SECOND);
    let left = world
        .network
        .host(world.server)
        .engine()
        .connection_reports()
        .len();
    assert_eq!(left, 1, "the strangers must be forgotten");
}

#[test]
fn without_retry_the_oldest_gives_way() {
    // This holds as long as a handshake is faster than the strangers that fill the table.
    let mut world = flood(2000, usize::MAX);
    world.network.run_for(30 * SECOND);
    let left = world
        .network
        .host(world.server)
        .engine()
        .connection_reports()
        .len();
    assert_eq!(left, 1, "the strangers must be forgotten");
}

#[test]
fn connections_beyond_the_limit_are_refused_and_served_when_there_is_room() {
    let mut server = config::server(1);
    server.role.max_connections = 2;
    let mut world = World::with(
        Seed::fixed(1),
        config::client(1),
        server,
        wire(20 * MS),
        wire(20 * MS),
    );
    let host = world.server;
    let clients: Vec<HostId> = (2..5)
        .map(|seed| {
            let client = world.network.add_client("more", config::client(seed), host);
            world
                .network
                .link(client, host, wire(20 * MS), wire(20 * MS));
            client
        })
        .collect();
    world.network.run_for(10 * SECOND);
    let connected = |world: &mut World| {
        let up = clients
            .iter()
            .filter(|&&client| world.network.host(client).engine().is_connected());
        up.count() + usize::from(world.network.host(world.client).engine().is_connected())
    };
    assert_eq!(connected(&mut world), 2);
    let first = world.client;
    world.network.command(first, Engine::close);
    world.network.run_for(6 * SECOND);
    assert_eq!(connected(&mut world), 2, "another client takes the place");
}

// PROTOCOL QUIC-2, LIMIT-1.
#[test]
fn a_client_gets_no_more_streams_than_the_limit() {
    for most in [10, 1000] {
        let mut server = config::server(1);
        server.transport.max_flows = most;
        let link = wire(20 * MS);
        let mut world = World::with(
            Seed::fixed(1),
            config::client(1),
            server,
            link.clone(),
            link,
        );
        let bare = world.network.add_bare("bare", config::NATIVE, world.server);
        world
            .network
            .link(bare, world.server, wire(20 * MS), wire(20 * MS));
        world.network.run_for(SECOND);
        let mut opened = 0;
        for _ in 0..30 {
            while let Some(stream) = world
                .network
                .bare(bare)
                .connection()
                .streams()
                .open(Dir::Bi)
            {
                world.network.bare(bare).write(stream, b"x");
                opened += 1;
            }
            world.network.run_for(SECOND / 10);
        }
        assert_eq!(opened, most);
        let connection = world.network.bare(bare).connection();
        assert_eq!(connection.streams().open(Dir::Uni), None);
    }
}

#[test]
fn an_address_that_sends_rubbish_is_ignored() {
    let mut world = World::new(Seed::fixed(1), config::NATIVE, wire(20 * MS));
    world.connect();
    let mut random = world.network.seed().random(9);
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
            world.server
        } else {
            world.client
        };
        let from = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(172, 16, 0, 1)), 4000);
        world.network.inject(from, to, bytes);
        world.network.run_for(MS);
    }
    world
        .network
        .host(world.server)
        .serve("echo", Dial::connects(), Script::echo());
    let script = Script::echoed(1).write([Write::Send(100), Write::Finish]);
    let app = world.network.open(world.client, "echo", script);
    world.network.run_for(SECOND);
    assert!(world.network.outcome(app).is_clean());
    let reports = world
        .network
        .host(world.server)
        .engine()
        .connection_reports();
    assert_eq!(reports.len(), 1);
}

#[test]
fn half_open_handshakes_do_not_take_the_places_of_a_small_server() {
    let mut server = config::server(1);
    server.role.max_connections = 20;
    let link = wire(20 * MS);
    let mut world = World::with(
        Seed::fixed(1),
        config::client(1),
        server,
        link.clone(),
        link,
    );
    let host = world.server;
    let nobody = Err("not yet".to_owned());
    world
        .network
        .host(world.client)
        .set_resolver(nobody, SECOND);
    let address = world.network.address(host);
    world
        .network
        .host(world.client)
        .set_resolver(Ok(vec![address]), SECOND);
    let mut strangers = Strangers::new(&world.network, host);
    for _ in 0..2000 {
        strangers.knock(&mut world.network, host);
        world.network.run_for(MS);
        let open = world.network.host(host).engine().connection_reports().len();
        assert!(open <= 20, "{open} connections");
    }
    assert!(world.network.host(world.client).engine().is_connected());
}
