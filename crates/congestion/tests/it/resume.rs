//! Knowledge about a path that one connection passes to the next.

use std::time::{Duration, Instant};

use quictun_congestion::{Auto, Model, Resume};
use quictun_link::LinkConfig;

use crate::links::{auto, link, sender};
use crate::simulation::Simulation;

/// Returns what a connection remembers that has filled a link of 600 Mbit/s and 100 ms.
fn known() -> Resume {
    let mut sim = Simulation::new(link(600, 100.0, 1.0), 1, vec![sender(auto, 100.0, 0.0)]);
    sim.run_until(Duration::from_secs(5));
    let point = sim.flows[0].model.resume_point();
    point.expect("the link was filled")
}

/// Creates a controller with the same knowledge, as constants, because a function pointer cannot capture values.
fn resumed(now: Instant) -> Box<dyn Model> {
    Box::new(Auto::new(now, 1250).resuming(Some(Resume {
        rtt: Duration::from_millis(100),
        window: 7_500_000,
    })))
}

/// Returns the time in seconds until nine tenths of `config`'s rate arrive, and the share of packets that the queue
/// dropped.
fn fills(model: fn(Instant) -> Box<dyn Model>, config: LinkConfig, loss: f64) -> (f64, f64) {
    let mut one = sender(model, 100.0, 0.0);
    one.loss_after = loss;
    let rate = config.rate.unwrap_or(u64::MAX) as f64;
    let mut sim = Simulation::new(config, 1, vec![one]);
    sim.run_until(Duration::from_secs(3));
    let flow = &sim.flows[0];
    let slot_s = sim.slot.as_secs_f64();
    let full = |bytes: &u64| *bytes as f64 / slot_s >= 0.9 * rate * (1.0 - loss);
    let slot = flow.series.iter().position(full).unwrap_or(usize::MAX - 1);
    let dropped = sim.bottleneck.counters().queue_full as f64;
    ((slot + 1) as f64 * slot_s, dropped / flow.sent as f64)
}

#[test]
fn the_remembered_window_fills_the_path() {
    let Resume { rtt, window } = known();
    assert!(rtt >= Duration::from_millis(100), "floor {rtt:?}");
    assert!(rtt <= Duration::from_millis(105), "floor {rtt:?}");
    assert!((7_000_000..8_000_000).contains(&window), "window {window}");
    let fresh = auto(Instant::now());
    assert_eq!(fresh.resume_point(), None);
}

#[test]
fn a_known_path_is_filled_after_four_round_trips() {
    for loss in [0.0, 0.01, 0.05] {
        let (filled_s, dropped) = fills(resumed, link(600, 100.0, 1.0), loss);
        assert!(filled_s <= 0.4, "loss {loss}: filled in {filled_s} s");
        assert!(dropped <= 0.001, "loss {loss}: dropped {dropped}");
    }
}

#[test]
fn a_path_with_another_round_trip_time_is_not_resumed() {
    for rtt_ms in [45.0, 1001.0] {
        let mut sim = Simulation::new(
            link(600, rtt_ms, 1.0),
            1,
            vec![sender(resumed, rtt_ms, 0.0)],
        );
        sim.run_until(Duration::from_secs_f64(2.0 * rtt_ms / 1e3));
        let sent = sim.flows[0].sent;
        assert!(sent < 300, "{rtt_ms} ms: {sent} packets in two round trips");
    }
}

#[test]
fn a_resumed_path_that_became_slow_is_not_flooded() {
    let slow = || link(60, 100.0, 1.0);
    let mut sim = Simulation::new(slow(), 1, vec![sender(resumed, 100.0, 0.0)]);
    sim.run_until(Duration::from_secs(10));
    let flow = &sim.flows[0];
    let second = Duration::from_secs(1);
    let share = flow.rate(sim.slot, second, 10 * second) / 7_500_000.0;
    let dropped = sim.bottleneck.counters().queue_full as f64 / flow.sent as f64;
    assert!(share >= 0.9, "share {share}");
    assert!(dropped <= 0.05, "dropped {dropped}");
}
