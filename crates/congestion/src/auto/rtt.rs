//! Round-trip times: what a path takes that is full and holds no queue, and how far above that it is now.
//!
//! The least sample is the floor while delays are steady. Where they vary by themselves, no packet of a full path comes
//! near it: [`Rtt::rise`] then says what packets take that wait for nothing, and by how much they differ.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::lately::Lately;
use crate::bytes;

/// A floor that was not seen again for this long may be wrong: the path may have changed.
const FLOOR_AGE: Duration = Duration::from_secs(10);

/// Samples whose least tells of a queue. A single late one is noise: a sleeping thread, a lost race.
const SAMPLES: usize = 8;

/// Samples that tell that one begins, if they came over so much of a round trip.
const BEGIN_SAMPLES: usize = 3;
const BEGIN_SHARE: u32 = 32;

/// So long packets have to wait, all of them, before it is a queue that stays: a quarter of the floor within these
/// limits. Hosts and radio links stand still for milliseconds, and then deliver at once what has gathered.
const LASTING_SHARE: u32 = 4;
const LASTING_LEAST: Duration = Duration::from_millis(4);
const LASTING_MOST: Duration = Duration::from_millis(25);

/// Closer than this is the same.
const NEAR: f64 = 1.02;

/// The shortest round: on short paths a few samples would be all there is.
const ROUND_LEAST: Duration = Duration::from_millis(8);

/// How late packets come is remembered for this long, and for as long again.
const REACH_AGE: Duration = Duration::from_secs(5);

/// So far back, and as far again, is looked for a queue that was gone.
const EBB_AGE: Duration = Duration::from_millis(1500);

/// Part of the usual wait that is left where a queue has drained.
const DRAINED: f64 = 0.25;

#[derive(Clone, Debug, Default)]
pub(crate) struct Rtt {
    /// The least sample.
    least: Option<Duration>,
    /// The round-trip time of packets that wait for nothing, where it is more, and by how much their level differs.
    base: Option<Duration>,
    spread: Duration,
    /// By how much the mean of them is later.
    mean_late: Duration,
    /// The most by which single packets were later than the level, and the least mean of a round trip, in seconds.
    reach: Lately,
    ebb: Lately,
    /// When the floor was last looked for.
    seen: Option<Instant>,
    /// The least sample of the latest look, until another one confirms or refutes it.
    candidate: Option<Duration>,
    recent: VecDeque<(Instant, Duration)>,
    lasting: Least,
    /// The mean of the last round trip or so, and when it was last added to.
    mean: Option<(Instant, f64)>,
    /// The highest level since then.
    high: Option<(Instant, Duration)>,
}

/// When samples came of which no later one is less, and they: the first is the least of the time looked at.
#[derive(Clone, Debug, Default)]
struct Least(VecDeque<(Instant, Duration)>);

impl Least {
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

impl Rtt {
    pub(crate) fn on_sample(&mut self, now: Instant, sample: Duration) {
        if self.recent.len() == SAMPLES {
            self.recent.pop_front();
        }
        self.recent.push_back((now, sample));
        match self.least {
            Some(least) if sample >= least => {}
            least => {
                // Much lower than before: another flow has paused. All flows that see it pause together next time.
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
        self.ebb.add(now, mean, EBB_AGE, f64::min);
        self.lower_base(now, floor);
    }

    /// The least mean of a round trip lately, in seconds.
    pub(crate) fn ebb_s(&self) -> f64 {
        self.ebb.get(f64::min).unwrap_or(f64::MAX)
    }

    /// The mean of a round trip below which a queue has drained that makes it `mean_s` usually; both in seconds.
    pub(crate) fn drained_s(&self, mean_s: f64) -> f64 {
        let least = self.least.unwrap_or_default().as_secs_f64();
        least + DRAINED * (mean_s - least)
    }

    /// Forgets the least mean: no queue could have drained yet.
    pub(crate) fn forget_ebb(&mut self) {
        self.ebb.forget();
    }

    /// Lowers the base where all of a round trip was below it.
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

    /// The round-trip time of a full path without queue.
    pub(crate) fn floor(&self) -> Option<Duration> {
        self.base.or(self.least)
    }

    /// Whether delays are known to vary by themselves.
    pub(crate) fn jitters(&self) -> bool {
        self.base.is_some() && !self.spread.is_zero()
    }

    /// The mean of round trips that hold no queue.
    pub(crate) fn turn(&self) -> Option<Duration> {
        self.floor().map(|floor| floor + self.mean_late)
    }

    /// How long the floor was not looked for.
    pub(crate) fn unseen(&self, now: Instant) -> Duration {
        self.seen
            .map_or(Duration::ZERO, |seen| now.saturating_duration_since(seen))
    }

    pub(crate) fn stale(&self, now: Instant) -> bool {
        self.unseen(now) > FLOOR_AGE
    }

    /// A look for the floor with little in flight is over, and `least` was seen. Twice the same is a path that has
    /// changed; the queue of another flow is never twice the same.
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

    /// Packets that waited for nothing took so long at least: the path is another.
    pub(crate) fn lengthen(&mut self, now: Instant, least: Duration) {
        *self = Self {
            least: Some(least),
            seen: Some(now),
            recent: std::mem::take(&mut self.recent),
            ..Self::default()
        };
    }

    /// Packets that waited for nothing took so long at least, their level varied by `spread`, and they took `mean`.
    pub(crate) fn rise(&mut self, now: Instant, base: Duration, spread: Duration, mean: Duration) {
        self.base = Some(base);
        self.spread = spread.min(base / 2);
        self.mean_late = mean.saturating_sub(base);
        self.seen = Some(now);
        self.high = None;
    }

    /// Supposes that delays differ by so much at least, before anything is known of it.
    pub(crate) fn suppose(&mut self, spread: Duration) {
        let most = self.floor().unwrap_or_default() / 2;
        self.spread = self.spread.max(spread.min(most));
    }

    /// By how much the level of packets differs that wait for nothing.
    pub(crate) fn spread(&self) -> Duration {
        self.spread
    }

    /// Whether there may be jitter, and nothing is known of it.
    pub(crate) fn supposes(&self) -> bool {
        self.base.is_none() && !self.spread.is_zero()
    }

    /// Forgets jitter that was supposed and not found.
    pub(crate) fn doubt(&mut self) {
        if self.base.is_none() {
            self.spread = Duration::ZERO;
        }
    }

    /// Notes a packet that came at `sample` in a cruise, where nothing is done to make it wait.
    pub(crate) fn note_reach(&mut self, now: Instant, sample: Duration) {
        let Some((level, floor)) = self.level().zip(self.floor()) else {
            return;
        };
        let late = sample.saturating_sub(level).min(floor);
        self.reach.add(now, late.as_secs_f64(), REACH_AGE, f64::max);
    }

    /// The most by which single packets were later than the level by themselves.
    pub(crate) fn reach(&self) -> Duration {
        Duration::from_secs_f64(self.reach.get(f64::max).unwrap_or(0.0))
    }

    pub(crate) fn latest(&self) -> Option<Duration> {
        self.recent.back().map(|(_, rtt)| *rtt)
    }

    /// The mean of the last round trip or so, in seconds.
    pub(crate) fn mean_s(&self) -> f64 {
        self.mean.map_or(0.0, |(_, mean)| mean)
    }

    /// The mean of the latest samples, in seconds.
    pub(crate) fn mean_recent_s(&self) -> f64 {
        let sum: f64 = self.recent.iter().map(|(_, rtt)| rtt.as_secs_f64()).sum();
        sum / bytes::to_f64(self.recent.len().max(1) as u64)
    }

    /// The longest that packets take that wait for nothing, in seconds.
    pub(crate) fn quiet_s(&self) -> f64 {
        self.floor()
            .map_or(0.0, |floor| (floor + self.spread).as_secs_f64())
    }

    pub(crate) fn restart(&mut self) {
        self.recent.clear();
        self.lasting = Least::default();
    }

    /// The least that recent packets took, all of them.
    pub(crate) fn level(&self) -> Option<Duration> {
        self.least_recent().min(self.lasting.get())
    }

    /// How far above the floor the path certainly is: what all recent packets waited for.
    pub(crate) fn excess(&self) -> Duration {
        self.above(self.level())
    }

    /// Whether packets wait longer than this share of the floor, and longer than `least`.
    pub(crate) fn queued(&self, share: f64, least: Duration) -> bool {
        self.exceeds(self.excess(), share, least)
    }

    /// The same for the latest packets alone: sooner, and more often wrong.
    pub(crate) fn queued_now(&self, share: f64, least: Duration) -> bool {
        self.exceeds(self.above(self.least_recent()), share, least)
    }

    /// Whether packets begin to wait: what the last few tell, that came over a part of a round trip.
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
