//! Compares the model of BBR with the kernel's BBR, beside other flows.
//!
//! The kernel's figures come from an independent link emulator at 100 Mbit/s and 30 ms. Both flows begin together,
//! and the bytes that arrive in the 40 s after the first second count. The kernel's figures vary from run to run, and
//! the model's vary with the milliseconds between both starts, so the test compares medians.

use std::time::Duration;

use crate::bbr;
use crate::links::{cubic, link, sender, shares};
use crate::rivals::NewModel;
use crate::simulation::Simulation;

/// A flow beside BBR, the queue in round trips, and the percentage that Linux 6.18's BBR gets of what both flows
/// carry, in two or three runs. In some of these runs BBR begins first.
const KERNEL: [(&str, NewModel, f64, &[f64]); 6] = [
    ("cubic", cubic, 0.5, &[90.4, 90.4, 90.5]),
    ("cubic", cubic, 1.0, &[68.5, 87.2, 91.8]),
    ("cubic", cubic, 4.0, &[27.3, 28.2, 29.2]),
    ("bbr", bbr::model, 0.5, &[48.8, 50.0]),
    ("bbr", bbr::model, 1.0, &[49.6, 50.0]),
    ("bbr", bbr::model, 4.0, &[54.2, 55.3]),
];

/// Maximum difference of the medians, in percentage points.
const APART: f64 = 15.0;

/// Milliseconds by which the model begins later than the flow beside it.
const LATER_MS: [f64; 3] = [-50.0, 5.0, 50.0];

fn share(beside: NewModel, buffer: f64, later_ms: f64) -> f64 {
    let later_s = later_ms / 1e3;
    let senders = vec![
        sender(bbr::model, 30.0, later_s.max(0.0)),
        sender(beside, 30.0, (-later_s).max(0.0)),
    ];
    let mut sim = Simulation::new(link(100, 30.0, buffer), 7, senders);
    sim.run_until(Duration::from_secs(41));
    let shares = shares(&sim, 1.0, 41.0);
    shares[0] / (shares[0] + shares[1]) * 100.0
}

pub(crate) fn median(shares: impl IntoIterator<Item = f64>) -> f64 {
    let mut shares: Vec<f64> = shares.into_iter().collect();
    shares.sort_by(f64::total_cmp);
    f64::midpoint(shares[(shares.len() - 1) / 2], shares[shares.len() / 2])
}

#[test]
fn the_bbr_model_gets_the_share_of_the_kernels_bbr() {
    for (name, beside, buffer, kernel) in KERNEL {
        let model = LATER_MS.map(|later_ms| share(beside, buffer, later_ms));
        let (ours, theirs) = (median(model), median(kernel.iter().copied()));
        let which = format!("beside {name}, buffer {buffer}: {model:.0?}, the kernel {kernel:?}");
        assert!((ours - theirs).abs() <= APART, "{which}");
    }
}
