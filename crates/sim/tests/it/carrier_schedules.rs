//! Random faults under random applications, with TLS beside QUIC: middleboxes block and slow down UDP, and cut TCP
//! connections. Flows of bonds outlive all that.
//!
//! To run more seeds: `QUICTUN_SEED=0..20000 cargo test --release -p quictun-sim --test it over_both_carriers_0`.

use std::ops::Range;
use std::time::Duration;

use quictun_sim::engine::CarrierChoice;
use quictun_sim::{FilterRule, PathFilter, Random, Seed};

use crate::carriers::{BOTH_PASS, NEITHER, NO_TCP, NO_UDP};
use crate::injected_faults::InjectedFault;
use crate::schedules::{FaultRun, SurvivingFlows};
use crate::tunnel_pair::{MS, SECOND};

#[test]
fn flows_of_bonds_outlive_faults_over_both_carriers_0() {
    let test = "carrier_schedules::flows_of_bonds_outlive_faults_over_both_carriers_0";
    run_seeds(test, 0..300, false, CarrierChoice::Auto);
}

#[test]
fn flows_of_bonds_outlive_faults_over_both_carriers_1() {
    let test = "carrier_schedules::flows_of_bonds_outlive_faults_over_both_carriers_1";
    run_seeds(test, 300..600, true, CarrierChoice::Auto);
}

#[test]
fn flows_of_bonds_outlive_faults_over_tls_alone() {
    let test = "carrier_schedules::flows_of_bonds_outlive_faults_over_tls_alone";
    run_seeds(test, 0..300, false, CarrierChoice::Tls);
}

/// A flow of this seed moves from QUIC to TLS and waits when TLS is lost, too. Then the connection by QUIC answers again.
#[test]
fn flows_that_wait_continue_on_an_earlier_connection_that_answers_again() {
    let test =
        "carrier_schedules::flows_that_wait_continue_on_an_earlier_connection_that_answers_again";
    run_seeds(test, 948..949, true, CarrierChoice::Auto);
}

/// The server of this seed sleeps for four minutes right after an application has reset its connection.
#[test]
fn bytes_before_a_reset_outlive_a_sleep_of_the_process() {
    let test = "carrier_schedules::bytes_before_a_reset_outlive_a_sleep_of_the_process";
    run_seeds(test, 47143..47144, false, CarrierChoice::Auto);
}

/// The server of this seed has sent everything that the target of a flow wrote, and waits for the client. It gives that
/// up when it wakes, because memory is short, and the client must be told so.
#[test]
fn a_finished_flow_that_is_given_up_names_the_limit() {
    let test = "carrier_schedules::a_finished_flow_that_is_given_up_names_the_limit";
    run_seeds(test, 112_941..112_942, false, CarrierChoice::Tls);
}

/// Clients' applications of these seeds are over long before their flows, which a sleeping server keeps open.
#[test]
fn flows_outlive_their_applications_until_their_connection_ends() {
    let test = "carrier_schedules::flows_outlive_their_applications_until_their_connection_ends";
    run_seeds(test, 82_054..82_055, false, CarrierChoice::Auto);
    run_seeds(test, 131_549..131_550, false, CarrierChoice::Tls);
}

fn run_seeds(test: &'static str, seeds: Range<u64>, reverse: bool, choice: CarrierChoice) {
    for seed in Seed::wanted(seeds) {
        let seed = Seed::of_test(test, seed);
        FaultRun::new(seed, SurvivingFlows::All, reverse, choice).run();
    }
}

/// The server of this seed closes a connection by TLS whose parameters are lost at first. The client reads both at once.
#[test]
fn flows_of_bonds_outlive_a_close_that_arrives_with_the_end_of_the_handshake() {
    let test = "carrier_schedules::flows_of_bonds_outlive_a_close_that_arrives_with_the_end_of_the_handshake";
    run_seeds(test, 667..668, true, CarrierChoice::Auto);
    run_seeds(test, 2926..2927, false, CarrierChoice::Tls);
}

/// Returns the faults of middleboxes that begin `within` this time. At the end both kinds of packets pass.
pub(crate) fn random_middleboxes(
    random: &mut Random,
    within: Duration,
) -> Vec<(Duration, InjectedFault)> {
    let mut faults = Vec::new();
    let mut last = Duration::ZERO;
    if random.chance(1, 4) {
        faults.push((Duration::ZERO, InjectedFault::Filter(NO_UDP)));
    }
    for _ in 0..random.within(1, 7) {
        let at = random.time(Duration::ZERO, within);
        let until = at + random.time(MS, 20 * SECOND);
        last = last.max(until);
        let throttle = PathFilter {
            udp: FilterRule::Police {
                after: random.magnitude(10_000, 1_000_000),
                rate: 125_000.0,
            },
            tcp: FilterRule::Pass,
        };
        let filter = match random.within(0, 10) {
            0..=3 => NO_UDP,
            4 => NO_TCP,
            5 => NEITHER,
            6 => throttle,
            7 | 8 => {
                faults.push((at, InjectedFault::CutTcp));
                continue;
            }
            _ => {
                faults.push((at, InjectedFault::SilenceTcp));
                continue;
            }
        };
        faults.push((at, InjectedFault::Filter(filter)));
        if random.chance(2, 3) {
            faults.push((until, InjectedFault::Filter(BOTH_PASS)));
        }
    }
    faults.push((last, InjectedFault::Filter(BOTH_PASS)));
    faults
}
