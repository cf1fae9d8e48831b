//! Links and senders that several tests use.

use std::time::{Duration, Instant};

use quictun_congestion::{Auto, LossBased, Model};
use quictun_link::{LinkConfig, Queue};

use crate::simulation::{Jitter, SenderConfig, Simulation};

/// Creates a link of `mbit` Mbit/s whose buffer holds `buffer` times what is in flight at `rtt_ms`.
pub(crate) fn link(mbit: u64, rtt_ms: f64, buffer: f64) -> LinkConfig {
    let rate = mbit * 125_000;
    let in_flight = rate as f64 * rtt_ms / 1e3;
    LinkConfig {
        rate: Some(rate),
        queue: Queue::Bytes((in_flight * buffer) as usize),
        ..LinkConfig::default()
    }
}

pub(crate) fn auto(now: Instant) -> Box<dyn Model> {
    Box::new(Auto::new(now, 1250))
}

pub(crate) fn background(now: Instant) -> Box<dyn Model> {
    Box::new(Auto::background(now, 1250))
}

pub(crate) fn cubic(_now: Instant) -> Box<dyn Model> {
    Box::new(LossBased::cubic(1250))
}

/// Creates a sender without loss of its own that begins after `start_s` seconds.
pub(crate) fn sender(
    model: fn(Instant) -> Box<dyn Model>,
    rtt_ms: f64,
    start_s: f64,
) -> SenderConfig {
    SenderConfig {
        model,
        rtt: Duration::from_secs_f64(rtt_ms / 1e3),
        handover: None,
        start: Duration::from_secs_f64(start_s),
        loss_before: 0.0,
        loss_after: 0.0,
        loss_back: 0.0,
        burst: 1.0,
        jitter: Jitter::default(),
        sleeps: Duration::ZERO,
        sleeps_from: Duration::ZERO,
    }
}

/// Returns the share of the link that each sender gets between two times in seconds.
pub(crate) fn shares(sim: &Simulation, from_s: f64, to_s: f64) -> Vec<f64> {
    let rate = sim.bottleneck.config().rate.unwrap_or(1) as f64;
    let time = Duration::from_secs_f64;
    let share = |flow: &crate::simulation::SimulatedFlow| {
        flow.rate(sim.slot, time(from_s), time(to_s)) / rate
    };
    sim.flows.iter().map(share).collect()
}

pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
