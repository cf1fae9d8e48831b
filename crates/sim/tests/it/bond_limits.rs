//! Clients that misuse bonds: other clients must not pay for it (PROTOCOL LIMIT-1, section 5.8).

use std::sync::Arc;
use std::time::Duration;

use quictun_flow::Lease;
use quictun_sim::engine::{
    Account, ClientEvent, ClientRole, Ending, EngineConfig, EngineEvent, Event, FlowSummary,
    LocalLimit, ServerRole,
};
use quictun_sim::{
    AppId, HostEngine, HostId, IncomingState, ReadStep, Script, Seed, SimulatedDial, WriteStep,
    config,
};
use quictun_wire::bond::BondRequest;
use quictun_wire::code::FlowCode;
use quictun_wire::control::Frame;
use quictun_wire::moving::Move;
use quictun_wire::open::Open;
use quinn_proto::{Dir, StreamId};

use crate::guests::Guests as _;
use crate::tunnel_pair::{MS, SECOND, TunnelPair, limited};

const MIB: u64 = 1 << 20;

/// An outage just long enough that the client dials a second connection, which is up before the first one answers
/// again.
const SUSPECT: Duration = Duration::from_millis(598);

const TTL: Duration = Duration::from_mins(30);

/// Creates an honest client with bonds, and a server with a budget.
fn pair(account: &Account) -> TunnelPair {
    let (client, server) = configs(account);
    begun(client, server)
}

fn configs(account: &Account) -> (EngineConfig<ClientRole>, EngineConfig<ServerRole>) {
    let mut client = config::client_speaking(config::NATIVE, 1);
    let mut server = config::server(1);
    (client.role.bond_ttl, server.role.bond_ttl) = (TTL, TTL);
    server.transport.account = account.clone();
    (client, server)
}

fn begun(client: EngineConfig<ClientRole>, server: EngineConfig<ServerRole>) -> TunnelPair {
    let link = limited(2_000_000, 20 * MS);
    let mut pair = TunnelPair::with(Seed::fixed(1), client, server, link.clone(), link);
    let host = pair.network.host(pair.server);
    host.serve("echo", SimulatedDial::connects(), Script::echo());
    host.serve("source", SimulatedDial::connects(), source());
    let silent = Script::default().read([ReadStep::Never]);
    host.serve("silent", SimulatedDial::connects(), silent);
    pair.connect();
    pair
}

fn source() -> Script {
    Script::default().write([WriteStep::Send(u64::MAX)])
}

/// A misbehaving client with a bond. The test drives its streams.
struct GreedyClient {
    host: HostId,
    streams: Vec<StreamId>,
}

impl GreedyClient {
    /// Connects, and sends no HELLO.
    fn connected(pair: &mut TunnelPair) -> Self {
        let (network, server) = (&mut pair.network, pair.server);
        let host = network.add_bare("greedy", config::NATIVE, server);
        let link = limited(20_000_000, 20 * MS);
        network.link(host, server, link.clone(), link);
        network.run_for(100 * MS);
        Self {
            host,
            streams: Vec::new(),
        }
    }

    fn new(pair: &mut TunnelPair) -> Self {
        let mut greedy = Self::connected(pair);
        let mut hello = Vec::new();
        Frame::Hello {
            proof: None,
            join: None,
            bond: Some(BondRequest::New),
            reverse: false,
        }
        .encode(&mut hello);
        greedy.send(pair, &hello);
        pair.network.run_for(100 * MS);
        greedy
    }

    /// Opens a stream with these bytes, if the server grants a stream.
    fn send(&mut self, pair: &mut TunnelPair, bytes: &[u8]) {
        let bare = pair.network.bare(self.host);
        if let Some(stream) = bare.connection().streams().open(Dir::Bi) {
            bare.write(stream, bytes);
            self.streams.push(stream);
        }
    }

    fn open(&mut self, pair: &mut TunnelPair, target: &str, number: u64) {
        let open = Open {
            target: target.to_owned(),
            number: Some(number),
            ..Open::default()
        };
        let mut bytes = Vec::new();
        open.encode(&mut bytes).expect("a short target");
        self.send(pair, &bytes);
    }

    /// Makes the server keep `most` bytes of memory more, for one flow. Then moves the flow to another stream, asks for
    /// all its bytes again, and pauses it.
    fn keeps_and_moves(&mut self, pair: &mut TunnelPair, most: u64) {
        let server = pair.server;
        let kept = |pair: &mut TunnelPair| pair.network.host(server).engine().memory_usage().kept;
        let before = kept(pair);
        self.open(pair, "source", 0);
        for _ in 0..200 {
            if kept(pair) >= before + most {
                break;
            }
            self.takes(pair, 10 * MS);
        }
        let mut bytes = Vec::new();
        let (flow, leg, next) = (0, 1, 0);
        Move { flow, leg, next }.encode(&mut bytes);
        self.send(pair, &bytes);
        let stream = self.streams.last().expect("it was opened just now");
        let mut hold = Vec::new();
        Frame::Hold(vec![u64::from(*stream)]).encode(&mut hold);
        let control = self.streams[0];
        // The server must know the stream before it can pause the flow.
        pair.network.run_for(11 * MS);
        pair.network.bare(self.host).write(control, &hold);
        pair.network.run_for(SECOND);
    }

    /// Resets an older stream that so far only the server has ended.
    fn frees(&mut self, pair: &mut TunnelPair) {
        if self.streams.len() > 50 {
            let stream = self.streams.remove(1);
            let bare = pair.network.bare(self.host);
            // The stream may have ended already.
            drop(bare.connection().send_stream(stream).reset(0u32.into()));
            bare.read(stream);
        }
    }

    /// Lets time pass and reads what arrives, so that the server has credit to send more. Confirms nothing.
    fn takes(&self, pair: &mut TunnelPair, time: Duration) {
        for _ in 0..time.as_millis() / 10 {
            pair.network.run_for(10 * MS);
            for &stream in &self.streams {
                pair.network.bare(self.host).read(stream);
            }
        }
    }
}

/// Breaks all connections of `host` that are up.
fn breaks(pair: &mut TunnelPair, host: HostId) {
    for id in pair.up(host) {
        pair.network.command(host, |engine, now| {
            engine.break_connection(now, id);
        });
    }
}

fn is_clean(pair: &mut TunnelPair, app: AppId, within: Duration) {
    pair.network
        .run_until(within, |network| network.outcome(app).is_over());
    assert!(
        pair.network.outcome(app).is_clean(),
        "{:?}",
        pair.network.outcome(app)
    );
}

#[test]
fn a_client_that_confirms_nothing_ends_no_flow_of_others() {
    let mut pair = pair(&Account::new(8 * MIB));
    let script = Script::echoed(1).write([WriteStep::Send(8_000_000), WriteStep::Finish]);
    let app = pair.network.open(pair.client, "echo", script);
    let mut greedy = GreedyClient::new(&mut pair);
    greedy.open(&mut pair, "source", 0);
    greedy.takes(&mut pair, 2 * SECOND);
    let reports = pair.network.host(pair.server).engine().bond_reports();
    let kept: Vec<u64> = reports.iter().map(|report| report.retained).collect();
    assert!(
        kept.iter().sum::<u64>() <= 2 * MIB,
        "more than a quarter of the budget: {kept:?}"
    );
    let client = pair.client;
    for _ in 0..3 {
        breaks(&mut pair, client);
        greedy.takes(&mut pair, SECOND / 2);
    }
    is_clean(&mut pair, app, 60 * SECOND);
}

/// After a move, the server must not forget what it has to send again. A client that takes none of it must not make the
/// server keep more for others than their limit, or less.
#[test]
fn a_client_that_takes_nothing_after_a_move_leaves_the_limit_of_others_as_it_is() {
    let account = Account::new(16 * MIB);
    let mut pair = pair(&account);
    let server = pair.server;
    let kept = |pair: &mut TunnelPair| pair.network.host(server).engine().memory_usage().kept;
    let mut idle = GreedyClient::new(&mut pair);
    idle.keeps_and_moves(&mut pair, 7 * MIB / 2);
    let idle_keeps = kept(&mut pair);
    assert!(idle_keeps > 3 * MIB, "{idle_keeps}");
    let mut others = [0, 1].map(|_| GreedyClient::new(&mut pair));
    let mut most = 0;
    for _ in 0..20 {
        for other in &mut others {
            if other.streams.len() < 2 {
                other.open(&mut pair, "source", 0);
            }
            other.takes(&mut pair, 50 * MS);
        }
        most = most.max(kept(&mut pair) - idle_keeps);
    }
    assert!((3 * MIB..5 * MIB).contains(&most), "{most}");
}

/// The server can forget none of the bytes of such clients. Beyond the limit, a flow of the client with the most ends.
#[test]
fn clients_that_take_nothing_after_a_move_lose_flows_at_their_limit() {
    let mut pair = pair(&Account::new(16 * MIB));
    let script = Script::echoed(1).write([
        WriteStep::Send(100_000),
        WriteStep::Wait(10 * SECOND),
        WriteStep::Finish,
    ]);
    let app = pair.network.open(pair.client, "echo", script);
    let server = pair.server;
    for _ in 0..2 {
        let mut idle = GreedyClient::new(&mut pair);
        idle.keeps_and_moves(&mut pair, 3 * MIB);
    }
    let kept = pair.network.host(server).engine().memory_usage().kept;
    assert!((3 * MIB..4 * MIB).contains(&kept), "{kept}");
    let ended = pair.closed(server);
    let codes: Vec<_> = ended
        .iter()
        .map(|ended| (ended.token.as_str(), ended.ending))
        .collect();
    assert_eq!(codes, [("source", Ending::Abandoned(FlowCode::TooOld))]);
    is_clean(&mut pair, app, 60 * SECOND);
}

// The server keeps what it sends before HELLO, because HELLO may ask for a bond.
#[test]
fn a_client_that_never_sends_hello_fills_no_memory() {
    let mut pair = pair(&Account::new(16 * MIB));
    let server = pair.server;
    let part = Script::default().write([WriteStep::Send(900_000), WriteStep::Wait(TTL)]);
    let host = pair.network.host(server);
    host.serve("part", SimulatedDial::connects(), part);
    let mut greedy = GreedyClient::connected(&mut pair);
    for number in 0..14 {
        greedy.open(&mut pair, "part", number);
    }
    greedy.takes(&mut pair, 3 * SECOND);
    let kept = pair.network.host(server).engine().memory_usage().kept;
    assert!(kept <= 2 * MIB, "{kept}");
}

#[test]
fn when_memory_is_short_flows_of_the_client_with_most_memory_end_first() {
    let account = Account::new(8 * MIB);
    let mut pair = pair(&account);
    let script = Script::echoed(1).write([
        WriteStep::Send(1000),
        WriteStep::Wait(20 * SECOND),
        WriteStep::Finish,
    ]);
    let app = pair.network.open(pair.client, "echo", script);
    pair.network.run_for(SECOND);
    let (client, server) = (pair.client, pair.server);
    // The flow waits for longer than any other flow.
    for (from, to) in [(client, server), (server, client)] {
        pair.network.black_hole(from, to, 10 * SECOND);
    }
    breaks(&mut pair, server);
    let mut many = GreedyClient::new(&mut pair);
    for number in 0..10 {
        many.open(&mut pair, "silent", number);
    }
    pair.network.run_for(SECOND);
    breaks(&mut pair, server);
    let mut busy = GreedyClient::new(&mut pair);
    busy.open(&mut pair, "source", 0);
    // Another engine of the process takes the whole budget.
    let mut other = Lease::new(account);
    other.charge(8 * MIB);
    busy.takes(&mut pair, 50 * MS);
    other.release(8 * MIB);
    busy.takes(&mut pair, SECOND);
    let limit = Ending::LimitReached(LocalLimit::DetachedMemory);
    let limit = |summary: &FlowSummary| summary.ending == limit;
    let ended = pair.closed(server);
    let ended: Vec<_> = ended.into_iter().filter(limit).collect();
    assert!((2..9).contains(&ended.len()), "{ended:?}");
    assert!(
        ended.iter().all(|summary| summary.token == "silent"),
        "{ended:?}"
    );
    is_clean(&mut pair, app, 60 * SECOND);
}

#[test]
fn a_client_keeps_four_thousand_waiting_flows_across_all_its_bonds() {
    let (mut client, mut server) = configs(&Account::new(1 << 30));
    client.role.connections = 2;
    client.role.servers[0].prover = Some(Arc::new(|_| config::PROOF));
    server.role.identify = true;
    let mut pair = begun(client, server);
    let script =
        Script::echoed(1).write([WriteStep::Send(1), WriteStep::Wait(TTL), WriteStep::Finish]);
    for _ in 0..4112 {
        pair.network.open(pair.client, "echo", script.clone());
    }
    pair.network.run_for(2 * SECOND);
    let (client, server) = (pair.client, pair.server);
    let waiting = |pair: &mut TunnelPair| -> usize {
        let reports = pair.network.host(server).engine().bond_reports();
        reports.iter().map(|report| report.detached).sum()
    };
    pair.network.black_hole(client, server, 10 * SECOND);
    breaks(&mut pair, server);
    pair.network.run_for(MS);
    let reports = pair.network.host(server).engine().bond_reports();
    assert!(reports.iter().all(|report| report.detached < 4000));
    assert_eq!(waiting(&mut pair), 4096);
    let events = pair.network.host(server).events().iter();
    let detached = events.filter_map(|(_, event)| match event {
        EngineEvent::Shared(Event::Disconnected { waiting, .. }) => Some(waiting.len()),
        _ => None,
    });
    let detached: usize = detached.sum();
    assert_eq!((detached, pair.closed(server).len()), (4112, 16));
}

#[test]
fn the_memory_of_a_bond_is_charged() {
    let mut pair = pair(&Account::new(64 * MIB));
    let server = pair.server;
    let kept = |pair: &mut TunnelPair| pair.network.host(server).engine().memory_usage().kept;
    let before = kept(&mut pair);
    let script = Script::echoed(1).write([WriteStep::Send(1), WriteStep::Finish]);
    for _ in 0..100 {
        pair.network.open(pair.client, "echo", script.clone());
    }
    pair.network.run_for(10 * SECOND);
    assert_eq!(pair.closed(server).len(), 100);
    let more = kept(&mut pair) - before;
    assert!(more >= 100 * 16, "{more} bytes");
}

#[test]
fn a_flow_that_moves_again_and_again_costs_its_client_the_connection() {
    let mut pair = pair(&Account::new(1 << 30));
    let mut greedy = GreedyClient::new(&mut pair);
    greedy.open(&mut pair, "echo", 0);
    pair.network.run_for(SECOND);
    let mut moves = |pair: &mut TunnelPair, legs: std::ops::RangeInclusive<u64>| {
        for leg in legs {
            let mut bytes = Vec::new();
            let next = 0;
            Move { flow: 0, leg, next }.encode(&mut bytes);
            greedy.send(pair, &bytes);
            pair.network.run_for(MS);
            greedy.frees(pair);
        }
        pair.network.run_for(100 * MS);
        let lost = pair.network.bare(greedy.host).lost();
        lost.map(str::to_owned)
    };
    assert_eq!(moves(&mut pair, 1..=256), None);
    let lost = moves(&mut pair, 257..=310).unwrap_or_default();
    assert!(lost.contains("move too often"), "{lost:?}");
    let server = pair.server;
    pair.network.run_for(SECOND);
    let ended = pair.closed(server);
    assert_eq!(ended.len(), 1, "the flow must end too: {ended:?}");
}

/// The flows' bond belongs to a connection beyond those that the client wants, and the server does not answer.
#[test]
fn a_connection_for_flows_that_have_ended_is_dialled_no_more() {
    let mut client = config::client_speaking(config::NATIVE, 1);
    let mut server = config::server(1);
    client.role.bond_ttl = 40 * SECOND;
    server.role.bond_ttl = 40 * SECOND;
    let link = limited(2_000_000, 20 * MS);
    let mut pair = TunnelPair::with(Seed::fixed(1), client, server, link.clone(), link);
    let host = pair.network.host(pair.server);
    host.serve("echo", SimulatedDial::connects(), Script::echo());
    let (client, server) = (pair.client, pair.server);
    let hole = |pair: &mut TunnelPair, time| {
        for (from, to) in [(client, server), (server, client)] {
            pair.network.black_hole(from, to, time);
        }
    };
    while pair.up(client).is_empty() {
        pair.network.run_for(MS);
    }
    // The first connection falls silent, so the client opens a second one with a bond of its own.
    hole(&mut pair, SUSPECT);
    let script =
        Script::echoed(1).write([WriteStep::Send(1), WriteStep::Wait(TTL), WriteStep::Finish]);
    let apps = [0, 1].map(|_| {
        let app = pair.network.open(client, "echo", script.clone());
        pair.network.run_for(4 * SECOND);
        app
    });
    let bonds = pair.network.host(client).engine().bond_reports();
    assert_eq!(bonds.len(), 2, "{bonds:?}");
    // No attempt gets past the name look-up.
    let address = pair.network.address(server);
    let nobody = Err("not now".to_owned());
    pair.network.host(client).set_resolver(nobody, MS);
    breaks(&mut pair, client);
    pair.network.run_for(95 * SECOND);
    for app in apps {
        assert_eq!(pair.network.outcome(app).incoming, IncomingState::Reset);
    }
    pair.network
        .host(client)
        .set_resolver(Ok(vec![address]), MS);
    // Once the server is reachable again, the client opens the connection that it wants and no other.
    pair.network.run_for(10 * SECOND);
    assert_eq!(pair.up(client).len(), 1);
    pair.network.run_for(60 * SECOND);
    assert_eq!(pair.up(client).len(), 1);
}

/// A silent connection answers again just before the server reports, on the next connection, that the bond is another
/// one. The flow on the first connection continues there.
#[test]
fn a_flow_on_a_connection_that_answers_outlives_its_bond() {
    let mut pair = pair(&Account::new(64 * MIB));
    let (client, server) = (pair.client, pair.server);
    // The answer to the second byte arrives between the handshake of the next connection and the answer to HELLO.
    let speaks_again = [
        WriteStep::Send(1),
        WriteStep::Wait(710 * MS),
        WriteStep::Send(1),
        WriteStep::Wait(SECOND),
        WriteStep::Finish,
    ];
    let script = Script::echoed(1).write(speaks_again);
    let app = pair.network.open(client, "echo", script.clone());
    pair.network.run_for(100 * MS);
    pair.network
        .command(server, |engine, _| engine.server().forget_bond_ids());
    pair.network.open(client, "echo", script);
    for (from, to) in [(client, server), (server, client)] {
        pair.network.black_hole(from, to, SUSPECT);
    }
    pair.network.run_for(SECOND);
    let welcomed = pair.count(client, |event| {
        matches!(
            event,
            EngineEvent::Client(ClientEvent::Welcome { bonded: true, .. })
        )
    });
    assert_eq!((welcomed, pair.up(client).len()), (2, 2));
    is_clean(&mut pair, app, 10 * SECOND);
}

/// A silent connection answers again after the server has given up its bond. Flows that are opened after that belong to
/// the new bond, on the new connection.
#[test]
fn a_connection_of_a_bond_that_was_given_up_takes_no_more_flows() {
    let mut pair = pair(&Account::new(64 * MIB));
    let (client, server) = (pair.client, pair.server);
    let soon = Script::echoed(1).write([
        WriteStep::Send(1),
        WriteStep::Wait(SECOND),
        WriteStep::Finish,
    ]);
    pair.network.open(client, "echo", soon.clone());
    pair.network.run_for(100 * MS);
    let [old] = pair.up(client)[..] else {
        panic!("expected exactly one connection")
    };
    pair.network
        .command(server, |engine, _| engine.server().forget_bond_ids());
    pair.network.open(client, "echo", soon);
    for (from, to) in [(client, server), (server, client)] {
        pair.network.black_hole(from, to, SUSPECT);
    }
    pair.network.run_for(3 * SECOND);
    let up = pair.up(client);
    assert!(up.len() == 2 && up.contains(&old), "{up:?}");
    let script = Script::echoed(1).write([
        WriteStep::Send(1000),
        WriteStep::Wait(SECOND),
        WriteStep::Finish,
    ]);
    let app = pair.network.open(client, "echo", script);
    pair.network.run_for(100 * MS);
    pair.network
        .command(client, |engine: &mut HostEngine, now| {
            engine.break_connection(now, old);
        });
    is_clean(&mut pair, app, 10 * SECOND);
}
