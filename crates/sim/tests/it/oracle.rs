//! Random links and random applications, checked by one oracle: received bytes are sent bytes, in order, and both sides
//! see every close as what it was.

use std::time::Duration;

use quictun_sim::engine::{Account, Ending, Engine, Event, FlowSummary, LossReason, Residue};
use quictun_sim::{
    AppId, Dial, HostId, Incoming, LinkConfig, Network, Outage, Outcome, Outgoing, Queue, Random,
    Read, Reorder, Script, Seed, Write, config,
};
use quictun_wire::code::CloseCode;

use crate::world::{MS, SECOND, World};

/// Maximum duration of a run in virtual time.
const RUN_MAX: Duration = Duration::from_mins(20);

/// Keep-alive interval and idle timeout of patient engines, and the maximum duration of their runs. The runs are
/// shorter than the keep-alive interval, so that no keep-alive can repair a lost wake-up.
const KEEP_ALIVE: Duration = Duration::from_mins(10);
const IDLE_TIMEOUT: Duration = Duration::from_mins(30);
const PATIENT_RUN_MAX: Duration = Duration::from_mins(9);

/// The time after which engines probe a silent peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Temper {
    /// The time that programs use.
    Usual,
    /// Never within a run, so that a lost wake-up stays lost.
    Patient,
}

#[test]
fn seeded_runs_0() {
    run_seeds("seeded_runs_0", 0..250, Temper::Usual);
}

#[test]
fn seeded_runs_1() {
    run_seeds("seeded_runs_1", 250..500, Temper::Usual);
}

#[test]
fn seeded_runs_2() {
    run_seeds("seeded_runs_2", 500..750, Temper::Usual);
}

#[test]
fn seeded_runs_3() {
    run_seeds("seeded_runs_3", 750..1000, Temper::Usual);
}

// PROTOCOL CLOSE-8: a flow ends only when its own ends do, and then nothing of it is left.
#[test]
fn patient_runs() {
    run_seeds("patient_runs", 0..300, Temper::Patient);
}

fn run_seeds(test: &'static str, seeds: std::ops::Range<u64>, temper: Temper) {
    for seed in Seed::wanted(seeds) {
        run(Seed::of_test(test, seed), temper);
    }
}

/// One flow: the scripts of its applications, and the result of its dial.
pub(crate) struct Flow {
    pub(crate) token: String,
    pub(crate) client: Script,
    pub(crate) server: Script,
    pub(crate) dial: Dial,
    pub(crate) opens_at: Duration,
    pub(crate) app: Option<AppId>,
}

impl Flow {
    /// Returns true if one of the flow's applications aborts or closes it.
    pub(crate) fn is_cut(&self) -> bool {
        let mut writes = self.client.write.iter().chain(&self.server.write);
        writes.any(|write| matches!(write, Write::Abort | Write::Close))
    }
}

fn run(seed: Seed, temper: Temper) {
    let mut random = seed.random(100);
    let mut flows = random_flows(&mut random);
    let (mut world, one_connection) = random_world(seed, &mut random, temper);
    for flow in &flows {
        world
            .network
            .host(world.server)
            .serve(&flow.token, flow.dial, flow.server.clone());
    }
    for flow in &mut flows {
        let wait = flow.opens_at.saturating_sub(world.network.elapsed());
        world.network.run_for(wait);
        flow.app = Some(
            world
                .network
                .open(world.client, &flow.token, flow.client.clone()),
        );
    }
    let server = world.server;
    // A client that only receives does not notice that it has moved, unless it probes the path.
    let may_move = one_connection && temper == Temper::Usual;
    if may_move && random.chance(1, 4) {
        // RFC 9000 section 9: an endpoint must not move before its handshake is confirmed.
        let up = |event: &Event| matches!(event, Event::Connected { .. });
        while world.count(server, up) == 0 {
            world.network.run_for(SECOND);
        }
        world
            .network
            .run_for(random.time(Duration::ZERO, 3 * SECOND));
        world.network.move_host(world.client);
    }
    let most = match temper {
        Temper::Usual => RUN_MAX,
        Temper::Patient => PATIENT_RUN_MAX,
    };
    world.network.run_until(most, |network| {
        flows.iter().all(|flow| is_over(network, server, flow))
    });
    // If an outage interrupts a handshake, the client may consider a connection open that the server has given up.
    let half_open = |event: &Event| matches!(event, Event::HandshakeFailed { .. });
    let half_open = world.count(server, half_open);
    for flow in &flows {
        check(&world, flow, half_open == 0);
    }
    let lost = |event: &Event| {
        // A connection that was replaced by another one is closed after it has been idle for a while.
        let done = LossReason::ClosedByPeer(CloseCode::Done.to_u64());
        matches!(event, Event::Disconnected { reason, .. }
            if *reason != LossReason::ClosedLocally && *reason != done)
    };
    assert_eq!(world.count(server, lost), 0, "no connection may be lost");
    assert!(
        world.count(world.client, lost) <= half_open,
        "no connection may be lost"
    );
    world.check_nothing_left();
    let client = world.client;
    world.network.command(client, Engine::close);
    // If the client's last packets are lost, the server waits for its idle timeout.
    assert!(
        world
            .network
            .run_to_silence(IDLE_TIMEOUT + Duration::from_mins(10)),
        "a packet or a timer is left"
    );
    for host in [world.client, world.server] {
        check_books(&mut world, host);
    }
    check_both_books(&mut world, &flows);
}

/// Checks that the counters of an engine add up and agree with its events.
pub(crate) fn check_books(world: &mut World, host: HostId) {
    let told = world.closed(host);
    let opened = world.count(host, |event| matches!(event, Event::Open(_)));
    let name = world.network.name(host).to_owned();
    let engine = world.network.host(host).engine();
    let (totals, residue) = (engine.totals(), engine.residue());
    assert_eq!(residue, Residue::default(), "left on the {name}");
    assert!(engine.connection_reports().is_empty(), "left on the {name}");
    assert_eq!(
        totals.connections_opened, totals.connections_closed,
        "{name}: {totals:?}"
    );
    let lost = totals.packets_lost;
    assert!(
        lost == 0 || lost < totals.packets_sent,
        "{name}: {totals:?}"
    );
    let ended = totals.flows_finished + totals.flows_reset + totals.flows_refused;
    assert_eq!(totals.flows_opened, ended, "{name}: {totals:?}");
    assert_eq!(told.len() as u64, ended, "{name}: {totals:?}");
    assert!(opened as u64 <= totals.flows_opened, "{name}: {totals:?}");
    let mut ids: Vec<_> = told.iter().map(|summary| summary.flow).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), told.len(), "{name}: a flow ended twice");
    let sum = |bytes: fn(&FlowSummary) -> u64| told.iter().map(bytes).sum::<u64>();
    assert_eq!(
        (totals.bytes_to_tunnel, totals.bytes_to_app),
        (
            sum(|summary| summary.bytes_to_tunnel),
            sum(|summary| summary.bytes_to_app)
        ),
        "{name}: {totals:?}"
    );
}

/// Checks that both sides have reported the same about every flow that ended in order.
fn check_both_books(world: &mut World, flows: &[Flow]) {
    let (clients, servers) = (world.closed(world.client), world.closed(world.server));
    for flow in flows {
        let of = |told: &[FlowSummary]| -> Vec<FlowSummary> {
            let mine = told.iter().filter(|summary| summary.token == flow.token);
            mine.cloned().collect()
        };
        let (client, server) = (of(&clients), of(&servers));
        let [client] = &client[..] else {
            panic!("{}: {} flows on the client", flow.token, client.len());
        };
        let app = world.network.outcome(flow.app.expect("opened"));
        assert!(client.bytes_to_tunnel <= app.sent, "{client:?} {app:?}");
        assert!(client.bytes_to_app >= app.received, "{client:?} {app:?}");
        // A flow may have been opened more than once, but its bytes were sent only once.
        let carriers = server.iter().filter(|server| server.bytes_to_app > 0);
        assert!(carriers.count() <= 1, "{server:?}");
        if client.ending != Ending::Finished {
            continue;
        }
        let server = server.iter().find(|server| {
            server.stream_id == client.stream_id && server.bytes_to_tunnel == client.bytes_to_app
        });
        let server = server.expect("the server's part of the flow");
        assert_eq!(
            (client.bytes_to_tunnel, client.established),
            (app.sent, true)
        );
        assert!(server.bytes_to_app <= client.bytes_to_tunnel);
    }
}

/// Creates a client and a server. The second value is true if there will be only one connection.
fn random_world(seed: Seed, random: &mut Random, temper: Temper) -> (World, bool) {
    let protocols = random.pick(&[config::NATIVE, config::COMPAT]);
    let mut client = config::client_speaking(protocols, seed.value());
    let mut server = config::server(seed.value());
    for transport in [&mut client.transport, &mut server.transport] {
        transport.stream_window =
            u32::try_from(random.magnitude(16 << 10, 16 << 20)).expect("fits");
        transport.max_segments = random.pick(&[1, 2, 10, 64]);
        transport.account = Account::new(random.pick(&[1 << 20, 16 << 20, 1 << 30]));
        if temper == Temper::Patient {
            (transport.keep_alive, transport.idle_timeout) = (KEEP_ALIVE, IDLE_TIMEOUT);
        }
    }
    client.role.connections = usize::try_from(random.pick(&[1, 1, 1, 3])).expect("small");
    client.role.compat_streams = random.pick(&[80, 80, 3]);
    server.role.always_retry = random.chance(1, 4);
    let up = random_link(random);
    let down = random_link(random);
    let one = protocols == config::NATIVE && client.role.connections == 1;
    (World::with(seed, client, server, up, down), one)
}

pub(crate) fn random_link(random: &mut Random) -> LinkConfig {
    let share = |random: &mut Random, percent: u64| {
        let tenths = u32::try_from(random.within(0, percent * 10 + 1)).expect("small");
        if random.chance(1, 3) {
            0.0
        } else {
            f64::from(tenths) / 1000.0
        }
    };
    let mut link = LinkConfig {
        rate: random
            .chance(3, 4)
            .then(|| random.magnitude(200_000, 12_500_000)),
        delay: random.time(Duration::ZERO, 60 * MS),
        jitter: random.pick(&[Duration::ZERO, MS, 5 * MS]),
        loss: share(random, 10),
        reorder: Reorder {
            share: share(random, 5),
            extra: random.time(Duration::ZERO, 10 * MS),
        },
        duplicate: share(random, 5),
        mtu: random.pick(&[1500, 1500, 1328]),
        ..LinkConfig::default()
    };
    if random.chance(1, 6) {
        let from = random.time(Duration::ZERO, 3 * SECOND);
        let until = from + random.time(Duration::ZERO, 4 * SECOND);
        link.outages.push(Outage { from, until });
    }
    let quarters = random.within(2, 16);
    let queue = link
        .bandwidth_delay(link.delay * 2)
        .saturating_mul(usize::try_from(quarters).expect("small"))
        / 4;
    link.queue = Queue::Bytes(queue.max(20_000));
    link
}

pub(crate) fn random_flows(random: &mut Random) -> Vec<Flow> {
    let count = random.within(1, 9);
    let most = 1_500_000 / count;
    let mut flows: Vec<Flow> = (0..count)
        .map(|number| {
            let mut client = Script::client(number);
            let mut server = Script::server(number);
            if random.chance(1, 6) {
                client = Script::echoed(number);
                server = Script::echo();
                client.write = vec![Write::Send(random.magnitude(1, most)), Write::Finish];
            } else {
                // At most one side waits for the other, so that they never wait for each other.
                let waits = random.within(0, 4);
                client.write = random_writes(random, most, waits == 0);
                server.write = random_writes(random, most, waits == 1);
            }
            for script in [&mut client, &mut server] {
                script.read = random_reads(random);
                script.buffer =
                    usize::try_from(random.magnitude(1 << 10, 128 << 10)).expect("fits");
                script.call_max = random.pick(&[0, 0, 1000, 17]);
            }
            Flow {
                token: format!("flow {number}"),
                client,
                server,
                dial: random_dial(random),
                opens_at: random.time(Duration::ZERO, 2 * SECOND),
                app: None,
            }
        })
        .collect();
    flows.sort_by_key(|flow| flow.opens_at);
    flows
}

fn random_writes(random: &mut Random, most: u64, waits: bool) -> Vec<Write> {
    let mut writes = Vec::new();
    if waits {
        writes.push(Write::ReceivedEnd);
    }
    for _ in 0..random.within(0, 4) {
        if random.chance(1, 3) {
            writes.push(Write::Wait(random.time(Duration::ZERO, SECOND)));
        }
        writes.push(Write::Send(random.magnitude(1, most / 2)));
    }
    writes.push(match random.within(0, 8) {
        0 => Write::Abort,
        1 => Write::Close,
        _ => Write::Finish,
    });
    writes
}

fn random_reads(random: &mut Random) -> Vec<Read> {
    match random.within(0, 6) {
        0 => vec![Read::Pause(random.time(Duration::ZERO, 3 * SECOND))],
        1 => vec![
            Read::Bytes(random.magnitude(1, 50_000)),
            Read::Pause(random.time(Duration::ZERO, SECOND)),
        ],
        2 => vec![Read::Slowly {
            bytes: random.magnitude(1000, 50_000),
            every: random.time(MS, 50 * MS),
        }],
        _ => Vec::new(),
    }
}

fn random_dial(random: &mut Random) -> Dial {
    match random.within(0, 12) {
        0 => Dial::refused(),
        1 => Dial::Never,
        2..=5 => Dial::Connects {
            after: random.time(Duration::ZERO, 500 * MS),
        },
        _ => Dial::connects(),
    }
}

pub(crate) fn is_over(network: &Network, server: HostId, flow: &Flow) -> bool {
    let over = |outcome: &Outcome| outcome.over.is_some();
    flow.app.is_some_and(|app| over(network.outcome(app)))
        && network.dialled(server, &flow.token).is_none_or(over)
}

/// Checks a flow against its scripts. `kept` is true if no connection was lost.
fn check(world: &World, flow: &Flow, kept: bool) {
    let client = world.network.outcome(flow.app.expect("opened"));
    let Some(server) = world.network.dialled(world.server, &flow.token) else {
        // The dial failed, or the client gave up before it. The client must not have seen a FIN.
        let connects = matches!(flow.dial, Dial::Connects { .. });
        let gave_up =
            matches!(client.outgoing, Outgoing::Aborted) || client.incoming == Incoming::Dropped;
        assert!(
            !connects || gave_up || !kept,
            "{}: no dial: {client:?}",
            flow.token
        );
        assert_ne!(client.incoming, Incoming::Fin, "{}: {client:?}", flow.token);
        assert_eq!(client.received, 0);
        return;
    };
    check_direction(flow, "to the server", client, server, &flow.client);
    check_direction(flow, "to the client", server, client, &flow.server);
    if kept && !flow.is_cut() {
        assert!(
            client.is_clean() && server.is_clean(),
            "{}: {client:?} {server:?}",
            flow.token
        );
    }
}

/// Checks that `to` received a prefix of what `from` sent, and all of it if it saw a FIN.
pub(crate) fn check_direction(
    flow: &Flow,
    way: &str,
    from: &Outcome,
    to: &Outcome,
    script: &Script,
) {
    let context = || format!("{} {way}: {from:?} {to:?}", flow.token);
    assert!(to.received <= from.sent, "{}", context());
    match to.incoming {
        Incoming::Open => panic!("{}", context()),
        Incoming::Fin => {
            assert_eq!(
                from.outgoing,
                Outgoing::Finished,
                "an abort looks like a FIN: {}",
                context()
            );
            assert_eq!(
                to.received,
                from.sent,
                "a FIN before the last byte: {}",
                context()
            );
        }
        Incoming::Reset | Incoming::Dropped => {}
    }
    let aborts = script.write.contains(&Write::Abort);
    if aborts && from.outgoing == Outgoing::Aborted {
        assert_ne!(to.incoming, Incoming::Fin, "{}", context());
    }
}
