//! A fixed rate, and the conditions that end it.

use std::time::{Duration, Instant};

use quictun_congestion::{Fixed, Model};

use crate::links::{link, sender, shares};
use crate::world::World;

/// Creates a controller with a fixed rate of 40 Mbit/s.
fn fixed(now: Instant) -> Box<dyn Model> {
    Box::new(Fixed::new(now, 1250, 5_000_000))
}

fn run(mbit: u64, buffer: f64, loss: f64, end_s: u64) -> World {
    let mut one = sender(fixed, 20.0, 0.0);
    one.loss_after = loss;
    one.loss_back = loss;
    let mut world = World::new(link(mbit, 20.0, buffer), 1, vec![one]);
    world.run_until(Duration::from_secs(end_s));
    world
}

fn phase(world: &World) -> &'static str {
    world.flows[0].model.view().phase
}

#[test]
fn the_rate_arrives_whatever_is_lost() {
    for loss in [0.0, 0.01, 0.1] {
        let world = run(100, 1.0, loss, 10);
        let share = shares(&world, 1.0, 10.0)[0];
        assert!((0.39..0.42).contains(&share), "loss {loss}: share {share}");
        assert_eq!(phase(&world), "held", "loss {loss}");
    }
}

#[test]
fn loss_ends_it_after_two_seconds() {
    // A short queue drops half of the packets.
    let world = run(20, 0.5, 0.0, 1);
    assert_eq!(phase(&world), "held");
    let world = run(20, 0.5, 0.0, 10);
    assert_eq!(phase(&world), "braked");
    let share = shares(&world, 5.0, 10.0)[0];
    assert!(share >= 0.9, "share {share}");
}

#[test]
fn a_long_queue_ends_it_before_it_is_full() {
    // A rate 25 % above the capacity builds 60 ms of queue in a quarter of a second. The buffer holds more than a
    // second.
    let mut world = run(32, 100.0, 0.0, 10);
    assert_eq!(phase(&world), "braked");
    assert_eq!(world.bottleneck.counters().queue_full, 0);
    world.forget_waits();
    world.run_until(Duration::from_secs(15));
    assert!(world.wait_ms(0.95) <= 10.0, "{} ms", world.wait_ms(0.95));
}
