//! Trials: sending much more for a moment, to see whether a rival exists.
//!
//! Jitter may look like the queue of another flow. If the medium also loses packets, the window beside that rival
//! becomes tiny. Delays then hardly react to what a rest takes out of flight, so no rest shows the error. A trial asks
//! the opposite question: the sender sends nearly as much as before it met the rival. If other flows fill the path, much
//! less arrives than is sent, and packets wait longer and longer. If no other flow does, all of it arrives.

use std::time::{Duration, Instant};

use crate::auto::Auto;
use crate::auto::phase::{CRUISE_EPOCHS, Phase};
use crate::bytes;

/// A trial in progress, and what has been seen of it so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::auto) struct Trial {
    /// Rate in bytes per second at which the sender sends, and maximum number of bytes in flight.
    pub(in crate::auto) rate: f64,
    pub(in crate::auto) window: f64,
    /// Level of round-trip times that only a queue reaches.
    queue: Duration,
    /// Time for which packets of the trial must arrive.
    lasts: Duration,
    /// Time of the first arrival of such a packet, and the bytes that had arrived then.
    first: Option<(Instant, f64)>,
    /// Values since then: the lowest and highest level, the sum of round-trip times in seconds, and the number of
    /// acknowledgements.
    low: Duration,
    high: Duration,
    sum: f64,
    acks: f64,
}

/// Measures how much arrives beside a rival until the next trial may be due.
#[derive(Clone, Copy, Debug)]
pub(in crate::auto) struct TrialSchedule {
    since: Instant,
    delivered: u64,
    /// The highest mean of a round trip since then, in seconds.
    longest_s: f64,
    /// Length of a span of time at whose end a trial may begin.
    patience: Duration,
}

/// The state of the path in the span before a possible trial.
#[derive(Clone, Copy, Debug, PartialEq)]
struct SpanBefore {
    /// Delivered rate in bytes per second.
    rate: f64,
    /// The highest mean of a round trip, in seconds.
    longest_s: f64,
}

impl TrialSchedule {
    pub(in crate::auto) fn new(now: Instant) -> Self {
        Self {
            since: now,
            delivered: 0,
            longest_s: 0.0,
            patience: PATIENCE,
        }
    }

    /// Begins a span of time, when `delivered` bytes have arrived.
    pub(super) fn begin(&mut self, now: Instant, delivered: u64) {
        *self = Self {
            since: now,
            delivered,
            longest_s: 0.0,
            ..*self
        };
    }

    /// Makes spans longer, because a trial has not shown that no rival exists.
    fn back_off(&mut self) {
        self.patience = (2 * self.patience).clamp(PATIENCE_AGAIN, PATIENCE_MOST);
    }

    /// Records the mean of a round trip, in seconds. Returns the measured values and begins the next span, if this one
    /// is over.
    fn watch(&mut self, now: Instant, mean_s: f64, delivered: u64) -> Option<SpanBefore> {
        self.longest_s = self.longest_s.max(mean_s);
        let elapsed = now.saturating_duration_since(self.since);
        if elapsed < self.patience {
            return None;
        }
        let before = SpanBefore {
            rate: bytes::to_f64(delivered - self.delivered) / elapsed.as_secs_f64(),
            longest_s: self.longest_s,
        };
        self.begin(now, delivered);
        Some(before)
    }
}

impl Auto {
    /// Begins a trial if the sender has carried little beside a rival, on a medium that loses packets. Members of an
    /// ensemble make no trials.
    pub(in crate::auto) fn watch_trial(&mut self, now: Instant) {
        let (mean_s, delivered) = (self.rtt.mean_s(), self.sampler.delivered());
        let Some(before) = self.trials.watch(now, mean_s, delivered) else {
            return;
        };
        let Some(rival) = self.rival.filter(|rival| !rival.holds()) else {
            return;
        };
        let floor = self.floor_s();
        let late = (before.longest_s - floor).max(0.0);
        let little = before.rate < LITTLE * rival.before;
        let may_jitter = self.long_enough() && late <= JITTER_MOST * floor;
        let alone = self.siblings.summary.is_none();
        if !little || !self.limited || !may_jitter || !alone || !self.overflow.medium_loses() {
            return;
        }
        let rate = RATE * rival.before;
        let queue_s = floor + QUEUE * late + QUEUE_S;
        self.rtt.restart();
        let trial = Trial {
            rate,
            window: WINDOW * rate * (floor + late),
            queue: Duration::from_secs_f64(queue_s),
            lasts: LASTS_LEAST.max(Duration::from_secs_f64(LASTS * late)),
            first: None,
            low: Duration::MAX,
            high: Duration::ZERO,
            sum: 0.0,
            acks: 0.0,
        };
        self.enter(now, Phase::Trial(trial));
    }

    pub(in crate::auto) fn step_trial(&mut self, now: Instant, mut trial: Trial) {
        if self.phase_s(now) > trial.lasts.as_secs_f64() + OVERDUE_ROUNDS * self.rtt_s() {
            self.end_trial(now, None);
            return;
        }
        let Some(latest) = self.rtt.latest().filter(|_| self.phase_round) else {
            self.rtt.restart();
            return;
        };
        let (first, arrived) = *trial.first.get_or_insert((now, self.phase_arrived));
        trial.sum += latest.as_secs_f64();
        trial.acks += 1.0;
        if let Some(level) = self.rtt.level() {
            trial.low = trial.low.min(level);
            trial.high = trial.high.max(level);
        }
        self.phase = Phase::Trial(trial);
        let elapsed = now.saturating_duration_since(first);
        if trial.high > trial.queue {
            self.end_trial(now, None);
        } else if elapsed >= trial.lasts {
            let rate = (self.phase_arrived - arrived) / elapsed.as_secs_f64();
            self.end_trial(now, (rate >= FITS * trial.rate).then_some((trial, rate)));
        }
    }

    /// Ends a trial. `alone` has the rate at which data arrived, if the trial has shown that no rival exists.
    fn end_trial(&mut self, now: Instant, alone: Option<(Trial, f64)>) {
        self.epoch = self.new_epoch(now);
        if let Some((trial, rate)) = alone {
            self.learn_lateness(now, &trial);
            self.end_rivalry(now);
            self.pressure.forget_rival();
            self.overflows = 0;
            self.bandwidth.reset(rate);
        } else {
            self.trials.back_off();
            // The trial has made the queue longer.
            if let Some(rival) = &mut self.rival {
                rival.lulls.rested(now);
                rival.unresponsive.rested(now);
            }
        }
        let left = CRUISE_EPOCHS;
        self.enter(now, Phase::Cruise { left });
    }

    /// Learns how long packets take without a queue, if they are late by themselves. Otherwise the same delays would
    /// soon be taken for a rival again.
    fn learn_lateness(&mut self, now: Instant, trial: &Trial) {
        let mean = Duration::from_secs_f64(trial.sum / trial.acks.max(1.0));
        let floor = self.rtt.floor().unwrap_or(mean);
        let late = mean > floor + self.noise() + LATE_LEAST;
        if late && trial.low < trial.high {
            let spread = trial.high.saturating_sub(trial.low);
            self.rtt.record_jitter(now, trial.low, spread, mean);
        }
    }
}

/// Part of the earlier rate. A sender that carries less makes trials. It is less than a fair share beside three
/// other flows.
const LITTLE: f64 = 0.2;

/// Part of the earlier rate at which a trial sends. That rate may have been measured too high after a standstill.
const RATE: f64 = 0.75;

/// Part of the trial's rate that arrives if no other flow fills the path. Beside flows that have eight tenths of the
/// path, 0.75 / (0.75 + 0.8) of the capacity is left to the trial, which is less than two thirds of its rate.
const FITS: f64 = 0.9;

/// Window of a trial over the bytes in flight at its rate.
const WINDOW: f64 = 2.0;

/// Longest mean lateness that may be jitter, over the floor. Behind a longer queue, other signs show whether a rival
/// exists.
const JITTER_MOST: f64 = 1.5;

/// If all recent packets are later than this multiple of the highest mean lateness plus `QUEUE_S`, a queue has grown.
const QUEUE: f64 = 1.25;
const QUEUE_S: f64 = 0.001;

/// Minimum time for which the packets of a trial must arrive, also as a multiple of the highest mean lateness: jitter
/// makes the measured time wrong by about that lateness.
const LASTS_LEAST: Duration = Duration::from_millis(20);
const LASTS: f64 = 4.0;

/// A trial is given up if it takes this many round trips longer.
const OVERDUE_ROUNDS: f64 = 4.0;

/// Mean lateness, in addition to [`Auto::noise`], that the sender would take for a queue. It is the lateness from which
/// on the sender yields.
const LATE_LEAST: Duration = Duration::from_millis(1);

/// Length of the first span, which is long compared with the growth of the window at the beginning. The length doubles
/// after each trial that has not shown that no rival exists, from `PATIENCE_AGAIN` to `PATIENCE_MOST`, so that a rival
/// hardly notices the trials.
const PATIENCE: Duration = Duration::from_secs(2);
const PATIENCE_AGAIN: Duration = Duration::from_secs(10);
const PATIENCE_MOST: Duration = Duration::from_secs(80);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_become_longer_after_trials_beside_a_rival() {
        let now = Instant::now();
        let mut schedule = TrialSchedule::new(now);
        let mut spans = Vec::new();
        for _ in 0..6 {
            spans.push(schedule.patience.as_secs());
            schedule.back_off();
        }
        assert_eq!(spans, [2, 10, 20, 40, 80, 80]);
    }

    #[test]
    fn a_span_shows_the_rate_and_the_longest_round_trip_in_it() {
        let mut now = Instant::now();
        let mut schedule = TrialSchedule::new(now);
        schedule.begin(now, 1000);
        for (longest_s, delivered) in [(0.03, 5000), (0.02, 6000)] {
            now += PATIENCE.saturating_sub(Duration::from_nanos(1));
            assert_eq!(schedule.watch(now, longest_s, delivered), None);
            now += Duration::from_nanos(1);
            let before = schedule.watch(now, 0.01, delivered);
            let bytes = if delivered == 5000 { 4000.0 } else { 1000.0 };
            let rate = bytes / PATIENCE.as_secs_f64();
            assert_eq!(before, Some(SpanBefore { rate, longest_s }));
        }
    }
}
