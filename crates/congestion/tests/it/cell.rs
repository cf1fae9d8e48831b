//! One sender on one link with loss, for ten seconds.

use std::fmt::{Display, Formatter, Result};
use std::time::Duration;

use crate::links::{auto, link, sender};
use crate::simulation::Simulation;

/// The place at which packets are lost. Acknowledgements are lost equally often.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum LossPlace {
    Before,
    After,
}

/// A link and its effects on packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LossyLink {
    pub(crate) mbit: u64,
    pub(crate) rtt_ms: u32,
    pub(crate) loss: f64,
    /// Mean number of consecutive packets that are lost together.
    pub(crate) burst: f64,
    /// Size of the buffer over what is in flight in a round trip.
    pub(crate) buffer: f64,
    pub(crate) place: LossPlace,
}

/// The results of one sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkResult {
    /// Share of the link's capacity after its loss: in the second half of the time, and in all of it.
    pub(crate) steady: f64,
    pub(crate) whole: f64,
    /// Seconds until nine tenths of that capacity arrive.
    pub(crate) filled_s: f64,
    /// Wait that 95 of 100 packets do not exceed, and share of the packets that the queue dropped.
    pub(crate) wait_ms: f64,
    pub(crate) dropped: f64,
}

impl LinkResult {
    /// Returns the worst value of each kind over several runs. Fast links get one run only, because the cost of a run
    /// grows with the packets sent.
    pub(crate) fn worst(case: &LossyLink) -> Self {
        (2..=case.runs()).fold(Self::measure(case, 1), |worst, seed| {
            let cell = Self::measure(case, seed);
            Self {
                steady: worst.steady.min(cell.steady),
                whole: worst.whole.min(cell.whole),
                filled_s: worst.filled_s.max(cell.filled_s),
                wait_ms: worst.wait_ms.max(cell.wait_ms),
                dropped: worst.dropped.max(cell.dropped),
            }
        })
    }

    fn measure(case: &LossyLink, seed: u64) -> Self {
        let rtt_ms = f64::from(case.rtt_ms);
        let mut one = sender(auto, rtt_ms, 0.0);
        match case.place {
            LossPlace::Before => one.loss_before = case.loss,
            LossPlace::After => one.loss_after = case.loss,
        }
        one.loss_back = case.loss;
        one.burst = case.burst;
        let mut sim = Simulation::new(link(case.mbit, rtt_ms, case.buffer), seed, vec![one]);
        let end = Duration::from_secs(10);
        sim.run_until(end);
        let flow = &sim.flows[0];
        let most = case.mbit as f64 * 125_000.0 * (1.0 - case.loss);
        let slot_s = sim.slot.as_secs_f64();
        let full = |bytes: &u64| *bytes as f64 / slot_s >= 0.9 * most;
        let filled = flow.series.iter().position(full).unwrap_or(9999);
        Self {
            steady: flow.rate(sim.slot, end / 2, end) / most,
            whole: flow.rate(sim.slot, Duration::ZERO, end) / most,
            filled_s: (filled + 1) as f64 * slot_s,
            wait_ms: sim.wait_ms(0.95),
            dropped: sim.bottleneck.counters().queue_full as f64 / flow.sent as f64,
        }
    }
}

impl LossyLink {
    /// Creates a case with single losses behind a bottleneck whose buffer holds one round trip.
    pub(crate) fn new(mbit: u64, rtt_ms: u32, loss: f64) -> Self {
        Self {
            mbit,
            rtt_ms,
            loss,
            burst: 1.0,
            buffer: 1.0,
            place: LossPlace::After,
        }
    }

    fn runs(&self) -> u64 {
        if self.mbit > 100 { 1 } else { 3 }
    }
}

impl Display for LossyLink {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Self { mbit, rtt_ms, .. } = self;
        let loss = self.loss * 100.0;
        write!(f, "{mbit:>6}  {rtt_ms:>6}  {loss:>6.1}")
    }
}

impl Display for LinkResult {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(
            f,
            "{:>8.1}  {:>6.1}  {:>12.2}  {:>11.1}  {:>9.2}",
            self.steady * 100.0,
            self.whole * 100.0,
            self.filled_s,
            self.wait_ms,
            self.dropped * 100.0,
        )
    }
}
