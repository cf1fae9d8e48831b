//! The shares that other flows keep, and the reaction of a sender to a change of its share.

use std::time::Duration;

use crate::links::{auto, background, cubic, link, sender, shares};
use crate::simulation::{SenderConfig, Simulation};

/// Returns Jain's fairness index, which is 1 if all shares are equal.
fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    sum * sum / (shares.len() as f64 * squares)
}

/// Returns the shares of senders that all cross a link of 100 Mbit/s, between `from_s` and `to_s` seconds.
fn run(rtt_ms: f64, buffer: f64, senders: Vec<SenderConfig>, from_s: f64, to_s: f64) -> Vec<f64> {
    let mut sim = Simulation::new(link(100, rtt_ms, buffer), 7, senders);
    sim.run_until(Duration::from_secs_f64(to_s));
    shares(&sim, from_s, to_s)
}

#[test]
fn senders_of_one_kind_get_equal_shares() {
    for count in [2, 4, 8] {
        let senders = (0..count).map(|index| sender(auto, 20.0, f64::from(index) * 0.5));
        let shares = run(20.0, 1.0, senders.collect(), 30.0, 60.0);
        assert!(jain(&shares) >= 0.95, "{count}: {shares:?}");
        assert!(shares.iter().sum::<f64>() >= 0.9, "{count}: {shares:?}");
    }
}

#[test]
fn a_tenfold_round_trip_makes_less_than_a_fourfold_share() {
    for (short_ms, long_ms) in [(10.0, 100.0), (20.0, 100.0), (10.0, 50.0)] {
        for later_s in [0.0, 0.1, 0.5, 2.0] {
            let senders = vec![sender(auto, short_ms, 0.0), sender(auto, long_ms, later_s)];
            let shares = run(50.0, 1.0, senders, 30.0, 60.0);
            let ratio = shares[0].max(shares[1]) / shares[0].min(shares[1]);
            let which = format!("{short_ms} and {long_ms} ms, {later_s} s later");
            assert!(ratio <= 4.0, "{which}: {shares:?}");
        }
    }
}

/// Returns the lowest share that CUBIC gets beside `auto` in two periods, over several orders of starting.
fn cubic_has(rtt_ms: f64, buffer: f64) -> f64 {
    let mut least = 1.0_f64;
    for (ours_s, cubic_s) in [(0.0, 0.0), (0.1, 0.0), (0.0, 0.1), (2.0, 0.0), (0.0, 2.0)] {
        let senders = vec![sender(auto, rtt_ms, ours_s), sender(cubic, rtt_ms, cubic_s)];
        let mut sim = Simulation::new(link(100, rtt_ms, buffer), 7, senders);
        sim.run_until(Duration::from_mins(2));
        for (from_s, to_s) in [(20.0, 60.0), (60.0, 120.0)] {
            let shares = shares(&sim, from_s, to_s);
            let which = format!(
                "{rtt_ms} ms, buffer {buffer}, begun after {ours_s} and {cubic_s} s: {shares:?}"
            );
            // CUBIC has filled a long queue before the sender starts, and shares it only later.
            let filled = buffer > 1.0 && ours_s > 0.0;
            assert!(shares[0] >= if filled { 0.2 } else { 0.3 }, "{which}");
            assert!(shares.iter().sum::<f64>() >= 0.9, "{which}");
            least = least.min(shares[1]);
        }
    }
    least
}

#[test]
fn one_cubic_flow_keeps_its_share() {
    // Seven tenths of CUBIC's share against another CUBIC are 0.342 and 0.35. With longer buffers CUBIC has more.
    for (buffer, least) in [(0.25, 0.342), (0.5, 0.4), (1.0, 0.4), (4.0, 0.4)] {
        let share = cubic_has(20.0, buffer);
        assert!(share >= least, "buffer {buffer}: {share}");
    }
}

#[test]
fn one_cubic_flow_keeps_its_share_on_a_short_path() {
    for (rtt_ms, least) in [(5.0, 0.35), (10.0, 0.4)] {
        let share = cubic_has(rtt_ms, 1.0);
        assert!(share >= least, "{rtt_ms} ms: {share}");
    }
}

#[test]
fn among_eight_cubic_flows_and_a_short_queue_it_has_less_than_twice_a_fair_share() {
    let mut senders = vec![sender(auto, 20.0, 0.0)];
    senders.extend((0..8).map(|index| sender(cubic, 20.0, f64::from(index) * 0.1)));
    let shares = run(20.0, 0.1, senders, 20.0, 60.0);
    assert!(shares[0] <= 2.0 / 9.0, "{shares:?}");
}

#[test]
fn background_leaves_cubic_nearly_everything() {
    let senders = vec![sender(background, 20.0, 0.0), sender(cubic, 20.0, 0.0)];
    let shares = run(20.0, 1.0, senders, 20.0, 60.0);
    assert!(shares[0] <= 0.15, "{shares:?}");
    let alone = run(20.0, 1.0, vec![sender(background, 20.0, 0.0)], 5.0, 15.0);
    assert!(alone[0] >= 0.9, "{alone:?}");
}

#[test]
fn a_tenth_of_the_capacity_is_found_without_a_standing_queue() {
    let mut sim = Simulation::new(link(100, 20.0, 1.0), 7, vec![sender(auto, 20.0, 0.0)]);
    sim.run_until(Duration::from_secs(5));
    sim.reconfigure(link(10, 20.0, 10.0));
    sim.run_until(Duration::from_secs(7));
    sim.forget_waits();
    sim.run_until(Duration::from_secs(12));
    assert!(sim.wait_ms(0.5) <= 10.0, "{} ms", sim.wait_ms(0.5));
    let shares = shares(&sim, 7.0, 12.0);
    assert!(shares[0] >= 0.9, "{shares:?}");
}

#[test]
fn ten_times_the_capacity_is_found_within_five_seconds() {
    let mut sim = Simulation::new(link(10, 20.0, 1.0), 7, vec![sender(auto, 20.0, 0.0)]);
    sim.run_until(Duration::from_secs(5));
    sim.reconfigure(link(100, 20.0, 1.0));
    sim.run_until(Duration::from_secs(12));
    let shares = shares(&sim, 10.0, 12.0);
    assert!(shares[0] >= 0.9, "{shares:?}");
}
