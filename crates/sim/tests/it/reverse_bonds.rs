//! Flows of reverse forwards that outlive their connection (PROTOCOL section 5.9).

use std::time::Duration;

use quictun_sim::engine::{ClientEvent, Ending, EngineEvent, Event};
use quictun_sim::{
    AppId, IncomingState, LinkConfig, Network, Outage, Script, Seed, SimulatedDial, WriteStep,
    config,
};
use quictun_wire::bond::{BondGrant, BondRequest, SERVER_NUMBERS};
use quictun_wire::code::FlowCode;
use quictun_wire::control::Frame;
use quictun_wire::listening::{Incoming, IncomingPeer};
use quictun_wire::open::{Decoded, OpenAck};
use quinn_proto::StreamId;

use crate::guests::Guests as _;
use crate::tunnel_pair::{MS, SECOND, TunnelPair, limited, listen, wire};

const TTL: Duration = Duration::from_mins(30);

/// Rate of the links: 2 MB/s.
const RATE: u64 = 2_000_000;

/// Creates a client that keeps a listener on the server, and an echo behind the client. The client keeps bonds for
/// `ttl`.
fn pair(link: LinkConfig, ttl: Duration) -> TunnelPair {
    let mut client = config::client_speaking(config::NATIVE, 1);
    let mut server = config::server(1);
    client.role.reverse = true;
    (client.role.bond_ttl, server.role.bond_ttl) = (ttl, TTL);
    let mut pair = TunnelPair::with(Seed::fixed(1), client, server, link.clone(), link);
    pair.network.host(pair.client).set_listen(listen(1));
    serve(&mut pair, Duration::ZERO);
    pair.connect();
    pair
}

/// Sets how long the dials of the client's target take from now on.
fn serve(pair: &mut TunnelPair, after: Duration) {
    let dial = SimulatedDial::Connects { after };
    let host = pair.network.host(pair.client);
    host.serve(&config::reverse_token(1), dial, Script::echo());
}

/// Connects an application to the listener. It sends `bytes` bytes to the echo, expects them back, and finishes.
fn echo(pair: &mut TunnelPair, bytes: u64) -> AppId {
    open(pair, &[WriteStep::Send(bytes), WriteStep::Finish])
}

fn open(pair: &mut TunnelPair, writes: &[WriteStep]) -> AppId {
    let script = Script::echoed(1).write(writes);
    pair.network.open_incoming(pair.server, 1, script)
}

fn break_first(pair: &mut TunnelPair) {
    let client = pair.client;
    let id = pair.up(client)[0];
    pair.network.command(client, |engine, now| {
        engine.break_connection(now, id);
    });
}

// PROTOCOL BOND-14, CLOSE-7: the client confirmed the first bytes with its answer.
#[test]
fn the_reset_of_a_short_flow_arrives_without_another_round_trip() {
    let round_trip = 40 * MS;
    let mut pair = pair(limited(RATE, round_trip), TTL);
    let waits = 500 * MS;
    let acts = [
        WriteStep::Send(100),
        WriteStep::Wait(waits),
        WriteStep::Abort,
    ];
    open(&mut pair, &acts);
    pair.network.run_for(waits + round_trip);
    let target = pair
        .network
        .dialled(pair.client, &config::reverse_token(1))
        .expect("dialled");
    assert_eq!(
        (target.received, target.incoming),
        (100, IncomingState::Reset)
    );
}

// PROTOCOL REVERSE-13.
#[test]
fn a_flow_outlives_a_path_that_is_dead_for_ten_minutes() {
    let mut link = limited(RATE, 20 * MS);
    link.outages.push(Outage {
        from: 3 * SECOND,
        until: 603 * SECOND,
    });
    let mut pair = pair(link, TTL);
    let app = echo(&mut pair, 20_000_000);
    pair.network.run_for(300 * SECOND);
    for host in [pair.client, pair.server] {
        let engine = pair.network.host(host).engine();
        let bonds = engine.bond_reports();
        assert_eq!((bonds[0].flows, bonds[0].detached), (1, 1), "{bonds:?}");
        assert!(bonds[0].retained > 0, "{bonds:?}");
        let flows = engine.flow_reports();
        assert!(flows[0].incoming && flows[0].detached_since.is_some());
    }
    pair.finish(app, 20_000_000, 700 * SECOND);
    assert_eq!(pair.moves(), [1, 1]);
    for host in [pair.client, pair.server] {
        let totals = pair.network.host(host).engine().totals();
        assert_eq!((totals.flows_moved, totals.flows_finished), (1, 1));
    }
}

#[test]
fn a_flow_moves_when_the_client_replaces_its_connection() {
    let mut pair = pair(limited(RATE, 20 * MS), TTL);
    let app = echo(&mut pair, 8_000_000);
    pair.network.run_for(SECOND);
    for _ in 0..3 {
        pair.network
            .command(pair.client, |engine, now| engine.client().reconnect(now));
        pair.network.run_for(SECOND);
    }
    pair.finish(app, 8_000_000, 60 * SECOND);
    assert_eq!(pair.moves(), [3, 3]);
}

/// Makes the client replace its connection, and accept a flow `after` the flow has arrived. Everything that the client
/// sends for `silence` from then on is lost, so that MOVE may arrive before the answer. Returns whether the flow has
/// moved.
fn accept_while_leaving(after: Duration, silence: Duration) -> bool {
    let mut pair = pair(limited(RATE, 20 * MS), TTL);
    serve(&mut pair, after);
    let (client, server) = (pair.client, pair.server);
    pair.network
        .command(client, |engine, now| engine.client().reconnect(now));
    let app = echo(&mut pair, 100_000);
    let arrived =
        |event: &EngineEvent| matches!(event, EngineEvent::Client(ClientEvent::Incoming(_)));
    pair.network.run_until(SECOND, |network| {
        let events = network.host(client).events();
        events.iter().any(|(_, event)| arrived(event))
    });
    let moment = MS / 10;
    pair.network.run_for(after.saturating_sub(moment));
    pair.network.black_hole(client, server, silence);
    pair.network.run_for(SECOND);
    let moved = pair.moves()[1] > 0;
    pair.finish(app, 100_000, 10 * SECOND);
    moved
}

// PROTOCOL REVERSE-14.
#[test]
fn a_flow_whose_answer_is_lost_as_its_connection_is_left_goes_on() {
    let mut moved = 0;
    for after in 1..60 {
        for silence in [Duration::ZERO, MS, 10 * MS] {
            moved += usize::from(accept_while_leaving(after * MS, silence));
        }
    }
    assert!(moved > 100, "{moved}");
}

// PROTOCOL BOND-3, REVERSE-13: the next server chooses the same numbers again.
#[test]
fn a_restarted_server_ends_the_flows_that_it_does_not_know_and_opens_others() {
    let mut pair = pair(limited(RATE, 20 * MS), TTL);
    for seed in 2..5 {
        let flows: Vec<AppId> = (0..3).map(|_| echo(&mut pair, 20_000_000)).collect();
        pair.network.run_for(SECOND);
        let mut server = config::server(seed);
        server.role.bond_ttl = TTL;
        pair.network.kill_server(pair.server, server);
        pair.network.run_for(5 * SECOND);
        for app in flows {
            assert_eq!(pair.network.outcome(app).incoming, IncomingState::Reset);
        }
        let closed = pair.closed(pair.client);
        let ending = closed.last().expect("a flow").ending;
        assert_eq!(ending, Ending::PeerRefused(FlowCode::NoBond));
    }
    let app = echo(&mut pair, 8_000_000);
    pair.network.run_for(SECOND);
    pair.network
        .command(pair.client, |engine, now| engine.client().reconnect(now));
    pair.finish(app, 8_000_000, 60 * SECOND);
    assert_eq!(pair.moves(), [1, 1]);
}

// PROTOCOL BOND-17.
#[test]
fn flows_of_a_client_that_is_gone_wait_for_the_lifetime_of_their_bond() {
    let mut pair = pair(limited(RATE, 20 * MS), TTL);
    let app = echo(&mut pair, 20_000_000);
    pair.network.run_for(SECOND);
    let client = config::client_speaking(config::NATIVE, 2);
    pair.network.kill_client(pair.client, client);
    pair.network.run_for(TTL);
    assert_eq!(pair.network.outcome(app).incoming, IncomingState::Open);
    pair.network.run_for(10 * SECOND);
    assert_eq!(pair.network.outcome(app).incoming, IncomingState::Reset);
    pair.check_nothing_left();
}

// PROTOCOL REVERSE-10: without a bond, flows end with their connection.
#[test]
fn a_flow_without_a_bond_is_reset_with_its_connection() {
    let mut pair = pair(limited(RATE, 20 * MS), Duration::ZERO);
    let app = echo(&mut pair, 20_000_000);
    pair.network.run_for(SECOND);
    break_first(&mut pair);
    pair.network.run_for(SECOND);
    assert_eq!(pair.network.outcome(app).incoming, IncomingState::Reset);
    for host in [pair.client, pair.server] {
        let lost = |event: &EngineEvent| {
            matches!(
                event,
                EngineEvent::Shared(Event::Disconnected { flows: 1, .. })
            )
        };
        assert_eq!(pair.count(host, lost), 1);
    }
    pair.check_nothing_left();
}

// PROTOCOL BOND-18: UNLISTEN ends no flow.
#[test]
fn a_flow_outlives_its_listener_and_then_its_connection() {
    let mut pair = pair(limited(RATE, 20 * MS), TTL);
    let app = echo(&mut pair, 8_000_000);
    pair.network.run_for(SECOND);
    let client = pair.client;
    let id = pair.up(client)[0];
    pair.network
        .command(client, |engine, _| engine.client().unlisten(id, vec![1]));
    pair.network.run_for(100 * MS);
    break_first(&mut pair);
    pair.finish(app, 8_000_000, 60 * SECOND);
    assert_eq!(pair.moves(), [1, 1]);
}

// PROTOCOL BOND-18.
#[test]
fn a_flow_that_waits_is_revoked() {
    let mut pair = pair(limited(RATE, 20 * MS), TTL);
    let [kept, revoked] = [0, 1].map(|_| echo(&mut pair, 2_000_000));
    pair.network.run_for(100 * MS);
    let (client, server) = (pair.client, pair.server);
    for (from, to) in [(client, server), (server, client)] {
        pair.network.black_hole(from, to, 5 * SECOND);
    }
    break_first(&mut pair);
    let id = pair.up(server)[0];
    pair.network.command(server, |engine, now| {
        engine.break_connection(now, id);
        let flows = engine.flow_reports();
        assert!(flows.iter().all(|flow| flow.detached_since.is_some()));
        let last = flows.iter().map(|flow| flow.id).max().expect("a flow");
        engine.server().revoke_flow(now, last);
    });
    pair.network.run_for(MS);
    assert!(pair.network.outcome(revoked).was_reset());
    pair.finish(kept, 2_000_000, 60 * SECOND);
    let closed = pair.closed(client);
    let revoked = Ending::PeerRefused(FlowCode::Revoked);
    let count = closed.iter().filter(|flow| flow.ending == revoked).count();
    assert_eq!(count, 1, "{closed:?}");
}

/// The bytes of the HELLO of a client that asks for a bond and reverse forwards.
fn hello() -> Vec<u8> {
    let mut bytes = Vec::new();
    Frame::Hello {
        proof: None,
        join: None,
        bond: Some(BondRequest::New),
        reverse: true,
    }
    .encode(&mut bytes);
    bytes
}

/// An application whose flow a bare client with a bond accepts by these answers.
fn accepted_by(answer: OpenAck) -> (TunnelPair, AppId) {
    let mut client = config::client_speaking(config::NATIVE, 1);
    let mut server = config::server(1);
    client.role.bond_ttl = Duration::ZERO;
    server.role.bond_ttl = TTL;
    let link = wire(20 * MS);
    let mut pair = TunnelPair::with(Seed::fixed(1), client, server, link.clone(), link.clone());
    pair.connect();
    let bare = pair.network.add_bare("bare", config::NATIVE, pair.server);
    pair.network.link(bare, pair.server, link.clone(), link);
    pair.network.run_for(SECOND);
    let control = pair.network.bare(bare).open();
    pair.network.bare(bare).write(control, &hello());
    pair.network.run_for(100 * MS);
    let mut bytes = Vec::new();
    Frame::Listen(listen(1)).encode(&mut bytes);
    pair.network.bare(bare).write(control, &bytes);
    pair.network.run_for(100 * MS);
    let app = open(&mut pair, &[WriteStep::Send(100)]);
    pair.network.run_for(100 * MS);
    let stream = pair.network.bare(bare).accept();
    let (read, _) = pair.network.bare(bare).read(stream);
    let Ok(Decoded::Done { frame, consumed }) = Incoming::decode(&read) else {
        panic!("{read:02x?}");
    };
    assert_eq!(frame.number, Some(SERVER_NUMBERS));
    assert_eq!(read.len() - consumed, 100);
    let mut bytes = Vec::new();
    answer.encode(&mut bytes);
    pair.network.bare(bare).write(stream, &bytes);
    pair.network.run_for(100 * MS);
    let server = pair.server;
    let id = *pair
        .up(server)
        .last()
        .expect("the bare client's connection");
    pair.network.command(server, |engine, now| {
        engine.break_connection(now, id);
    });
    pair.network.run_for(SECOND);
    (pair, app)
}

// PROTOCOL REVERSE-13.
#[test]
fn flows_of_a_client_that_does_not_confirm_their_number_end_with_their_connection() {
    for (bonded, incoming) in [(true, IncomingState::Open), (false, IncomingState::Reset)] {
        let (mut pair, app) = accepted_by(OpenAck { bonded });
        assert_eq!(pair.network.outcome(app).incoming, incoming, "{bonded}");
        let bonds = pair.network.host(pair.server).engine().bond_reports();
        let waiting: usize = bonds.iter().map(|bond| bond.detached).sum();
        assert_eq!(waiting, usize::from(bonded));
    }
}

/// A client that keeps bonds and a listener, and a bare server that has granted both.
struct BareServer {
    pair: TunnelPair,
}

impl BareServer {
    fn new() -> Self {
        let seed = Seed::fixed(1);
        let mut network = Network::new(seed);
        let server = network.add_bare_server("bare");
        let mut config = config::client_speaking(config::NATIVE, 1);
        config.role.reverse = true;
        config.role.bond_ttl = TTL;
        let client = network.add_client("client", config, server);
        network.link(client, server, wire(20 * MS), wire(20 * MS));
        network.host(client).set_listen(listen(1));
        let mut pair = TunnelPair {
            network,
            client,
            server,
        };
        serve(&mut pair, Duration::ZERO);
        pair.network.run_for(SECOND);
        let control = pair.network.bare(server).accept();
        let bond = BondGrant {
            id: [1; 16],
            secret: [2; 32],
            route: 0,
            ttl_s: TTL.as_secs(),
        };
        let mut bytes = Vec::new();
        Frame::HelloAck {
            grant: None,
            bond: Some(bond),
            reverse: true,
        }
        .encode(&mut bytes);
        pair.network.bare(server).write(control, &bytes);
        pair.network.run_for(100 * MS);
        Self { pair }
    }

    /// Opens a flow by an INCOMING with this option FLOW, if any. Returns the stream.
    fn open(&mut self, number: Option<u64>) -> StreamId {
        let server = self.pair.server;
        let peer = IncomingPeer::Unix;
        let mut bytes = Vec::new();
        Incoming {
            id: 1,
            peer,
            number,
        }
        .encode(&mut bytes);
        let bare = self.pair.network.bare(server);
        let stream = bare.open();
        bare.write(stream, &bytes);
        self.pair.network.run_for(100 * MS);
        stream
    }

    fn read(&mut self, stream: StreamId) -> (Vec<u8>, Option<Result<(), u64>>) {
        let server = self.pair.server;
        self.pair.network.bare(server).read(stream)
    }

    /// Returns the state of the incoming direction of the client's latest target.
    fn target(&self) -> IncomingState {
        let token = config::reverse_token(1);
        let target = self.pair.network.dialled(self.pair.client, &token);
        target.expect("dialled").incoming
    }
}

// PROTOCOL REVERSE-13.
#[test]
fn flows_that_a_server_does_not_number_end_with_their_connection() {
    for (number, incoming) in [
        (Some(SERVER_NUMBERS), IncomingState::Open),
        (None, IncomingState::Reset),
    ] {
        let mut bare = BareServer::new();
        let stream = bare.open(number);
        let mut accepted = Vec::new();
        OpenAck {
            bonded: number.is_some(),
        }
        .encode(&mut accepted);
        assert_eq!(bare.read(stream), (accepted, None));
        break_first(&mut bare.pair);
        bare.pair.network.run_for(SECOND);
        assert_eq!(bare.target(), incoming, "{number:?}");
    }
}

// PROTOCOL REVERSE-13.
#[test]
fn a_number_of_a_client_costs_the_flow_and_a_number_used_twice_the_connection() {
    let mut bare = BareServer::new();
    let stream = bare.open(Some(SERVER_NUMBERS - 1));
    let refused = (Vec::new(), Some(Err(FlowCode::BadOpen.to_u64())));
    assert_eq!(bare.read(stream), refused);
    for ends in [false, true] {
        let mut bare = BareServer::new();
        let stream = bare.open(Some(SERVER_NUMBERS));
        if ends {
            let server = bare.pair.server;
            let connection = bare.pair.network.bare(server).connection();
            let reset = connection.send_stream(stream).reset(0u32.into());
            assert_eq!(reset, Ok(()));
            bare.pair.network.run_for(100 * MS);
        }
        bare.open(Some(SERVER_NUMBERS + 1));
        let server = bare.pair.server;
        assert_eq!(bare.pair.network.bare(server).lost(), None);
        bare.open(Some(SERVER_NUMBERS));
        let lost = bare.pair.network.bare(server).lost().unwrap_or_default();
        assert!(lost.contains("used twice"), "{lost:?}");
    }
}
