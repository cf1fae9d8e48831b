//! Ends that sleep between two turns, so that packets accumulate, as on workers that move a transfer.
//!
//! The rates reached awake and asleep are in `sleeps.txt`, written like `grid.txt`.

use std::fmt::Write as _;
use std::time::Duration;

use quictun_link::LinkConfig;

use crate::grid::{compare, expect};
use crate::links::{auto, link, mean, sender};
use crate::simulation::Simulation;

/// Returns how long the worker's `gather` sleeps: 0.15 of the round trip, but at most 6 ms, and no longer than 32 KB
/// (or 64 KB within a millisecond) take to arrive.
fn sleeps(mbit: u64, rtt_ms: f64) -> Duration {
    let per_ms = mbit as f64 * 125.0;
    let filled_ms = per_ms.clamp(32e3, 64e3) / per_ms;
    Duration::from_secs_f64((rtt_ms * 0.15).min(6.0).min(filled_ms) / 1e3)
}

/// Returns the share of the link's capacity from 1 s on, and the wait in milliseconds that 95 of 100 packets do not
/// exceed.
fn run(mbit: u64, rtt_ms: f64, loss: f64, sleeps: Duration) -> (f64, f64) {
    let mut one = sender(auto, rtt_ms, 0.0);
    one.loss_after = loss;
    one.loss_back = loss;
    one.sleeps = sleeps;
    one.sleeps_from = Duration::from_secs_f64((rtt_ms / 100.0).max(0.5));
    let mut sim = Simulation::new(link(mbit, rtt_ms, 1.0), 1, vec![one]);
    let (from, to) = (Duration::from_secs(1), Duration::from_secs(11));
    sim.run_until(from);
    sim.forget_waits();
    sim.run_until(to);
    let carries = mbit as f64 * 125_000.0 * (1.0 - loss);
    let share = sim.flows[0].rate(sim.slot, from, to) / carries;
    (share, sim.wait_ms(0.95))
}

#[test]
fn ends_that_sleep_fill_the_link_too() {
    let mut table = String::from(
        "Mbit/s  rtt ms  loss %  asleep ms   awake: %   wait ms  asleep: %   wait ms\n",
    );
    for mbit in [5, 20, 100, 600] {
        for rtt_ms in [20.0, 40.0, 100.0, 200.0] {
            for loss in [0.0, 0.01] {
                let asleep = sleeps(mbit, rtt_ms);
                let (awake, awake_ms) = run(mbit, rtt_ms, loss, Duration::ZERO);
                let (share, wait_ms) = run(mbit, rtt_ms, loss, asleep);
                let cell = format!("{mbit} {rtt_ms} {loss}: {share}, {wait_ms} ms");
                expect(share >= awake - 0.025, cell.clone());
                // Packets that have accumulated leave at once, and then wait in the queue.
                let most = awake_ms + 1.3 * asleep.as_secs_f64() * 1e3;
                expect(wait_ms <= most, cell);
                writeln!(
                    table,
                    "{mbit:>6}  {rtt_ms:>6}  {:>6}  {:>9.2}  {:>9.1}  {awake_ms:>8.1}  {:>9.1}  {wait_ms:>8.1}",
                    loss * 100.0,
                    asleep.as_secs_f64() * 1e3,
                    awake * 100.0,
                    share * 100.0,
                )
                .expect("writing to a string");
            }
        }
    }
    compare("sleeps.txt", &table);
}

/// Returns the share of a link that a sender with sleeping workers has from 7 to 17 s, and how often it rests in that
/// time. From 5 s on, acknowledgements are late by up to `late_ms`.
fn late(mbit: u64, rtt_ms: f64, late_ms: f64, seed: u64) -> (f64, u32) {
    let mut one = sender(auto, rtt_ms, 0.0);
    one.sleeps = sleeps(mbit, rtt_ms);
    one.sleeps_from = Duration::from_millis(500);
    let mut sim = Simulation::new(link(mbit, rtt_ms, 1.5), seed, vec![one]);
    sim.run_until(Duration::from_secs(5));
    let back = &mut sim.flows[0].back;
    back.reconfigure(LinkConfig {
        jitter: Duration::from_secs_f64(late_ms / 1e3),
        ..back.config().clone()
    });
    let (from_ms, to_ms) = (7_000, 17_000);
    let (mut resting, mut rests) = (false, 0);
    for ms in from_ms..to_ms {
        sim.run_until(Duration::from_millis(ms));
        let rest = sim.flows[0].model.view().phase == "rest";
        rests += u32::from(rest && !resting);
        resting = rest;
    }
    let [from, to] = [from_ms, to_ms].map(Duration::from_millis);
    let share = sim.flows[0].rate(sim.slot, from, to) / (mbit as f64 * 125e3);
    (share, rests)
}

/// Packets of a batch wait for each other. A sender that asks whether that is jitter rests four times in ten seconds,
/// and has 0.977 of the link.
#[test]
fn ends_that_sleep_do_not_ask_why_batches_wait() {
    let results: Vec<_> = (1..=8).map(|seed| late(100, 20.0, 6.0, seed)).collect();
    let rests: u32 = results.iter().map(|(_, rests)| rests).sum();
    let shares: Vec<_> = results.iter().map(|(share, _)| *share).collect();
    assert!(rests <= 20, "{rests} rests in eight runs: {results:?}");
    assert!(mean(&shares) >= 0.985, "{shares:.3?}");
}

/// If yielding costs a part of the link, the sender asks, although batches alone would explain the wait. Otherwise it
/// has 0.86 of the link with one of these seeds.
#[test]
fn ends_that_sleep_ask_if_yielding_costs() {
    for seed in 1..=8 {
        let (share, rests) = late(300, 20.0, 5.0, seed);
        assert!(share >= 0.96, "seed {seed}: {share:.3}, {rests} rests");
    }
}
