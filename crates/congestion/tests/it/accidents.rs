//! Bursts of loss, reordering, jitter, and a policer.

use std::time::{Duration, Instant};

use quictun_congestion::Model;
use quictun_link::{GilbertElliott, LinkConfig, Policer, Reorder};

use crate::links::{auto, cubic, link, sender, shares};
use crate::simulation::{SenderConfig, Simulation};

/// Returns the share of the link that one sender gets after its startup phase.
fn steady(config: LinkConfig, rtt_ms: f64) -> f64 {
    steady_with(auto, config, rtt_ms)
}

fn steady_with(model: fn(Instant) -> Box<dyn Model>, config: LinkConfig, rtt_ms: f64) -> f64 {
    let mut sim = Simulation::new(config, 1, vec![sender(model, rtt_ms, 0.0)]);
    sim.run_until(Duration::from_secs(15));
    shares(&sim, 5.0, 15.0)[0]
}

#[test]
fn bursts_of_loss_are_no_congestion() {
    for rtt_ms in [20.0, 100.0] {
        for (loss, length) in [(0.01, 3.0), (0.01, 8.0), (0.05, 3.0), (0.05, 8.0)] {
            let config = LinkConfig {
                bursts: Some(GilbertElliott::from_mean(loss, length)),
                ..link(100, rtt_ms, 1.0)
            };
            let share = steady(config, rtt_ms);
            let least = 0.88 * (1.0 - loss);
            assert!(share >= least, "{rtt_ms} ms, {loss}, {length}: {share}");
        }
    }
}

#[test]
fn packets_out_of_order_cost_less_than_two_in_a_hundred() {
    for rtt_ms in [20.0, 100.0] {
        let plain = steady(link(100, rtt_ms, 1.0), rtt_ms);
        let reorder = Reorder {
            share: 0.01,
            extra: Duration::from_millis(1),
        };
        let config = LinkConfig {
            reorder,
            ..link(100, rtt_ms, 1.0)
        };
        // CUBIC takes the late packets for lost, and therefore stops growing.
        assert!(steady_with(cubic, config.clone(), rtt_ms) < 0.5);
        let share = steady(config, rtt_ms);
        assert!(share >= plain - 0.02, "{rtt_ms} ms: {share}, else {plain}");
    }
}

#[test]
fn jitter_of_two_milliseconds_is_no_queue() {
    let config = LinkConfig {
        jitter: Duration::from_millis(2),
        ..link(100, 20.0, 1.0)
    };
    let share = steady(config, 20.0);
    assert!(share >= 0.95, "share {share}");
}

/// A few packets say little about how much a path loses, so losses by chance must not be taken for a rival that fills
/// the queue.
#[test]
fn packets_lost_now_and_then_are_no_rival() {
    for (every_ms, lasts_us, loss, seed) in [
        (23, 1500, 0.0002, 10),
        (23, 1500, 0.0003, 18),
        (40, 2000, 0.0003, 10),
        (40, 2000, 0.0005, 20),
    ] {
        let lossy = SenderConfig {
            loss_after: loss,
            loss_back: loss,
            ..sender(auto, 20.0, 0.0)
        };
        let mut sim = Simulation::new(link(600, 20.0, 1.0), seed, vec![lossy]);
        sim.standstills = Some((
            Duration::from_millis(every_ms),
            Duration::from_micros(lasts_us),
        ));
        for now in (100..3000).step_by(100) {
            sim.run_until(Duration::from_millis(now));
            let phase = sim.flows[0].model.view().phase;
            assert_ne!(phase, "rival", "loss {loss}, seed {seed}, after {now} ms");
        }
    }
}

#[test]
fn a_host_that_stands_still_at_times_costs_little() {
    for loss in [0.0, 0.001, 0.01] {
        let lossy = SenderConfig {
            loss_after: loss,
            ..sender(auto, 1.0, 0.0)
        };
        let mut sim = Simulation::new(link(600, 1.0, 1.0), 1, vec![lossy]);
        sim.standstills = Some((Duration::from_millis(47), Duration::from_millis(3)));
        sim.run_until(Duration::from_secs(15));
        let share = shares(&sim, 5.0, 15.0)[0];
        // The host stands still for 6 % of the time. Meanwhile the link sends only what its queue held.
        assert!(share >= 0.925 * (1.0 - loss), "loss {loss}: share {share}");
    }
}

#[test]
fn the_rate_stays_below_a_policer() {
    let rate = 12_500_000;
    let config = LinkConfig {
        rate: Some(10 * rate),
        policer: Some(Policer {
            rate,
            burst: rate / 20,
        }),
        ..LinkConfig::default()
    };
    for (rtt_ms, most) in [(20.0, 0.03), (100.0, 0.065)] {
        for seed in 1..=3 {
            let senders = vec![sender(auto, rtt_ms, 0.0)];
            let mut sim = Simulation::new(config.clone(), seed, senders);
            let end = Duration::from_secs(20);
            sim.run_until(end);
            let flow = &sim.flows[0];
            let share = flow.rate(sim.slot, Duration::ZERO, end) / rate as f64;
            let lost = flow.lost as f64 / flow.sent as f64;
            assert!(share >= 0.9, "{rtt_ms} ms, seed {seed}: share {share}");
            assert!(lost <= most, "{rtt_ms} ms, seed {seed}: lost {lost}");
        }
    }
}
