//! Random faults under applications that exchange datagrams: none is delivered twice, altered or invented, and the flows
//! outlive the faults as those of streams do.
//!
//! To run more seeds: `QUICTUN_SEED=0..20000 cargo test --release -p quictun-sim --test it outlive_faults_over_quic`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use quictun_sim::engine::CarrierChoice;
use quictun_sim::{App, AppId, HostId, Network, Random, Script, Seed, SimulatedDial, WriteStep};

use crate::oracle::ScriptedFlow;
use crate::schedules::{FaultRun, SurvivingFlows};
use crate::tunnel_pair::{MS, SECOND};

#[test]
fn datagram_flows_outlive_faults_over_quic() {
    let test = "datagram_schedules::datagram_flows_outlive_faults_over_quic";
    run_seeds(test, 0..400, SurvivingFlows::All, CarrierChoice::Quic);
}

/// In this run, the idle time of a flow ends at the moment of its move.
#[test]
fn a_flow_that_ends_while_it_moves_leaves_no_stream_and_no_flow_of_the_server() {
    let test = "datagram_schedules::a_flow_that_ends_while_it_moves_leaves_no_stream_and_no_flow_of_the_server";
    run_seeds(test, 7120..7121, SurvivingFlows::All, CarrierChoice::Quic);
}

#[test]
fn datagram_flows_outlive_faults_over_both_carriers() {
    let test = "datagram_schedules::datagram_flows_outlive_faults_over_both_carriers";
    run_seeds(test, 0..300, SurvivingFlows::All, CarrierChoice::Auto);
}

#[test]
fn datagram_flows_outlive_faults_over_tls_alone() {
    let test = "datagram_schedules::datagram_flows_outlive_faults_over_tls_alone";
    run_seeds(test, 0..150, SurvivingFlows::All, CarrierChoice::Tls);
}

#[test]
fn nothing_is_left_of_datagram_flows_without_bonds() {
    let test = "datagram_schedules::nothing_is_left_of_datagram_flows_without_bonds";
    run_seeds(test, 0..100, SurvivingFlows::Nothing, CarrierChoice::Quic);
}

fn run_seeds(
    test: &'static str,
    seeds: Range<u64>,
    surviving: SurvivingFlows,
    choice: CarrierChoice,
) {
    for seed in Seed::wanted(seeds) {
        let seed = Seed::of_test(test, seed);
        let flows = random_datagram_flows(&mut seed.random(300));
        let run = FaultRun::new(seed, surviving, false, choice);
        run.with_flows(flows).run();
    }
}

pub(crate) fn random_datagram_flows(random: &mut Random) -> Vec<ScriptedFlow> {
    let count = random.within(1, 5);
    let flow = |number: u64| {
        let port = random.pick(&[53, 3478, 51820]);
        let echo = random.chance(1, 2);
        let server = if echo {
            vec![WriteStep::Echo, WriteStep::Finish]
        } else {
            random_datagrams(random)
        };
        ScriptedFlow {
            token: format!("udp:target-{number}:{port}"),
            client: datagrams(2 * number, random_datagrams(random)),
            server: datagrams(2 * number + 1, server),
            reverse: None,
            dial: SimulatedDial::Connects {
                after: random.time(Duration::ZERO, SECOND),
            },
            opens_at: random.time(Duration::ZERO, 20 * SECOND),
            app: None,
        }
    };
    (1000..1000 + count).map(flow).collect()
}

/// Returns the script of an application that exchanges datagrams.
pub(crate) fn datagrams(number: u64, write: Vec<WriteStep>) -> Script {
    Script {
        sends: number,
        write,
        datagrams: true,
        ..Script::default()
    }
}

/// Returns steps that send datagrams now and then, in bursts, and that end in FIN.
fn random_datagrams(random: &mut Random) -> Vec<WriteStep> {
    let mut steps = Vec::new();
    for _ in 0..random.within(1, 20) {
        let longest = random.pick(&[0, 50, 200, 1200, 1400, 9000, 65_527]);
        for _ in 0..random.within(1, 8) {
            let len = random.within(0, longest + 1);
            steps.push(WriteStep::Datagram(usize::try_from(len).expect("small")));
        }
        steps.push(WriteStep::Wait(random.time(MS, 4 * SECOND)));
    }
    if random.chance(1, 4) {
        // The flow is idle from here on.
        steps.push(WriteStep::ReceivedEnd);
    }
    steps.push(WriteStep::Finish);
    steps
}

/// Checks the datagrams of a flow between the application `opens` and those that the host `dials` has dialled for it.
/// Returns how many of them have arrived, to the target and from it.
pub(crate) fn check_datagrams(
    network: &Network,
    opens: AppId,
    dials: HostId,
    token: &str,
) -> [usize; 2] {
    let client = network.app(opens);
    let servers: Vec<&App> = network.apps_of(dials, token).collect();
    // A request that was sent twice may have been answered twice, by different targets.
    let [up, down] = [(&[client][..], &servers[..]), (&servers[..], &[client][..])];
    [up, down].map(|(from, to)| {
        let mut sent = BTreeMap::new();
        for payload in from.iter().flat_map(|app| app.datagrams_sent()) {
            *sent.entry(payload).or_insert(0) += 1;
        }
        let mut arrived = 0;
        for payload in to.iter().flat_map(|app| app.datagrams_received()) {
            let left = sent
                .get_mut(payload)
                .unwrap_or_else(|| panic!("{token}: {} bytes that were not sent", payload.len()));
            assert!(*left > 0, "{token}: {} bytes arrived twice", payload.len());
            *left -= 1;
            arrived += 1;
        }
        arrived
    })
}
