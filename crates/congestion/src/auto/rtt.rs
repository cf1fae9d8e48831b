//! Round-trip times: the time that a full path without a queue takes, and the current excess over it.
//!
//! While delays are steady, the lowest sample is the floor. If delays vary by themselves, no packet on a full path
//! comes near that sample. [`RttModel::record_jitter`] then records how long packets take without a queue, and by how
//! much they differ.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::recent_extreme::RecentExtreme;
use crate::bytes;

/// Age after which a floor that has not been seen again may be wrong, because the path may have changed.
const FLOOR_AGE: Duration = Duration::from_secs(10);

/// Number of latest samples whose minimum shows a queue. A single late sample is noise, such as a sleeping thread or
/// a lost race.
const SAMPLES: usize = 8;

/// Number of samples that show the beginning of a queue, if they arrived over at least a round trip divided by
/// `BEGIN_SHARE`.
const BEGIN_SAMPLES: usize = 3;
const BEGIN_SHARE: u32 = 32;

/// All packets must wait for this time before a queue counts as standing: a quarter of the floor, within these
/// limits. Hosts and radio links stand still for milliseconds, and then deliver at once what has accumulated.
const LASTING_SHARE: u32 = 4;
const LASTING_LEAST: Duration = Duration::from_millis(4);
const LASTING_MOST: Duration = Duration::from_millis(25);

/// Round-trip times that differ by less than this factor count as equal.
const NEAR: f64 = 1.02;

/// Minimum duration of a round. On short paths a round trip holds only a few samples.
const ROUND_LEAST: Duration = Duration::from_millis(8);

/// The lateness of packets is remembered for this span and for one more.
const LATENESS_AGE: Duration = Duration::from_secs(5);

/// The sender looks for a drained queue in this span and in the one before it.
const LOWEST_MEAN_AGE: Duration = Duration::from_millis(1500);

/// Part of the usual wait that remains when a queue has drained.
const DRAINED: f64 = 0.25;

/// Round-trip times of a path; see the module documentation.
#[derive(Clone, Debug, Default)]
pub(crate) struct RttModel {
    /// The lowest sample so far.
    least: Option<Duration>,
    /// Round-trip time of packets without a queue, if it exceeds the lowest sample, and by how much the level of such
    /// packets varies.
    base: Option<Duration>,
    spread: Duration,
    /// By how much the mean of such packets exceeds `base`.
    mean_late: Duration,
    /// The most by which single packets were later than the level, and the lowest mean of a round trip, both in
    /// seconds.
    lateness: RecentExtreme,
    lowest_mean: RecentExtreme,
    /// Time at which the floor was last looked for, or last fell by much.
    seen: Option<Instant>,
    /// The lowest sample of the latest search for the floor, until another search confirms or refutes it.
    candidate: Option<Duration>,
    recent: VecDeque<(Instant, Duration)>,
    lasting: WindowMin,
    /// Mean over about the last round trip, in seconds, and when it was last updated.
    mean: Option<(Instant, f64)>,
    /// The highest level since the given time.
    high: Option<(Instant, Duration)>,
}

/// A sliding-window minimum: the samples of which no later one is lower, with their times. The first one is the
/// minimum of the window.
#[derive(Clone, Debug, Default)]
struct WindowMin(VecDeque<(Instant, Duration)>);

impl WindowMin {
    fn add(&mut self, now: Instant, sample: Duration, span: Duration) {
        while self.0.back().is_some_and(|(_, rtt)| *rtt >= sample) {
            self.0.pop_back();
        }
        self.0.push_back((now, sample));
        let old = |(at, _): &(Instant, Duration)| now.saturating_duration_since(*at) > span;
        while self.0.front().is_some_and(old) {
            self.0.pop_front();
        }
    }

    fn get(&self) -> Option<Duration> {
        self.0.front().map(|(_, rtt)| *rtt)
    }
}

impl RttModel {
    pub(crate) fn on_sample(&mut self, now: Instant, sample: Duration) {
        if self.recent.len() == SAMPLES {
            self.recent.pop_front();
        }
        self.recent.push_back((now, sample));
        match self.least {
            Some(least) if sample >= least => {}
            least => {
                // The sample is much lower than before, so another flow has paused. All flows that see it pause
                // together next time.
                if least.is_none_or(|least| sample.mul_f64(NEAR) < least) {
                    self.seen = Some(now);
                }
                self.least = Some(sample);
            }
        }
        let floor = self.floor().unwrap_or(sample);
        let lasting = (floor / LASTING_SHARE).clamp(LASTING_LEAST, LASTING_MOST);
        self.lasting.add(now, sample, lasting);
        let round = floor.max(ROUND_LEAST).as_secs_f64();
        let taken = sample.as_secs_f64();
        let mean = self.mean.map_or(taken, |(at, mean)| {
            let part = now.saturating_duration_since(at).as_secs_f64() / round;
            mean + (taken - mean) * part.min(1.0)
        });
        self.mean = Some((now, mean));
        self.lowest_mean.add(now, mean, LOWEST_MEAN_AGE, f64::min);
        self.lower_base(now, floor);
    }

    /// Returns the lowest recent mean of a round trip, in seconds.
    pub(crate) fn lowest_mean_s(&self) -> f64 {
        self.lowest_mean.get(f64::min).unwrap_or(f64::MAX)
    }

    /// Returns the mean of a round trip, in seconds, below which a queue has drained that usually makes the mean
    /// `mean_s`.
    pub(crate) fn drained_s(&self, mean_s: f64) -> f64 {
        let least = self.least.unwrap_or_default().as_secs_f64();
        least + DRAINED * (mean_s - least)
    }

    /// Forgets the lowest mean, because no queue could have drained yet.
    pub(crate) fn forget_lowest_mean(&mut self) {
        self.lowest_mean.forget();
    }

    /// Lowers the base if the level was below it for a whole round trip.
    fn lower_base(&mut self, now: Instant, floor: Duration) {
        let Some((base, level)) = self.base.zip(self.level()) else {
            self.high = None;
            return;
        };
        let (since, high) = self.high.unwrap_or((now, level));
        let high = high.max(level);
        if now.saturating_duration_since(since) < floor.max(ROUND_LEAST) {
            self.high = Some((since, high));
            return;
        }
        self.high = None;
        if high < base {
            self.base = self.least.map(|least| least.max(high));
        }
    }

    /// Returns the round-trip time of a full path without a queue.
    pub(crate) fn floor(&self) -> Option<Duration> {
        self.base.or(self.least)
    }

    /// Returns whether delays are known to vary by themselves.
    pub(crate) fn jitters(&self) -> bool {
        self.base.is_some() && !self.spread.is_zero()
    }

    /// Returns the mean of round trips without a queue.
    pub(crate) fn mean_floor(&self) -> Option<Duration> {
        self.floor().map(|floor| floor + self.mean_late)
    }

    /// Returns for how long the floor has not been looked for.
    pub(crate) fn floor_age(&self, now: Instant) -> Duration {
        self.seen
            .map_or(Duration::ZERO, |seen| now.saturating_duration_since(seen))
    }

    pub(crate) fn stale(&self, now: Instant) -> bool {
        self.floor_age(now) > FLOOR_AGE
    }

    /// Ends a search for the floor that other flows' queue may have disturbed, so that it has found nothing.
    pub(crate) fn searched(&mut self, now: Instant) {
        self.candidate = None;
        self.seen = Some(now);
    }

    /// Ends a search for the floor with little in flight, in which `least` was seen. Two equal results in a row mean
    /// that the path has changed, because the queue of another flow is rarely the same twice.
    pub(crate) fn renew(&mut self, now: Instant, least: Duration) {
        let same = self.candidate.is_some_and(|candidate| {
            least <= candidate.mul_f64(NEAR) && candidate <= least.mul_f64(NEAR)
        });
        if same {
            self.least = Some(least);
        }
        self.candidate = (!same).then_some(least);
        self.seen = Some(now);
    }

    /// Replaces all values, because the path is another one: packets without a queue took at least `least`.
    pub(crate) fn lengthen(&mut self, now: Instant, least: Duration) {
        *self = Self {
            least: Some(least),
            seen: Some(now),
            recent: std::mem::take(&mut self.recent),
            ..Self::default()
        };
    }

    /// Records the delays of a path with jitter. Packets without a queue took at least `base` and `mean` on average,
    /// and their level varied by `spread`.
    pub(crate) fn record_jitter(
        &mut self,
        now: Instant,
        base: Duration,
        spread: Duration,
        mean: Duration,
    ) {
        self.base = Some(base);
        self.spread = spread;
        self.mean_late = mean.saturating_sub(base);
        self.seen = Some(now);
        self.high = None;
    }

    /// Assumes that delays vary by at least `spread`, before anything is known about it.
    pub(crate) fn assume_jitter(&mut self, spread: Duration) {
        let most = self.floor().unwrap_or_default() / 2;
        self.spread = self.spread.max(spread.min(most));
    }

    /// Returns by how much the level of packets without a queue varies.
    pub(crate) fn spread(&self) -> Duration {
        self.spread
    }

    /// Returns whether jitter is assumed but not confirmed.
    pub(crate) fn assumes_jitter(&self) -> bool {
        self.base.is_none() && !self.spread.is_zero()
    }

    /// Forgets jitter that was assumed and not found.
    pub(crate) fn forget_assumed_jitter(&mut self) {
        if self.base.is_none() {
            self.spread = Duration::ZERO;
        }
    }

    /// Notes the round-trip time of a packet in a cruise, in which the sender does nothing to make packets wait.
    pub(crate) fn note_lateness(&mut self, now: Instant, sample: Duration) {
        let Some((level, floor)) = self.level().zip(self.floor()) else {
            return;
        };
        let late = sample.saturating_sub(level).min(floor);
        self.lateness
            .add(now, late.as_secs_f64(), LATENESS_AGE, f64::max);
    }

    /// Returns the most by which single packets were later than the level by themselves.
    pub(crate) fn lateness(&self) -> Duration {
        Duration::from_secs_f64(self.lateness.get(f64::max).unwrap_or(0.0))
    }

    pub(crate) fn latest(&self) -> Option<Duration> {
        self.recent.back().map(|(_, rtt)| *rtt)
    }

    /// Returns the mean over about the last round trip, in seconds.
    pub(crate) fn mean_s(&self) -> f64 {
        self.mean.map_or(0.0, |(_, mean)| mean)
    }

    /// Returns the mean of the latest samples, in seconds.
    pub(crate) fn mean_recent_s(&self) -> f64 {
        let sum: f64 = self.recent.iter().map(|(_, rtt)| rtt.as_secs_f64()).sum();
        sum / bytes::to_f64(self.recent.len().max(1) as u64)
    }

    /// Returns the longest time that packets take without a queue, in seconds.
    pub(crate) fn quiet_s(&self) -> f64 {
        self.floor()
            .map_or(0.0, |floor| (floor + self.spread).as_secs_f64())
    }

    pub(crate) fn restart(&mut self) {
        self.recent.clear();
        self.lasting = WindowMin::default();
    }

    /// Returns the lowest time that recent packets took, which all of them took at least.
    pub(crate) fn level(&self) -> Option<Duration> {
        self.least_recent().min(self.lasting.get())
    }

    /// Returns how far above the floor the path certainly is: the time that all recent packets waited.
    pub(crate) fn excess(&self) -> Duration {
        self.above(self.level())
    }

    /// Returns whether packets wait longer than this share of the floor, and longer than `least`.
    pub(crate) fn queued(&self, share: f64, least: Duration) -> bool {
        self.exceeds(self.excess(), share, least)
    }

    /// Returns the same for the latest packets alone. The answer comes sooner, and is wrong more often.
    pub(crate) fn queued_now(&self, share: f64, least: Duration) -> bool {
        self.exceeds(self.above(self.least_recent()), share, least)
    }

    /// Returns whether packets begin to wait. It looks at the last few packets that arrived over a part of a round
    /// trip.
    pub(crate) fn queue_begins(&self, share: f64, least: Duration) -> bool {
        let last = self.recent.back().map(|(at, _)| *at);
        let Some((last, floor)) = last.zip(self.floor()) else {
            return false;
        };
        let mut least_few = Duration::MAX;
        for (count, (at, rtt)) in (1..).zip(self.recent.iter().rev()) {
            least_few = least_few.min(*rtt);
            let span = last.saturating_duration_since(*at);
            if count >= BEGIN_SAMPLES && span >= floor / BEGIN_SHARE || count == SAMPLES {
                return self.exceeds(self.above(Some(least_few)), share, least);
            }
        }
        false
    }

    fn least_recent(&self) -> Option<Duration> {
        let enough = self.recent.len() == SAMPLES;
        let least = self.recent.iter().map(|(_, rtt)| *rtt).min();
        least.filter(|_| enough)
    }

    fn above(&self, least: Option<Duration>) -> Duration {
        match (least, self.floor()) {
            (Some(least), Some(floor)) => least.saturating_sub(floor + self.spread),
            _ => Duration::ZERO,
        }
    }

    fn exceeds(&self, excess: Duration, share: f64, least: Duration) -> bool {
        self.floor()
            .is_some_and(|floor| excess > floor.mul_f64(share).max(least))
    }
}
