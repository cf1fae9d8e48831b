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
    /// Number of times that the same policer was found again.
    confirmed: u32,
    /// Time at which the latest ceiling was dropped, because a trial had lost nothing.
    dropped: Option<Instant>,
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

    /// Returns whether the sender stays below the ceiling and no trial has raised it yet. At first, an empty token bucket
    /// drops packets of bursts below the policer's rate, too.
    pub(super) fn holds(&self) -> bool {
        self.ceiling
            .is_some_and(|ceiling| ceiling.trials == 0 && ceiling.epochs > SETTLING)
    }

    /// Returns whether a policer was found that has not been found again.
    pub(super) fn is_new(&self) -> bool {
        self.ceiling.is_some() && self.confirmed == 0
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
            self.lower(now, rate, share);
            return CeilingChange::Lowered;
        }
        let Some(ceiling) = &mut self.ceiling else {
            return CeilingChange::Same;
        };
        ceiling.add(outcome, path);
        if let Some(medium) = ceiling.futile() {
            self.forget(medium);
        } else if now >= ceiling.until && self.may_be_tried() {
            self.try_higher(now, path);
        } else {
            return CeilingChange::Same;
        }
        CeilingChange::Raised
    }

    /// Returns whether a higher rate may be tried. A ceiling that was found once must have been judged before.
    fn may_be_tried(&self) -> bool {
        let judged = self.ceiling.is_some_and(|ceiling| ceiling.judged);
        judged || self.confirmed > 0
    }

    fn lower(&mut self, now: Instant, rate: f64, share: f64) {
        self.run = LossyRun::default();
        let recent = |at| now.saturating_duration_since(at) < AGAIN;
        if self.ceiling.is_some_and(|ceiling| ceiling.trials > 0) {
            self.confirmed = (self.confirmed + 1).min(CONFIRMED_MOST);
        } else if self.dropped.is_some_and(recent) {
            self.confirmed = 1;
        }
        let patience = match self.confirmed.checked_sub(1) {
            Some(times) => PATIENCE * (1 << times),
            None => PATIENCE_FIRST,
        };
        self.ceiling = Some(Ceiling {
            rate: rate * MARGIN,
            futile: self.medium + FUTILE * (share - self.medium),
            epochs: 0,
            arrived: 0.0,
            lost: 0.0,
            judged: false,
            until: now + patience,
            trials: 0,
        });
    }

    /// Raises the ceiling step by step for a while each. Drops it after the last trial without excessive loss. A
    /// ceiling that was found once has one short trial: the loss may have been that of a handover.
    fn try_higher(&mut self, now: Instant, path: PathEstimates) {
        let (trials, time) = if self.confirmed > 0 {
            (TRIALS, TRIAL_TIME + TRIAL_ROUNDS * path.rtt)
        } else {
            (1, TRIAL_TIME_FIRST + TRIAL_ROUNDS_FIRST * path.rtt)
        };
        match &mut self.ceiling {
            Some(ceiling) if ceiling.trials < trials => {
                ceiling.trials += 1;
                ceiling.rate *= TRIAL;
                ceiling.until = now + time;
            }
            _ => {
                self.forget(self.medium);
                self.dropped = Some(now);
            }
        }
    }

    fn forget(&mut self, medium: f64) {
        *self = Self {
            medium,
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

/// Time until a policer that was found once is tried. It has saved few tokens by then, so the trial is short. A policer
/// that is found within `AGAIN` after that is the same one.
const PATIENCE_FIRST: Duration = Duration::from_millis(500);
const TRIAL_TIME_FIRST: Duration = Duration::from_millis(100);
const TRIAL_ROUNDS_FIRST: u32 = 5;
const AGAIN: Duration = Duration::from_secs(10);

/// Time until a higher rate is tried, if the policer was found again. It doubles with each time, up to `CONFIRMED_MOST`
/// of them. A trial raises the rate by the factor `TRIAL` and lasts for `TRIAL_TIME` plus `TRIAL_ROUNDS` round trips,
/// because the tokens saved meanwhile let everything pass at first.
const PATIENCE: Duration = Duration::from_millis(2500);
const CONFIRMED_MOST: u32 = 5;
const TRIAL: f64 = 1.12;
const TRIALS: u32 = 3;
const TRIAL_TIME: Duration = Duration::from_secs(1);
const TRIAL_ROUNDS: u32 = 20;
