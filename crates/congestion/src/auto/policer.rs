//! Detection of a policer, which drops packets above its rate and queues none.
//!
//! A policer lets bursts pass with the tokens saved while less was sent, so the fastest arrival does not show its
//! rate. The rate at which data arrives while packets are lost does.

mod probe;

use std::time::{Duration, Instant};

use super::epoch::RateSample;
use super::loss;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PolicerDetector {
    run: LossyRun,
    ceiling: Option<Ceiling>,
    /// Share of packets that is lost even when little is sent.
    medium: f64,
    /// The bandwidth before the ceiling, restored if the loss turns out to be the medium's.
    before: Option<f64>,
    /// Number of trials that found the same policer again.
    confirmed: u32,
}

/// Consecutive measurements that lost too much while nothing waited.
#[derive(Clone, Copy, Debug, Default)]
struct LossyRun {
    epochs: u32,
    arrived: f64,
    lost: f64,
    /// Sum of the delivered rates, in bytes per second, of all measurements but the first.
    rates: f64,
}

/// A rate that must not be exceeded, and the evidence for it.
#[derive(Clone, Copy, Debug)]
struct Ceiling {
    rate: f64,
    /// Share of lost packets above which staying below the ceiling makes no difference.
    futile: f64,
    /// Number of measurements since the ceiling was set, and the bytes that arrived and were lost in them.
    epochs: u32,
    arrived: f64,
    lost: f64,
    judged: bool,
    /// End of the time below the ceiling, or of the current trial.
    until: Instant,
    trials: u32,
}

/// Input from the rest of the model about loss and the path.
#[derive(Clone, Copy, Debug)]
struct PathEstimates {
    /// Number of packets that are typically lost together.
    clump: f64,
    mtu: f64,
    rtt: Duration,
    bandwidth: f64,
    /// Share of packets that is certainly lost when less is sent.
    medium: f64,
}

enum CeilingChange {
    Same,
    Lowered,
    Raised,
}

impl PolicerDetector {
    pub(super) fn rate(&self) -> Option<f64> {
        self.ceiling.map(|ceiling| ceiling.rate)
    }

    /// Returns whether the sender stays below the ceiling and no trial has raised it yet.
    pub(super) fn holds(&self) -> bool {
        self.ceiling.is_some_and(|ceiling| ceiling.trials == 0)
    }

    /// Handles a measurement without a queue, of data sent at the full rate.
    fn on_epoch(
        &mut self,
        now: Instant,
        outcome: RateSample,
        path: PathEstimates,
    ) -> CeilingChange {
        if let Some(ceiling) = &mut self.ceiling {
            ceiling.epochs += 1;
            // The first measurements still include data that was sent before the ceiling.
            if ceiling.epochs <= SETTLING {
                return CeilingChange::Same;
            }
        }
        let medium = self.medium.max(path.medium);
        if outcome.loss() > medium + SLACK {
            self.run.add(outcome);
        } else {
            self.run = LossyRun::default();
        }
        let open = self.ceiling.is_none_or(|ceiling| ceiling.judged);
        if let Some((rate, share)) = self.run.verdict(medium, path).filter(|_| open) {
            self.before = self.ceiling.is_none().then_some(path.bandwidth);
            self.lower(now, rate, share);
            return CeilingChange::Lowered;
        }
        let Some(ceiling) = &mut self.ceiling else {
            return CeilingChange::Same;
        };
        ceiling.add(outcome, path);
        if let Some(medium) = ceiling.futile() {
            self.forget(medium);
        } else if now >= ceiling.until {
            self.before = None;
            self.try_higher(now, path);
        } else {
            return CeilingChange::Same;
        }
        CeilingChange::Raised
    }

    fn lower(&mut self, now: Instant, rate: f64, share: f64) {
        self.run = LossyRun::default();
        if self.ceiling.is_some_and(|ceiling| ceiling.trials > 0) {
            self.confirmed = (self.confirmed + 1).min(CONFIRMED_MOST);
        }
        self.ceiling = Some(Ceiling {
            rate: rate * MARGIN,
            futile: self.medium + FUTILE * (share - self.medium),
            epochs: 0,
            arrived: 0.0,
            lost: 0.0,
            judged: false,
            until: now + PATIENCE * (1 << self.confirmed),
            trials: 0,
        });
    }

    /// Raises the ceiling step by step for a while each. Drops it after the last trial without excessive loss.
    fn try_higher(&mut self, now: Instant, path: PathEstimates) {
        match &mut self.ceiling {
            Some(ceiling) if ceiling.trials < TRIALS => {
                ceiling.trials += 1;
                ceiling.rate *= TRIAL;
                ceiling.until = now + TRIAL_TIME + TRIAL_ROUNDS * path.rtt;
            }
            _ => self.forget(self.medium),
        }
    }

    fn forget(&mut self, medium: f64) {
        *self = Self {
            medium,
            before: self.before,
            ..Self::default()
        };
    }
}

impl LossyRun {
    fn add(&mut self, outcome: RateSample) {
        if self.epochs > 0 {
            self.rates += outcome.rate;
        }
        self.epochs += 1;
        self.arrived += outcome.arrived;
        self.lost += outcome.lost;
    }

    /// Returns the delivered rate and the share of lost packets, if the loss exceeds what chance explains.
    fn verdict(self, medium: f64, path: PathEstimates) -> Option<(f64, f64)> {
        let sent = self.arrived + self.lost;
        if self.epochs < LOSSY || sent < LOSSY_PACKETS * path.mtu {
            return None;
        }
        let share = self.lost / sent;
        let doubt = loss::deviation(share, sent / path.mtu / path.clump);
        let certain = share - DOUBT * doubt > medium + SLACK;
        certain.then(|| (self.rates / f64::from(self.epochs - 1), share))
    }
}

impl Ceiling {
    fn add(&mut self, outcome: RateSample, path: PathEstimates) {
        if self.trials > 0 {
            return;
        }
        self.arrived += outcome.arrived;
        self.lost += outcome.lost;
        self.judged = self.arrived + self.lost > ENOUGH * path.mtu;
    }

    /// Returns the medium's share of loss if as much is lost below the ceiling as before.
    fn futile(&self) -> Option<f64> {
        let share = self.lost / (self.arrived + self.lost);
        (self.judged && self.trials == 0 && share > self.futile).then_some(share)
    }
}

/// A measurement is suspicious if its loss exceeds the medium's by this much. A policer is assumed after `LOSSY`
/// consecutive suspicious measurements with `LOSSY_PACKETS` packets, if the excess is beyond `DOUBT` standard
/// deviations.
const SLACK: f64 = 0.02;
const LOSSY: u32 = 2;
const LOSSY_PACKETS: f64 = 300.0;
const DOUBT: f64 = 3.0;

/// Share of the loss above the medium's that makes staying below the ceiling futile if it persists there.
const FUTILE: f64 = 0.3;

/// Ceiling over the rate that arrived while packets were lost.
const MARGIN: f64 = 0.98;

/// Number of measurements until a ceiling shows its effect on losses, and the number of packets needed to judge it.
const SETTLING: u32 = 2;
const ENOUGH: f64 = 500.0;

/// Time until a higher rate is tried. It doubles after each confirmation, up to `CONFIRMED_MOST` times. A trial
/// raises the rate by the factor `TRIAL` and lasts for `TRIAL_TIME` plus `TRIAL_ROUNDS` round trips, because the
/// tokens saved meanwhile let everything pass at first.
const PATIENCE: Duration = Duration::from_millis(2500);
const CONFIRMED_MOST: u32 = 4;
const TRIAL: f64 = 1.12;
const TRIALS: u32 = 3;
const TRIAL_TIME: Duration = Duration::from_secs(1);
const TRIAL_ROUNDS: u32 = 20;
