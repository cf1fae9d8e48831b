//! Ends that sleep between two turns, so that packets accumulate, as on workers that move a transfer.
//!
//! The rates reached awake and asleep are in `sleeps.txt`, written like `grid.txt`.

use std::fmt::Write as _;
use std::time::Duration;

use crate::grid::{compare, expect};
use crate::links::{auto, link, sender};
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
