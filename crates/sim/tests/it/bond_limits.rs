//! Clients that misuse bonds: other clients must not pay for it (PROTOCOL LIMIT-1, section 5.8).

use std::sync::Arc;
use std::time::Duration;

use quictun_flow::Lease;
use quictun_sim::engine::{
    Account, ClientRole, Ending, Engine, EngineConfig, Event, FlowSummary, ServerRole,
};
use quictun_sim::{AppId, Dial, HostId, Incoming, Read, Script, Seed, Write, config};
use quictun_wire::bond::Ask;
use quictun_wire::code::FlowCode;
use quictun_wire::control::Frame;
use quictun_wire::moving::Move;
use quictun_wire::open::Open;
use quinn_proto::{Dir, StreamId};

use crate::guests::Guests as _;
use crate::world::{MS, SECOND, World, limited};

const MIB: u64 = 1 << 20;

/// An outage just long enough that the client dials a second connection, which is up before the first one answers
/// again.
const SUSPECT: Duration = Duration::from_millis(598);

const TTL: Duration = Duration::from_mins(30);

/// Creates an honest client with bonds, and a server with a budget.
fn world(account: &Account) -> World {
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

fn begun(client: EngineConfig<ClientRole>, server: EngineConfig<ServerRole>) -> World {
    let link = limited(2_000_000, 20 * MS);
    let mut world = World::with(Seed::fixed(1), client, server, link.clone(), link);
    let host = world.network.host(world.server);
    host.serve("echo", Dial::connects(), Script::echo());
    host.serve("source", Dial::connects(), source());
    let silent = Script::default().read([Read::Never]);
    host.serve("silent", Dial::connects(), silent);
    world.connect();
    world
}

fn source() -> Script {
    Script::default().write([Write::Send(u64::MAX)])
}

/// A misbehaving client with a bond. The test drives its streams.
struct Greedy {
    host: HostId,
    streams: Vec<StreamId>,
}

impl Greedy {
    fn new(world: &mut World) -> Self {
        let (network, server) = (&mut world.network, world.server);
        let host = network.add_bare("greedy", config::NATIVE, server);
        let link = limited(20_000_000, 20 * MS);
        network.link(host, server, link.clone(), link);
        network.run_for(100 * MS);
        let mut hello = Vec::new();
        Frame::Hello {
            proof: None,
            join: None,
            bond: Some(Ask::New),
            reverse: false,
        }
        .encode(&mut hello);
        let mut greedy = Self {
            host,
            streams: Vec::new(),
        };
        greedy.send(world, &hello);
        world.network.run_for(100 * MS);
        greedy
    }

    /// Opens a stream with these bytes, if the server grants a stream.
    fn send(&mut self, world: &mut World, bytes: &[u8]) {
        let bare = world.network.bare(self.host);
        if let Some(stream) = bare.connection().streams().open(Dir::Bi) {
            bare.write(stream, bytes);
            self.streams.push(stream);
        }
    }

    fn open(&mut self, world: &mut World, target: &str, number: u64) {
        let open = Open {
            target: target.to_owned(),
            number: Some(number),
            ..Open::default()
        };
        let mut bytes = Vec::new();
        open.encode(&mut bytes).expect("a short target");
        self.send(world, &bytes);
    }

    /// Resets an older stream that so far only the server has ended.
    fn frees(&mut self, world: &mut World) {
        if self.streams.len() > 50 {
            let stream = self.streams.remove(1);
            let bare = world.network.bare(self.host);
            // The stream may have ended already.
            drop(bare.connection().send_stream(stream).reset(0u32.into()));
            bare.read(stream);
        }
    }

    /// Lets time pass and reads what arrives, so that the server has credit to send more. Confirms nothing.
    fn takes(&self, world: &mut World, time: Duration) {
        for _ in 0..time.as_millis() / 10 {
            world.network.run_for(10 * MS);
            for &stream in &self.streams {
                world.network.bare(self.host).read(stream);
            }
        }
    }
}

/// Breaks all connections of `host` that are up.
fn breaks(world: &mut World, host: HostId) {
    for id in world.up(host) {
        world.network.command(host, |engine, now| {
            engine.break_connection(now, id);
        });
    }
}

fn is_clean(world: &mut World, app: AppId, within: Duration) {
    world
        .network
        .run_until(within, |network| network.outcome(app).is_over());
    assert!(
        world.network.outcome(app).is_clean(),
        "{:?}",
        world.network.outcome(app)
    );
}

#[test]
fn a_client_that_confirms_nothing_ends_no_flow_of_others() {
    let mut world = world(&Account::new(8 * MIB));
    let script = Script::echoed(1).write([Write::Send(8_000_000), Write::Finish]);
    let app = world.network.open(world.client, "echo", script);
    let mut greedy = Greedy::new(&mut world);
    greedy.open(&mut world, "source", 0);
    greedy.takes(&mut world, 2 * SECOND);
    let reports = world.network.host(world.server).engine().bond_reports();
    let kept: Vec<u64> = reports.iter().map(|report| report.retained).collect();
    assert!(
        kept.iter().sum::<u64>() <= 2 * MIB,
        "more than a quarter of the budget: {kept:?}"
    );
    let client = world.client;
    for _ in 0..3 {
        breaks(&mut world, client);
        greedy.takes(&mut world, SECOND / 2);
    }
    is_clean(&mut world, app, 60 * SECOND);
}

#[test]
fn where_memory_is_short_flows_of_the_client_with_most_end_first() {
    let account = Account::new(8 * MIB);
    let mut world = world(&account);
    let script =
        Script::echoed(1).write([Write::Send(1000), Write::Wait(20 * SECOND), Write::Finish]);
    let app = world.network.open(world.client, "echo", script);
    world.network.run_for(SECOND);
    let (client, server) = (world.client, world.server);
    // The flow waits for longer than any other flow.
    for (from, to) in [(client, server), (server, client)] {
        world.network.black_hole(from, to, 10 * SECOND);
    }
    breaks(&mut world, server);
    let mut many = Greedy::new(&mut world);
    for number in 0..10 {
        many.open(&mut world, "silent", number);
    }
    world.network.run_for(SECOND);
    breaks(&mut world, server);
    let mut busy = Greedy::new(&mut world);
    busy.open(&mut world, "source", 0);
    // Another engine of the process takes the whole budget.
    let mut other = Lease::new(account);
    other.charge(8 * MIB);
    busy.takes(&mut world, 50 * MS);
    other.release(8 * MIB);
    busy.takes(&mut world, SECOND);
    let limit = |summary: &FlowSummary| summary.ending == Ending::Abandoned(FlowCode::Limit);
    let ended = world.closed(server);
    let ended: Vec<_> = ended.into_iter().filter(limit).collect();
    assert!((2..9).contains(&ended.len()), "{ended:?}");
    assert!(
        ended.iter().all(|summary| summary.token == "silent"),
        "{ended:?}"
    );
    is_clean(&mut world, app, 60 * SECOND);
}

#[test]
fn a_client_keeps_a_thousand_flows_that_wait_whatever_bonds_they_are_of() {
    let (mut client, mut server) = configs(&Account::new(1 << 30));
    client.role.connections = 2;
    client.role.servers[0].prover = Some(Arc::new(|_| config::PROOF));
    server.role.identify = true;
    let mut world = begun(client, server);
    let script = Script::echoed(1).write([Write::Send(1), Write::Wait(TTL), Write::Finish]);
    for _ in 0..1040 {
        world.network.open(world.client, "echo", script.clone());
    }
    world.network.run_for(2 * SECOND);
    let (client, server) = (world.client, world.server);
    let waiting = |world: &mut World| -> usize {
        let reports = world.network.host(server).engine().bond_reports();
        reports.iter().map(|report| report.detached).sum()
    };
    world.network.black_hole(client, server, 10 * SECOND);
    breaks(&mut world, server);
    world.network.run_for(MS);
    let reports = world.network.host(server).engine().bond_reports();
    assert!(reports.iter().all(|report| report.detached < 1000));
    assert_eq!(waiting(&mut world), 1024);
    let events = world.network.host(server).events().iter();
    let detached = events.filter_map(|(_, event)| match event {
        Event::Disconnected { detached, .. } => Some(*detached),
        _ => None,
    });
    let detached: usize = detached.sum();
    assert_eq!((detached, world.closed(server).len()), (1040, 16));
}

#[test]
fn what_a_bond_remembers_is_charged() {
    let mut world = world(&Account::new(64 * MIB));
    let server = world.server;
    let kept = |world: &mut World| world.network.host(server).engine().holdings().kept;
    let before = kept(&mut world);
    let script = Script::echoed(1).write([Write::Send(1), Write::Finish]);
    for _ in 0..100 {
        world.network.open(world.client, "echo", script.clone());
    }
    world.network.run_for(10 * SECOND);
    assert_eq!(world.closed(server).len(), 100);
    let more = kept(&mut world) - before;
    assert!(more >= 100 * 16, "{more} bytes");
}

#[test]
fn a_flow_that_moves_again_and_again_costs_its_client_the_connection() {
    let mut world = world(&Account::new(1 << 30));
    let mut greedy = Greedy::new(&mut world);
    greedy.open(&mut world, "echo", 0);
    world.network.run_for(SECOND);
    let mut moves = |world: &mut World, legs: std::ops::RangeInclusive<u64>| {
        for leg in legs {
            let mut bytes = Vec::new();
            let next = 0;
            Move { flow: 0, leg, next }.encode(&mut bytes);
            greedy.send(world, &bytes);
            world.network.run_for(MS);
            greedy.frees(world);
        }
        world.network.run_for(100 * MS);
        let lost = world.network.bare(greedy.host).lost();
        lost.map(str::to_owned)
    };
    assert_eq!(moves(&mut world, 1..=256), None);
    let lost = moves(&mut world, 257..=310).unwrap_or_default();
    assert!(lost.contains("move too often"), "{lost:?}");
    let server = world.server;
    world.network.run_for(SECOND);
    let ended = world.closed(server);
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
    let mut world = World::with(Seed::fixed(1), client, server, link.clone(), link);
    let host = world.network.host(world.server);
    host.serve("echo", Dial::connects(), Script::echo());
    let (client, server) = (world.client, world.server);
    let hole = |world: &mut World, time| {
        for (from, to) in [(client, server), (server, client)] {
            world.network.black_hole(from, to, time);
        }
    };
    while world.up(client).is_empty() {
        world.network.run_for(MS);
    }
    // The first connection falls silent, so the client opens a second one with a bond of its own.
    hole(&mut world, SUSPECT);
    let script = Script::echoed(1).write([Write::Send(1), Write::Wait(TTL), Write::Finish]);
    let apps = [0, 1].map(|_| {
        let app = world.network.open(client, "echo", script.clone());
        world.network.run_for(4 * SECOND);
        app
    });
    let bonds = world.network.host(client).engine().bond_reports();
    assert_eq!(bonds.len(), 2, "{bonds:?}");
    // No attempt gets past the name look-up.
    let address = world.network.address(server);
    let nobody = Err("not now".to_owned());
    world.network.host(client).set_resolver(nobody, MS);
    breaks(&mut world, client);
    world.network.run_for(95 * SECOND);
    for app in apps {
        assert_eq!(world.network.outcome(app).incoming, Incoming::Reset);
    }
    world
        .network
        .host(client)
        .set_resolver(Ok(vec![address]), MS);
    // Once the server is reachable again, the client opens the connection that it wants and no other.
    world.network.run_for(10 * SECOND);
    assert_eq!(world.up(client).len(), 1);
    world.network.run_for(60 * SECOND);
    assert_eq!(world.up(client).len(), 1);
}

/// A silent connection answers again just before the server reports, on the next connection, that the bond is another
/// one. The flow on the first connection goes on there.
#[test]
fn a_flow_on_a_connection_that_answers_outlives_its_bond() {
    let mut world = world(&Account::new(64 * MIB));
    let (client, server) = (world.client, world.server);
    // The answer to the second byte arrives between the handshake of the next connection and the answer to HELLO.
    let speaks_again = [
        Write::Send(1),
        Write::Wait(710 * MS),
        Write::Send(1),
        Write::Wait(SECOND),
        Write::Finish,
    ];
    let script = Script::echoed(1).write(speaks_again);
    let app = world.network.open(client, "echo", script.clone());
    world.network.run_for(100 * MS);
    world
        .network
        .command(server, |engine, _| engine.disown_bonds());
    world.network.open(client, "echo", script);
    for (from, to) in [(client, server), (server, client)] {
        world.network.black_hole(from, to, SUSPECT);
    }
    world.network.run_for(SECOND);
    let welcomed = world.count(client, |event| {
        matches!(event, Event::Welcome { bonded: true, .. })
    });
    assert_eq!((welcomed, world.up(client).len()), (2, 2));
    is_clean(&mut world, app, 10 * SECOND);
}

/// A silent connection answers again after the server has given up its bond. Flows that are opened after that belong to
/// the new bond, on the new connection.
#[test]
fn a_connection_of_a_bond_that_was_given_up_takes_no_more_flows() {
    let mut world = world(&Account::new(64 * MIB));
    let (client, server) = (world.client, world.server);
    let soon = Script::echoed(1).write([Write::Send(1), Write::Wait(SECOND), Write::Finish]);
    world.network.open(client, "echo", soon.clone());
    world.network.run_for(100 * MS);
    let [old] = world.up(client)[..] else {
        panic!("expected exactly one connection")
    };
    world
        .network
        .command(server, |engine, _| engine.disown_bonds());
    world.network.open(client, "echo", soon);
    for (from, to) in [(client, server), (server, client)] {
        world.network.black_hole(from, to, SUSPECT);
    }
    world.network.run_for(3 * SECOND);
    let up = world.up(client);
    assert!(up.len() == 2 && up.contains(&old), "{up:?}");
    let script = Script::echoed(1).write([Write::Send(1000), Write::Wait(SECOND), Write::Finish]);
    let app = world.network.open(client, "echo", script);
    world.network.run_for(100 * MS);
    world
        .network
        .command(client, |engine: &mut Engine<_>, now| {
            engine.break_connection(now, old);
        });
    is_clean(&mut world, app, 10 * SECOND);
}
