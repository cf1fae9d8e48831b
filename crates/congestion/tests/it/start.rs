//! The cost of a startup phase on a path of which nothing is known.

use std::time::Duration;

use crate::links::{auto, link, sender};
use crate::simulation::{SIZE, Simulation};

/// Returns the share of the first ten round trips' worth of packets that the queue drops.
fn dropped(mbit: u64, rtt_ms: f64, loss: f64, seed: u64) -> f64 {
    let mut one = sender(auto, rtt_ms, 0.0);
    one.loss_after = loss;
    one.loss_back = loss;
    let mut sim = Simulation::new(link(mbit, rtt_ms, 1.0), seed, vec![one]);
    let first = 10.0 * mbit as f64 * 125.0 * rtt_ms;
    let step = Duration::from_millis(5);
    let mut now = step;
    while ((sim.flows[0].sent * SIZE) as f64) < first && now < Duration::from_secs(10) {
        sim.run_until(now);
        now += step;
    }
    (sim.bottleneck.counters().queue_full * SIZE) as f64 / first
}

#[test]
fn a_start_overflows_no_buffer_of_a_round_trip() {
    for (mbit, rtt_ms) in [(20, 100.0), (100, 100.0), (20, 200.0), (600, 20.0)] {
        hold(mbit, rtt_ms, 0.01);
    }
    let dropped = dropped(600, 100.0, 0.0, 1);
    assert!(dropped <= 0.01, "600 Mbit/s, 100 ms: dropped {dropped}");
}

/// A round trip of 17 to 200 packets ends before enough of them have been acknowledged to show a queue, so more
/// packets are lost than should be.
#[test]
fn a_start_on_a_small_path_loses_no_more_than_the_stated_share() {
    for (mbit, rtt_ms, most) in [(20, 10.0, 0.11), (20, 20.0, 0.08), (100, 20.0, 0.02)] {
        hold(mbit, rtt_ms, most);
    }
}

fn hold(mbit: u64, rtt_ms: f64, most: f64) {
    for loss in [0.0, 0.01, 0.05] {
        for seed in 1..=3 {
            let dropped = dropped(mbit, rtt_ms, loss, seed);
            let what = format!("{mbit} Mbit/s, {rtt_ms} ms, loss {loss}, seed {seed}");
            assert!(dropped <= most, "{what}: dropped {dropped}");
        }
    }
}
