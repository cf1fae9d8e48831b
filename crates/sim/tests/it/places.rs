//! Places for connections: a client that takes all of them leaves some for others (PROTOCOL LIMIT-2, LIMIT-4).

use quictun_sim::engine::{
    CarrierChoice, EngineConfig, EngineEvent, Event, ServerEvent, ServerRole,
};
use quictun_sim::{AppId, HostId, Network, Script, Seed, SimulatedDial, WriteStep, config};
use quictun_wire::bond::BondRequest;
use quictun_wire::control::Frame;
use quinn_proto::Dir;

use crate::carriers::configs;
use crate::guests::Guests as _;
use crate::tunnel_pair::{MS, SECOND, TunnelPair, wire};

/// Returns a server with this many places, and a client that wants `connections` of them and has had 5 s to take them.
fn pair(server: EngineConfig<ServerRole>, connections: usize) -> TunnelPair {
    let mut client = config::client_speaking(config::NATIVE, 1);
    client.role.connections = connections;
    client.role.servers[0].prover = Some(std::sync::Arc::new(|_| config::PROOF));
    let link = wire(20 * MS);
    let mut pair = TunnelPair::with(Seed::fixed(1), client, server, link.clone(), link);
    let host = pair.network.host(pair.server);
    host.serve("echo", SimulatedDial::connects(), Script::echo());
    pair.connect();
    pair.network.run_for(4 * SECOND);
    pair
}

fn places(most: usize) -> EngineConfig<ServerRole> {
    let mut server = config::server(1);
    server.role.max_connections = most;
    server
}

fn newcomer(pair: &mut TunnelPair, seed: u64) -> HostId {
    let client = config::client_speaking(config::NATIVE, seed);
    let host = pair.network.add_client("newcomer", client, pair.server);
    let link = wire(20 * MS);
    pair.network.link(host, pair.server, link.clone(), link);
    host
}

fn echo(pair: &mut TunnelPair, client: HostId) -> AppId {
    let script = Script::echoed(1).write([WriteStep::Send(1000), WriteStep::Finish]);
    pair.network.open(client, "echo", script)
}

fn served(pair: &mut TunnelPair, client: HostId) -> usize {
    let address = pair.network.address(client);
    let server = pair.server;
    let reports = pair.network.host(server).engine().connection_reports();
    let its = reports.iter().filter(|report| report.remote == address);
    its.filter(|report| report.admitted).count()
}

#[test]
fn newcomers_are_served_although_one_client_has_taken_all_places() {
    let mut pair = pair(places(6), 6);
    let greedy = pair.client;
    assert_eq!(served(&mut pair, greedy), 6, "alone it may have all");
    let newcomers: Vec<HostId> = (2..5).map(|seed| newcomer(&mut pair, seed)).collect();
    let apps: Vec<AppId> = newcomers
        .iter()
        .map(|&client| echo(&mut pair, client))
        .collect();
    pair.network.run_for(SECOND);
    for app in apps {
        let outcome = pair.network.outcome(app);
        assert!(outcome.is_clean(), "{outcome:?}");
    }
    // The client that had all asks again and again. That must not cost the others their places.
    pair.network.run_for(60 * SECOND);
    assert_eq!(served(&mut pair, greedy), 3);
    let server = pair.server;
    let gone = pair.count(server, |event| {
        matches!(event, EngineEvent::Shared(Event::Disconnected { .. }))
    });
    assert_eq!(gone, 3, "three have given way, and none since");
}

#[test]
fn connections_without_flows_give_way_first() {
    let mut pair = pair(places(3), 3);
    let greedy = pair.client;
    let script = Script::echoed(1).write([WriteStep::Send(1000), WriteStep::Wait(20 * SECOND)]);
    let script = script.write([WriteStep::Finish]);
    let flows = [0, 1].map(|_| pair.network.open(greedy, "echo", script.clone()));
    pair.network.run_for(SECOND);
    let newcomer = newcomer(&mut pair, 2);
    let app = echo(&mut pair, newcomer);
    pair.network.run_for(SECOND);
    assert!(pair.network.outcome(app).is_clean());
    pair.network.run_for(30 * SECOND);
    for flow in flows {
        let outcome = pair.network.outcome(flow);
        assert!(outcome.is_clean(), "{outcome:?}");
    }
}

#[test]
fn a_client_that_was_killed_gets_the_places_of_its_dead_connections() {
    let mut server = places(3);
    server.role.identify = true;
    let mut pair = pair(server, 3);
    let client = pair.client;
    for seed in 2..5 {
        let mut again = config::client_speaking(config::NATIVE, seed);
        again.role.connections = 3;
        again.role.servers[0].prover = Some(std::sync::Arc::new(|_| config::PROOF));
        pair.network.kill_client(client, again);
        pair.network.run_for(12 * SECOND);
        let app = echo(&mut pair, client);
        pair.network.run_for(SECOND);
        let outcome = pair.network.outcome(app);
        assert!(outcome.is_clean(), "{outcome:?}");
    }
}

/// The server keeps 2048 bonds of one client. A client that is killed more often still gets bonds.
#[test]
fn a_client_that_was_killed_again_and_again_still_gets_a_bond() {
    let mut server = places(1000);
    server.role.identify = true;
    server.role.bond_ttl = 1800 * SECOND;
    let mut pair = pair(server, 1);
    for number in 0..2060 {
        let bare = pair.network.add_bare("killed", config::NATIVE, pair.server);
        let link = wire(2 * MS);
        pair.network
            .link(bare, pair.server, link.clone(), link.clone());
        pair.network.run_for(50 * MS);
        let mut hello = Vec::new();
        Frame::Hello {
            proof: Some(config::PROOF),
            join: None,
            bond: Some(BondRequest::New),
            reverse: false,
        }
        .encode(&mut hello);
        let peer = pair.network.bare(bare);
        let stream = peer.connection().streams().open(Dir::Bi).expect("a stream");
        peer.write(stream, &hello);
        pair.network.run_for(50 * MS);
        let answer = pair.network.bare(bare).read(stream).0;
        assert!(answer.len() > 50, "bond {number}: {answer:?}");
        let open = quictun_wire::open::Open {
            target: "echo".to_owned(),
            number: Some(0),
            ..Default::default()
        };
        let mut bytes = Vec::new();
        open.encode(&mut bytes).expect("a short target");
        let peer = pair.network.bare(bare);
        let stream = peer.connection().streams().open(Dir::Bi).expect("a stream");
        peer.write(stream, &bytes);
        pair.network.run_for(50 * MS);
        let reports = pair.network.host(pair.server).engine().connection_reports();
        let last = reports.last().expect("it is up").id;
        let server = pair.server;
        pair.network.command(server, |engine, now| {
            engine.break_connection(now, last);
        });
        pair.network.run_for(50 * MS);
    }
    let bonds = pair.network.host(pair.server).engine().bond_reports();
    assert!((2040..=2048).contains(&bonds.len()), "{}", bonds.len());
}

// PROTOCOL AUTH-6.
#[test]
fn strangers_over_tcp_that_do_not_end_their_connections_keep_a_few_of_them() {
    let (client, mut server) = configs(1, CarrierChoice::Tls);
    (server.role.identify, server.role.max_handshakes) = (true, 16);
    let link = wire(20 * MS);
    let mut pair = TunnelPair::with(Seed::fixed(1), client, server, link.clone(), link.clone());
    let server = pair.server;
    pair.network.host(server).set_listens_on_tcp(true);
    pair.network.stop(pair.client, 60 * SECOND);
    for seed in 2..10 {
        let (client, _) = configs(seed, CarrierChoice::Tls);
        let stranger = pair.network.add_client("stranger", client, server);
        pair.network
            .link(stranger, server, link.clone(), link.clone());
        // The server refuses the client, which is not there to end its side.
        let hellos = |network: &mut Network| {
            let events = network.host(server).events().iter();
            let hello = |event: &EngineEvent| {
                matches!(event, EngineEvent::Server(ServerEvent::Hello { .. }))
            };
            events.filter(|(_, event)| hello(event)).count()
        };
        let before = hellos(&mut pair.network);
        pair.network
            .run_until(SECOND, |network| hellos(network) > before);
        pair.network.stop(stranger, 60 * SECOND);
    }
    pair.network.run_for(100 * MS);
    let reports = pair.network.host(server).engine().connection_reports();
    assert_eq!(reports.len(), 4, "a quarter of 16: {reports:?}");
    pair.network.run_for(4 * SECOND);
    let reports = pair.network.host(server).engine().connection_reports();
    assert!(reports.is_empty(), "{reports:?}");
}
