//! A fixed rate, and the conditions that end it.

use std::time::{Duration, Instant};

use quictun_congestion::{Fixed, Model};

use crate::links::{link, sender, shares};
use crate::simulation::Simulation;

/// Creates a controller with a fixed rate of 40 Mbit/s.
fn fixed(now: Instant) -> Box<dyn Model> {
    Box::new(Fixed::new(now, 1250, 5_000_000))
}

fn run(mbit: u64, buffer: f64, loss: f64, end_s: u64) -> Simulation {
    let mut one = sender(fixed, 20.0, 0.0);
    one.loss_after = loss;
    one.loss_back = loss;
    let mut sim = Simulation::new(link(mbit, 20.0, buffer), 1, vec![one]);
    sim.run_until(Duration::from_secs(end_s));
    sim
}

fn phase(sim: &Simulation) -> &'static str {
    sim.flows[0].model.view().phase
}

#[test]
fn the_fixed_rate_arrives_regardless_of_loss() {
    for loss in [0.0, 0.01, 0.1] {
        let sim = run(100, 1.0, loss, 10);
        let share = shares(&sim, 1.0, 10.0)[0];
        assert!((0.39..0.42).contains(&share), "loss {loss}: share {share}");
        assert_eq!(phase(&sim), "held", "loss {loss}");
    }
}

#[test]
fn loss_ends_the_fixed_rate_after_two_seconds() {
    // A short queue drops half of the packets.
    let sim = run(20, 0.5, 0.0, 1);
    assert_eq!(phase(&sim), "held");
    let sim = run(20, 0.5, 0.0, 10);
    assert_eq!(phase(&sim), "braked");
    let share = shares(&sim, 5.0, 10.0)[0];
    assert!(share >= 0.9, "share {share}");
}

#[test]
fn a_long_queue_ends_the_fixed_rate_before_the_queue_is_full() {
    // A rate 25 % above the capacity builds 60 ms of queue in a quarter of a second. The buffer holds more than a
    // second.
    let mut sim = run(32, 100.0, 0.0, 10);
    assert_eq!(phase(&sim), "braked");
    assert_eq!(sim.bottleneck.counters().queue_full, 0);
    sim.forget_waits();
    sim.run_until(Duration::from_secs(15));
    assert!(sim.wait_ms(0.95) <= 10.0, "{} ms", sim.wait_ms(0.95));
}
