//! A policer: what comes faster than its rate is lost, and nothing waits.
//!
//! It lets bursts pass, with what was saved while less was sent, so that the fastest arrival is no measure
//! of it. What arrives while packets are lost is.

mod probe;

use std::time::{Duration, Instant};

use super::epoch::Outcome;
use super::loss;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Policer {
    run: Run,
    ceiling: Option<Ceiling>,
    /// Share of packets that is lost however little is sent.
    medium: f64,
    /// The bandwidth without a ceiling.
    before: Option<f64>,
    /// Trials that found the same again.
    confirmed: u32,
}

/// Measurements in a row that lost too much while nothing waited.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    epochs: u32,
    arrived: f64,
    lost: f64,
    /// Bytes per second that arrived, of all but the first, summed up.
    rates: f64,
}

/// A rate that is not exceeded, and how it came to be known.
#[derive(Clone, Copy, Debug)]
struct Ceiling {
    rate: f64,
    /// Share of packets above which it is taken to make no difference.
    futile: f64,
    /// Measurements below it, and bytes that arrived and were lost in them.
    epochs: u32,
    arrived: f64,
    lost: f64,
    judged: bool,
    /// The end of keeping below, or of the trial.
    until: Instant,
    trials: u32,
}

/// What the rest of the model knows of loss.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Packets that are lost at once.
    clump: f64,
    mtu: f64,
    rtt: Duration,
    bandwidth: f64,
    /// Share of packets that is certainly lost where less is sent.
    medium: f64,
}

enum Verdict {
    Same,
    Lowered,
    Raised,
}

impl Policer {
    pub(super) fn rate(&self) -> Option<f64> {
        self.ceiling.map(|ceiling| ceiling.rate)
    }

    /// Whether less is sent than has been tried.
    pub(super) fn holds(&self) -> bool {
        self.ceiling.is_some_and(|ceiling| ceiling.trials == 0)
    }

    /// A measurement without queue, of what was sent at the full rate.
    fn on_epoch(&mut self, now: Instant, outcome: Outcome, known: Known) -> Verdict {
        if let Some(ceiling) = &mut self.ceiling {
            ceiling.epochs += 1;
            // What was sent before is still settled in the first ones.
            if ceiling.epochs <= SETTLING {
                return Verdict::Same;
            }
        }
        let medium = self.medium.max(known.medium);
        if outcome.loss() > medium + SLACK {
            self.run.add(outcome);
        } else {
            self.run = Run::default();
        }
        let open = self.ceiling.is_none_or(|ceiling| ceiling.judged);
        if let Some((rate, share)) = self.run.verdict(medium, known).filter(|_| open) {
            self.before = self.ceiling.is_none().then_some(known.bandwidth);
            self.lower(now, rate, share);
            return Verdict::Lowered;
        }
        let Some(ceiling) = &mut self.ceiling else {
            return Verdict::Same;
        };
        ceiling.add(outcome, known);
        if let Some(medium) = ceiling.futile() {
            self.forget(medium);
        } else if now >= ceiling.until {
            self.before = None;
            self.next(now, known);
        } else {
            return Verdict::Same;
        }
        Verdict::Raised
    }

    fn lower(&mut self, now: Instant, rate: f64, share: f64) {
        self.run = Run::default();
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

    /// Tries more for a while, and step by step more, until it does not believe in a policer any longer.
    fn next(&mut self, now: Instant, known: Known) {
        match &mut self.ceiling {
            Some(ceiling) if ceiling.trials < TRIALS => {
                ceiling.trials += 1;
                ceiling.rate *= TRIAL;
                ceiling.until = now + TRIAL_TIME + TRIAL_ROUNDS * known.rtt;
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

impl Run {
    fn add(&mut self, outcome: Outcome) {
        if self.epochs > 0 {
            self.rates += outcome.rate;
        }
        self.epochs += 1;
        self.arrived += outcome.arrived;
        self.lost += outcome.lost;
    }

    /// The rate that arrived, and the share that was lost, if that is more than chance.
    fn verdict(self, medium: f64, known: Known) -> Option<(f64, f64)> {
        let sent = self.arrived + self.lost;
        if self.epochs < LOSSY || sent < LOSSY_PACKETS * known.mtu {
            return None;
        }
        let share = self.lost / sent;
        let doubt = loss::deviation(share, sent / known.mtu / known.clump);
        let certain = share - DOUBT * doubt > medium + SLACK;
        certain.then(|| (self.rates / f64::from(self.epochs - 1), share))
    }
}

impl Ceiling {
    fn add(&mut self, outcome: Outcome, known: Known) {
        if self.trials > 0 {
            return;
        }
        self.arrived += outcome.arrived;
        self.lost += outcome.lost;
        self.judged = self.arrived + self.lost > ENOUGH * known.mtu;
    }

    /// Less is sent, and as much is lost: the share that the medium loses.
    fn futile(&self) -> Option<f64> {
        let share = self.lost / (self.arrived + self.lost);
        (self.judged && self.trials == 0 && share > self.futile).then_some(share)
    }
}

/// Loss above the medium's that is suspicious, in so many measurements in a row at least, and beyond so
/// many standard deviations.
const SLACK: f64 = 0.02;
const LOSSY: u32 = 2;
const LOSSY_PACKETS: f64 = 300.0;
const DOUBT: f64 = 3.0;

/// Share of the loss beyond the medium's that makes keeping below futile.
const FUTILE: f64 = 0.3;

/// Part of the rate that arrived while packets were lost.
const MARGIN: f64 = 0.98;

/// Measurements until a ceiling shows in what is lost, and packets that tell whether it does.
const SETTLING: u32 = 2;
const ENOUGH: f64 = 500.0;

/// Time until more is tried, doubled up to so many times; how much more, and how long at most: what was
/// saved meanwhile passes at first.
const PATIENCE: Duration = Duration::from_millis(2500);
const CONFIRMED_MOST: u32 = 4;
const TRIAL: f64 = 1.12;
const TRIALS: u32 = 3;
const TRIAL_TIME: Duration = Duration::from_secs(1);
const TRIAL_ROUNDS: u32 = 20;
