//! Round-trip times: the floor, and how far above it the path is now.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

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

#[derive(Clone, Debug, Default)]
pub(crate) struct Rtt {
    floor: Option<Duration>,
    /// When the floor was last looked for.
    seen: Option<Instant>,
    recent: VecDeque<(Instant, Duration)>,
    /// When samples came of which no later one is less, and they: the first is the least of the time looked at.
    lasting: VecDeque<(Instant, Duration)>,
    candidate: Option<Duration>,
}

impl Rtt {
    pub(crate) fn on_sample(&mut self, now: Instant, sample: Duration) {
        if self.recent.len() == SAMPLES {
            self.recent.pop_front();
        }
        self.recent.push_back((now, sample));
        self.note_lasting(now, sample);
        match self.floor {
            Some(floor) if sample >= floor => {}
            floor => {
                // Much lower than before: another flow has paused. All flows that see it pause together next time.
                if floor.is_none_or(|floor| sample.mul_f64(NEAR) < floor) {
                    self.seen = Some(now);
                }
                self.floor = Some(sample);
            }
        }
    }

    fn note_lasting(&mut self, now: Instant, sample: Duration) {
        while self.lasting.back().is_some_and(|(_, rtt)| *rtt >= sample) {
            self.lasting.pop_back();
        }
        self.lasting.push_back((now, sample));
        let floor = self.floor.unwrap_or(sample);
        let span = (floor / LASTING_SHARE).clamp(LASTING_LEAST, LASTING_MOST);
        while self
            .lasting
            .front()
            .is_some_and(|(at, _)| now.saturating_duration_since(*at) > span)
        {
            self.lasting.pop_front();
        }
    }

    pub(crate) fn floor(&self) -> Option<Duration> {
        self.floor
    }

    pub(crate) fn stale(&self, now: Instant) -> bool {
        self.seen
            .is_some_and(|seen| now.saturating_duration_since(seen) > FLOOR_AGE)
    }

    /// A look for the floor with little in flight is over, and `least` was seen. Twice the same is a path
    /// that has changed; the queue of another flow is never twice the same.
    pub(crate) fn renew(&mut self, now: Instant, least: Duration) {
        let same = self.candidate.is_some_and(|candidate| {
            least <= candidate.mul_f64(NEAR) && candidate <= least.mul_f64(NEAR)
        });
        if same {
            self.floor = Some(least);
        }
        self.candidate = (!same).then_some(least);
        self.seen = Some(now);
    }

    pub(crate) fn latest(&self) -> Option<Duration> {
        self.recent.back().map(|(_, rtt)| *rtt)
    }

    pub(crate) fn restart(&mut self) {
        self.recent.clear();
        self.lasting.clear();
    }

    /// How far above the floor the path certainly is: what all recent packets waited for.
    pub(crate) fn excess(&self) -> Duration {
        let lasting = self.lasting.front().map(|(_, rtt)| *rtt);
        self.above(self.least_recent().min(lasting))
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
        let Some((last, floor)) = self.recent.back().map(|(at, _)| *at).zip(self.floor) else {
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
        match (least, self.floor) {
            (Some(least), Some(floor)) => least.saturating_sub(floor),
            _ => Duration::ZERO,
        }
    }

    fn exceeds(&self, excess: Duration, share: f64, least: Duration) -> bool {
        self.floor
            .is_some_and(|floor| excess > floor.mul_f64(share).max(least))
    }
}
