//! Another process takes over from a server or a client: its flows continue there, none is served by both, and no byte is
//! lost or arrives twice (docs/HANDOVER.md).
//!
//! To run more seeds: `QUICTUN_SEED=0..10000 cargo test --release -p quictun-sim --test it hand_over::flows`,
//! `hand_over::clients` or `hand_over::a_process`.

use std::time::Duration;

use quictun_sim::engine::{CarrierChoice, report::RestartCost};
use quictun_sim::{
    AppId, HostEngine, HostId, IncomingState, LinkConfig, Script, Seed, SimulatedDial, WriteStep,
    config,
};

use crate::datagram_schedules::{check_datagrams, datagrams, random_datagram_flows};
use crate::endings::EndHost;
use crate::schedules::{FaultRun, SurvivingFlows};
use crate::tunnel_pair::{MS, SECOND, TunnelPair, limited, wire};

const TTL: Duration = Duration::from_mins(5);

#[test]
fn flows_outlive_hand_overs_and_other_faults() {
    for (carrier, seeds) in [
        (CarrierChoice::Quic, 0..140),
        (CarrierChoice::Auto, 140..170),
        (CarrierChoice::Tls, 170..200),
    ] {
        for seed in Seed::wanted(seeds) {
            let seed = Seed::of_test("hand_over::flows_outlive_hand_overs_and_other_faults", seed);
            FaultRun::new(seed, SurvivingFlows::All, false, carrier)
                .with_hand_overs(EndHost::Server)
                .run();
        }
    }
}

#[test]
fn clients_flows_outlive_hand_overs_and_other_faults() {
    for (carrier, seeds) in [
        (CarrierChoice::Quic, 0..140),
        (CarrierChoice::Auto, 140..170),
        (CarrierChoice::Tls, 170..200),
    ] {
        for seed in Seed::wanted(seeds) {
            let test = "hand_over::clients_flows_outlive_hand_overs_and_other_faults";
            let seed = Seed::of_test(test, seed);
            FaultRun::new(seed, SurvivingFlows::All, false, carrier)
                .with_hand_overs(EndHost::Client)
                .run();
        }
    }
}

#[test]
fn flows_outlive_hand_overs_of_both_sides() {
    for run in runs_with_datagrams("hand_over::flows_outlive_hand_overs_of_both_sides") {
        run.with_hand_overs(EndHost::Client).run();
    }
}

#[test]
fn datagram_flows_and_reverse_flows_outlive_hand_overs() {
    let test = "hand_over::datagram_flows_and_reverse_flows_outlive_hand_overs";
    runs_with_datagrams(test).for_each(FaultRun::run);
}

/// The flows continue in the process that lives. If none does, they are reset.
#[test]
fn a_process_that_dies_in_a_hand_over_loses_no_byte() {
    for seed in Seed::wanted(0..400) {
        let test = "hand_over::a_process_that_dies_in_a_hand_over_loses_no_byte";
        let seed = Seed::of_test(test, seed);
        let mut random = seed.random(301);
        let carrier = random.pick(&[
            CarrierChoice::Quic,
            CarrierChoice::Quic,
            CarrierChoice::Auto,
            CarrierChoice::Tls,
        ]);
        let sides = random.pick(&[
            &[EndHost::Server][..],
            &[EndHost::Client],
            &[EndHost::Server, EndHost::Client],
        ]);
        let reverse = random.chance(1, 2);
        let run = FaultRun::new(seed, SurvivingFlows::All, reverse, carrier);
        let run = sides
            .iter()
            .fold(run, |run, &side| run.with_deaths_in_hand_overs(side));
        run.run();
    }
}

/// Returns runs with hand-overs of the server, and with flows of datagrams and of reverse forwards.
fn runs_with_datagrams(test: &'static str) -> impl Iterator<Item = FaultRun> {
    Seed::wanted(0..60).map(move |seed| {
        let seed = Seed::of_test(test, seed);
        let datagrams = random_datagram_flows(&mut seed.random(300));
        FaultRun::new(seed, SurvivingFlows::Some, true, CarrierChoice::Quic)
            .with_flows(datagrams)
            .with_hand_overs(EndHost::Server)
    })
}

const TARGET: &str = "udp:target:4000";

fn pair() -> TunnelPair {
    let link = limited(2_000_000, 20 * MS);
    pair_by(link.clone(), link)
}

/// Returns a pair with these links to the server and from it.
fn pair_by(up: LinkConfig, down: LinkConfig) -> TunnelPair {
    let (mut client, mut server) = (
        config::client_speaking(config::NATIVE, 1),
        config::server(1),
    );
    (client.role.bond_ttl, server.role.bond_ttl) = (TTL, TTL);
    let mut pair = TunnelPair::with(Seed::fixed(1), client, server, up, down);
    pair.network
        .host(pair.server)
        .serve("echo", SimulatedDial::connects(), Script::echo());
    pair.connect();
    pair
}

/// Lets a process hand over. If the next one does not commit, a client closes its old connections later: see [`leave`].
fn hand_over(pair: &mut TunnelPair, side: EndHost, process: u64, commits: bool) {
    let id = host(pair, side);
    pair.network.command(id, HostEngine::detach_all);
    match side {
        EndHost::Client => {
            let mut config = config::client_speaking(config::NATIVE, process);
            config.role.bond_ttl = TTL;
            pair.network.hand_over_client(id, config, commits);
        }
        EndHost::Server => {
            pair.network.command(id, HostEngine::close_detached);
            pair.network.run_for(Duration::ZERO);
            let mut config = config::server(process);
            config.role.bond_ttl = TTL;
            pair.network.hand_over(id, config, commits);
        }
    }
}

fn host(pair: &TunnelPair, side: EndHost) -> HostId {
    match side {
        EndHost::Client => pair.client,
        EndHost::Server => pair.server,
    }
}

/// Lets a process that goes on close the connections whose flows it has detached.
fn leave(pair: &mut TunnelPair, side: EndHost) {
    let id = host(pair, side);
    pair.network.command(id, HostEngine::close_detached);
}

#[test]
fn a_transfer_continues_in_each_next_process_after_a_few_round_trips() {
    for side in [EndHost::Server, EndHost::Client] {
        continues_after_a_few_round_trips(side);
    }
}

fn continues_after_a_few_round_trips(side: EndHost) {
    let mut pair = pair();
    let script = Script::echoed(1).write([WriteStep::Send(60_000_000), WriteStep::Finish]);
    let app = pair.network.open(pair.client, "echo", script);
    for process in 2..6 {
        // A client that has lost several connections within seconds waits before it dials again.
        pair.network.run_for(6 * SECOND);
        hand_over(&mut pair, side, process, process != 4);
        let before = pair.received(app);
        let took = pair.network.run_until(5 * SECOND, |network| {
            network.outcome(app).received > before + 100_000
        });
        assert!(took <= 400 * MS, "{side:?} {process}: {took:?}");
        leave(&mut pair, side);
    }
    if side == EndHost::Client {
        // The bond continues on the connection that the client wants anyway.
        assert_eq!(pair.up(pair.client).len(), 1);
        forget_connections(&mut pair, app, 60 * SECOND);
    }
    pair.finish(app, 60_000_000, 60 * SECOND);
}

/// More flows than may wait for a client that has lost its connection.
#[test]
fn no_limit_ends_flows_that_are_handed_over() {
    for side in [EndHost::Server, EndHost::Client] {
        for commits in [true, false] {
            hands_many_flows_over(side, commits);
        }
    }
}

fn hands_many_flows_over(side: EndHost, commits: bool) {
    let mut pair = pair();
    let script = || {
        let pause = WriteStep::Wait(60 * SECOND);
        Script::echoed(1).write([WriteStep::Send(1000), pause, WriteStep::Finish])
    };
    let client = pair.client;
    let apps: Vec<_> = (0..4200)
        .map(|_| pair.network.open(client, "echo", script()))
        .collect();
    pair.network.run_for(30 * SECOND);
    let id = host(&pair, side);
    let cost = pair.network.host(id).engine().restart_cost();
    let all = RestartCost {
        continuing: 4200,
        ..RestartCost::default()
    };
    assert_eq!(cost, all);
    hand_over(&mut pair, side, 2, commits);
    pair.network.run_for(3 * SECOND);
    leave(&mut pair, side);
    pair.network.run_until(120 * SECOND, |network| {
        apps.iter().all(|&app| network.outcome(app).is_over())
    });
    if side == EndHost::Client {
        forget_connections(&mut pair, apps[0], Duration::ZERO);
    }
    for app in apps {
        pair.finish(app, 1000, Duration::ZERO);
    }
}

/// A flow that its server has not answered ends with the process of its client, and the server learns that at once.
#[test]
fn the_server_is_told_of_a_flow_that_was_not_answered() {
    let mut pair = pair();
    let slow = SimulatedDial::Connects { after: 100 * MS };
    let script = Script::echo();
    pair.network.host(pair.server).serve("slow", slow, script);
    let open = Script::echoed(1).write([WriteStep::Wait(60 * SECOND), WriteStep::Finish]);
    let app = pair.network.open(pair.client, "slow", open);
    pair.network.run_for(50 * MS);
    hand_over(&mut pair, EndHost::Client, 2, true);
    pair.network.run_for(2 * SECOND);
    let outcome = pair.network.outcome(app);
    assert_eq!(outcome.incoming, IncomingState::Reset, "{outcome:?}");
    let targets = pair.network.host(pair.server).apps_of("slow");
    let targets: Vec<_> = targets.map(|target| target.outcome().incoming).collect();
    assert_eq!(targets, [IncomingState::Reset]);
}

/// Waits until the application is done, and the server has given up the connections of a client's earlier processes.
fn forget_connections(pair: &mut TunnelPair, app: AppId, within: Duration) {
    pair.network
        .run_until(within, |network| network.outcome(app).is_over());
    pair.network.run_for(60 * SECOND);
}

/// Opens a flow that sends a datagram of this length every 10 ms, to a target with this script.
fn open_datagrams(pair: &mut TunnelPair, length: usize, target: Vec<WriteStep>) -> AppId {
    let server = pair.network.host(pair.server);
    server.serve(TARGET, SimulatedDial::connects(), datagrams(1, target));
    let steps = [WriteStep::Datagram(length), WriteStep::Wait(10 * MS)];
    let write = steps.into_iter().cycle().take(2000).collect();
    pair.network.open(pair.client, TARGET, datagrams(0, write))
}

/// The new process numbers the datagrams that it fragments from 0. Their fragments are not joined with those that the old
/// process has sent, some of which are lost here.
#[test]
fn fragments_of_two_processes_are_not_joined() {
    let lossy = LinkConfig {
        loss: 0.2,
        ..wire(20 * MS)
    };
    let mut pair = pair_by(wire(20 * MS), lossy);
    let app = open_datagrams(&mut pair, 3000, vec![WriteStep::Echo, WriteStep::Finish]);
    for process in 2..5 {
        pair.network.run_for(300 * MS);
        hand_over(&mut pair, EndHost::Server, process, true);
        pair.network.run_for(6 * SECOND);
    }
    let [up, down] = check_datagrams(&pair.network, app, pair.server, TARGET);
    assert!(up > 300 && down > 50, "{up} and {down}");
}

// PROTOCOL UDP-7: the target has answered the old process.
#[test]
fn a_target_that_has_answered_counts_as_known_to_the_next_process() {
    let mut pair = pair();
    let once = vec![WriteStep::Datagram(50), WriteStep::ReceivedEnd];
    let app = open_datagrams(&mut pair, 50, once);
    pair.network.run_for(SECOND);
    let arrived = |pair: &TunnelPair| check_datagrams(&pair.network, app, pair.server, TARGET);
    let [before, answers] = arrived(&pair);
    assert!(before > 50 && answers == 1, "{before} and {answers}");
    hand_over(&mut pair, EndHost::Server, 2, true);
    pair.network.run_for(2 * SECOND);
    let [after, _] = arrived(&pair);
    assert!(after > before + 50, "{before} and {after}");
}
