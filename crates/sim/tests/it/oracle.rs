//! Random links and random applications, checked by one oracle: received bytes are sent bytes, in order, and both sides
//! see every close as what it was.

use std::time::Duration;

use quictun_sim::engine::{
    Account, Ending, EngineEvent, Event, FlowResources, FlowSummary, LossReason, ServerEvent,
};
use quictun_sim::{
    AppId, AppOutcome, HostEngine, HostId, IncomingState, LinkConfig, Network, Outage,
    OutgoingState, Queue, Random, ReadStep, Reorder, Script, Seed, SimulatedDial, WriteStep,
    config,
};
use quictun_wire::code::CloseCode;

use crate::tunnel_pair::{MS, SECOND, TunnelPair};

/// Maximum duration of a run in virtual time.
const RUN_MAX: Duration = Duration::from_mins(20);

/// Keep-alive interval and idle timeout of patient engines, and the maximum duration of their runs. The runs are
/// shorter than the keep-alive interval, so that no keep-alive can repair a lost wake-up.
const KEEP_ALIVE: Duration = Duration::from_mins(10);
const IDLE_TIMEOUT: Duration = Duration::from_mins(30);
const PATIENT_RUN_MAX: Duration = Duration::from_mins(9);

/// The time after which engines probe a silent peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbeTiming {
    /// The time that programs use.
    Usual,
    /// Never within a run, so that a lost wake-up stays lost.
    Patient,
}

#[test]
fn seeded_runs_0() {
    run_seeds("seeded_runs_0", 0..250, ProbeTiming::Usual);
}

#[test]
fn seeded_runs_1() {
    run_seeds("seeded_runs_1", 250..500, ProbeTiming::Usual);
}

#[test]
fn seeded_runs_2() {
    run_seeds("seeded_runs_2", 500..750, ProbeTiming::Usual);
}

#[test]
fn seeded_runs_3() {
    run_seeds("seeded_runs_3", 750..1000, ProbeTiming::Usual);
}

// PROTOCOL CLOSE-8: a flow ends only when its own ends do, and then nothing of it is left.
#[test]
fn patient_runs() {
    run_seeds("patient_runs", 0..300, ProbeTiming::Patient);
}

fn run_seeds(test: &'static str, seeds: std::ops::Range<u64>, timing: ProbeTiming) {
    for seed in Seed::wanted(seeds) {
        run(Seed::of_test(test, seed), timing);
    }
}

/// One flow: the scripts of its applications, and the result of its dial.
pub(crate) struct ScriptedFlow {
    pub(crate) token: String,
    /// The script of the application that connects, to the client or to a listener of the server.
    pub(crate) client: Script,
    /// The script of the application that is dialled.
    pub(crate) server: Script,
    /// Number of the reverse forward, if the flow is one of a reverse forward.
    pub(crate) reverse: Option<u64>,
    pub(crate) dial: SimulatedDial,
    pub(crate) opens_at: Duration,
    pub(crate) app: Option<AppId>,
}

impl ScriptedFlow {
    /// Returns true if one of the flow's applications aborts or closes it.
    pub(crate) fn is_cut(&self) -> bool {
        let mut writes = self.client.write.iter().chain(&self.server.write);
        writes.any(|write| matches!(write, WriteStep::Abort | WriteStep::Close))
    }
}

fn run(seed: Seed, timing: ProbeTiming) {
    let mut random = seed.random(100);
    let mut flows = random_flows(&mut random);
    let (mut pair, one_connection) = random_world(seed, &mut random, timing);
    for flow in &flows {
        pair.network
            .host(pair.server)
            .serve(&flow.token, flow.dial, flow.server.clone());
    }
    for flow in &mut flows {
        let wait = flow.opens_at.saturating_sub(pair.network.elapsed());
        pair.network.run_for(wait);
        flow.app = Some(
            pair.network
                .open(pair.client, &flow.token, flow.client.clone()),
        );
    }
    let server = pair.server;
    // A client that only receives does not notice that it has moved, unless it probes the path.
    let may_move = one_connection && timing == ProbeTiming::Usual;
    if may_move && random.chance(1, 4) {
        // RFC 9000 section 9: an endpoint must not move before its handshake is confirmed.
        let up =
            |event: &EngineEvent| matches!(event, EngineEvent::Shared(Event::Connected { .. }));
        while pair.count(server, up) == 0 {
            pair.network.run_for(SECOND);
        }
        pair.network
            .run_for(random.time(Duration::ZERO, 3 * SECOND));
        pair.network.move_host(pair.client);
    }
    let most = match timing {
        ProbeTiming::Usual => RUN_MAX,
        ProbeTiming::Patient => PATIENT_RUN_MAX,
    };
    pair.network.run_until(most, |network| {
        flows.iter().all(|flow| is_over(network, server, flow))
    });
    // If an outage interrupts a handshake, the client may consider a connection open that the server has given up.
    let half_open = |event: &EngineEvent| {
        matches!(
            event,
            EngineEvent::Server(ServerEvent::HandshakeFailed { .. })
        )
    };
    let half_open = pair.count(server, half_open);
    for flow in &flows {
        check(&pair, flow, half_open == 0);
    }
    let lost = |event: &EngineEvent| {
        // A connection that was replaced by another one is closed after it has been idle for a while.
        let done = LossReason::ClosedByPeer(CloseCode::Done.to_u64());
        matches!(event, EngineEvent::Shared(Event::Disconnected { reason, .. })
            if *reason != LossReason::ClosedLocally && *reason != done)
    };
    assert_eq!(pair.count(server, lost), 0, "no connection may be lost");
    assert!(
        pair.count(pair.client, lost) <= half_open,
        "no connection may be lost"
    );
    pair.check_nothing_left();
    let client = pair.client;
    pair.network.command(client, HostEngine::close);
    // If the client's last packets are lost, the server waits for its idle timeout.
    assert!(
        pair.network
            .run_to_silence(IDLE_TIMEOUT + Duration::from_mins(10)),
        "a packet or a timer is left"
    );
    for host in [pair.client, pair.server] {
        check_accounting(&mut pair, host);
    }
    check_both_accountings(&mut pair, &flows);
}

/// Checks that the counters of an engine add up and agree with its events.
pub(crate) fn check_accounting(pair: &mut TunnelPair, host: HostId) {
    let told = pair.closed(host);
    let opened = pair.count(host, |event| {
        matches!(event, EngineEvent::Server(ServerEvent::Open(_)))
    });
    let name = pair.network.name(host).to_owned();
    let engine = pair.network.host(host).engine();
    let (totals, residue) = (engine.totals(), engine.flow_resources());
    assert_eq!(residue, FlowResources::default(), "left on the {name}");
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
fn check_both_accountings(pair: &mut TunnelPair, flows: &[ScriptedFlow]) {
    let (clients, servers) = (pair.closed(pair.client), pair.closed(pair.server));
    for flow in flows {
        let of = |told: &[FlowSummary]| -> Vec<FlowSummary> {
            let mine = told.iter().filter(|summary| summary.token == flow.token);
            mine.cloned().collect()
        };
        let (client, server) = (of(&clients), of(&servers));
        let [client] = &client[..] else {
            panic!("{}: {} flows on the client", flow.token, client.len());
        };
        let app = pair.network.outcome(flow.app.expect("opened"));
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
fn random_world(seed: Seed, random: &mut Random, timing: ProbeTiming) -> (TunnelPair, bool) {
    let protocols = random.pick(&[config::NATIVE, config::COMPAT]);
    let mut client = config::client_speaking(protocols, seed.value());
    let mut server = config::server(seed.value());
    for transport in [&mut client.transport, &mut server.transport] {
        transport.stream_window =
            u32::try_from(random.magnitude(16 << 10, 16 << 20)).expect("fits");
        transport.max_segments = random.pick(&[1, 2, 10, 64]);
        transport.account = Account::new(random.pick(&[1 << 20, 16 << 20, 1 << 30]));
        if timing == ProbeTiming::Patient {
            (transport.keep_alive, transport.idle_timeout) = (KEEP_ALIVE, IDLE_TIMEOUT);
        }
    }
    client.role.connections = usize::try_from(random.pick(&[1, 1, 1, 3])).expect("small");
    client.role.compat_streams = random.pick(&[80, 80, 3]);
    server.role.always_retry = random.chance(1, 4);
    let up = random_link(random);
    let down = random_link(random);
    let one = protocols == config::NATIVE && client.role.connections == 1;
    (TunnelPair::with(seed, client, server, up, down), one)
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

pub(crate) fn random_flows(random: &mut Random) -> Vec<ScriptedFlow> {
    let count = random.within(1, 9);
    let most = 1_500_000 / count;
    let mut flows: Vec<ScriptedFlow> = (0..count)
        .map(|number| {
            let mut client = Script::client(number);
            let mut server = Script::server(number);
            if random.chance(1, 6) {
                client = Script::echoed(number);
                server = Script::echo();
                client.write = vec![
                    WriteStep::Send(random.magnitude(1, most)),
                    WriteStep::Finish,
                ];
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
                // The smallest calls of all are rare: the send buffer of the library has a segment for each of them, and
                // searches them from the front for each packet.
                let few = usize::try_from(random.magnitude(17, 1000)).expect("fits");
                script.call_max = random.pick(&[0, 0, 1000, few]);
            }
            ScriptedFlow {
                token: format!("flow {number}"),
                client,
                server,
                reverse: None,
                dial: random_dial(random),
                opens_at: random.time(Duration::ZERO, 2 * SECOND),
                app: None,
            }
        })
        .collect();
    flows.sort_by_key(|flow| flow.opens_at);
    flows
}

fn random_writes(random: &mut Random, most: u64, waits: bool) -> Vec<WriteStep> {
    let mut writes = Vec::new();
    if waits {
        writes.push(WriteStep::ReceivedEnd);
    }
    for _ in 0..random.within(0, 4) {
        if random.chance(1, 3) {
            writes.push(WriteStep::Wait(random.time(Duration::ZERO, SECOND)));
        }
        writes.push(WriteStep::Send(random.magnitude(1, most / 2)));
    }
    writes.push(match random.within(0, 8) {
        0 => WriteStep::Abort,
        1 => WriteStep::Close,
        _ => WriteStep::Finish,
    });
    writes
}

fn random_reads(random: &mut Random) -> Vec<ReadStep> {
    match random.within(0, 6) {
        0 => vec![ReadStep::Pause(random.time(Duration::ZERO, 3 * SECOND))],
        1 => vec![
            ReadStep::Bytes(random.magnitude(1, 50_000)),
            ReadStep::Pause(random.time(Duration::ZERO, SECOND)),
        ],
        2 => vec![ReadStep::Slowly {
            bytes: random.magnitude(1000, 50_000),
            every: random.time(MS, 50 * MS),
        }],
        _ => Vec::new(),
    }
}

fn random_dial(random: &mut Random) -> SimulatedDial {
    match random.within(0, 12) {
        0 => SimulatedDial::refused(),
        1 => SimulatedDial::Never,
        2..=5 => SimulatedDial::Connects {
            after: random.time(Duration::ZERO, 500 * MS),
        },
        _ => SimulatedDial::connects(),
    }
}

/// Returns true if all applications of a flow have ended. The host `dials` has dialled the flow's target, more than once if
/// the client has asked again.
pub(crate) fn is_over(network: &Network, dials: HostId, flow: &ScriptedFlow) -> bool {
    let over = |outcome: &AppOutcome| outcome.over.is_some();
    flow.app.is_some_and(|app| over(network.outcome(app)))
        && network.all_dialled(dials, &flow.token).all(over)
}

/// Checks a flow against its scripts. `kept` is true if no connection was lost.
fn check(pair: &TunnelPair, flow: &ScriptedFlow, kept: bool) {
    let client = pair.network.outcome(flow.app.expect("opened"));
    let Some(server) = pair.network.dialled(pair.server, &flow.token) else {
        // The dial failed, or the client gave up before it. The client must not have seen a FIN.
        let connects = matches!(flow.dial, SimulatedDial::Connects { .. });
        let gave_up = matches!(client.outgoing, OutgoingState::Aborted)
            || client.incoming == IncomingState::Dropped;
        assert!(
            !connects || gave_up || !kept,
            "{}: no dial: {client:?}",
            flow.token
        );
        assert_ne!(
            client.incoming,
            IncomingState::Fin,
            "{}: {client:?}",
            flow.token
        );
        assert_eq!(client.received, 0);
        return;
    };
    check_direction(flow, "to the server", client, server, &flow.client);
    check_direction(flow, "to the client", server, client, &flow.server);
    if kept {
        check_reset(flow, client, server);
        check_reset(flow, server, client);
    }
    if kept && !flow.is_cut() {
        assert!(
            client.is_clean() && server.is_clean(),
            "{}: {client:?} {server:?}",
            flow.token
        );
    }
}

/// Checks that `to` received everything that `from` sent before its reset, unless `to` itself cut the flow (PROTOCOL
/// CLOSE-3).
pub(crate) fn check_reset(flow: &ScriptedFlow, from: &AppOutcome, to: &AppOutcome) {
    if from.incoming == IncomingState::Dropped && to.incoming == IncomingState::Reset {
        assert_eq!(to.received, from.sent, "{}: {from:?} {to:?}", flow.token);
    }
}

/// Checks that `to` received a prefix of what `from` sent, and all of it if it saw a FIN.
pub(crate) fn check_direction(
    flow: &ScriptedFlow,
    way: &str,
    from: &AppOutcome,
    to: &AppOutcome,
    script: &Script,
) {
    let context = || format!("{} {way}: {from:?} {to:?}", flow.token);
    assert!(to.received <= from.sent, "{}", context());
    match to.incoming {
        IncomingState::Open => panic!("{}", context()),
        IncomingState::Fin => {
            assert_eq!(
                from.outgoing,
                OutgoingState::Finished,
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
        IncomingState::Reset | IncomingState::Dropped => {}
    }
    let aborts = script.write.contains(&WriteStep::Abort);
    if aborts && from.outgoing == OutgoingState::Aborted {
        assert_ne!(to.incoming, IncomingState::Fin, "{}", context());
    }
}
