//! Following a path whose rate varies: sends at the rate of the latest arrivals, and keeps a short queue.
//!
//! A sender that keeps no queue learns of a higher rate only by a probe. On a radio link the rate has changed again by
//! the time a probe has ended. A short queue shows the rate at every moment: as long as packets wait, they arrive as
//! fast as the path carries them.

use std::time::{Duration, Instant};

use super::phase::Phase;
use super::recent_extreme::RecentExtreme;
use super::{ACK_LATE_S, Auto};

/// Whether the sender follows the path's rate, and the reasons for and against it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Follow {
    /// Time of the latest fall of the path's rate.
    fallen: Option<Instant>,
    /// Time at which the rate was last seen to vary. `None` if the sender does not follow it.
    varied: Option<Instant>,
    /// The highest and the lowest recent rate in bytes per second.
    high: RecentExtreme,
    low: RecentExtreme,
    /// Time since which packets wait much longer than in the short queue, and the bandwidth at that time.
    behind: Option<(Instant, f64)>,
    /// Time of the latest rate.
    noted: Option<Instant>,
    /// Time at which the sender last stopped following.
    stopped: Option<Instant>,
}

impl Follow {
    /// Records that the path has become much slower. The second fall within [`FALLS_WITHIN`] shows a rate that varies.
    pub(super) fn on_fall(&mut self, now: Instant) {
        let recent = |at| now.saturating_duration_since(at) < FALLS_WITHIN;
        let again = self.fallen.replace(now).is_some_and(recent);
        if again && !self.stopped.is_some_and(recent) {
            self.varied = Some(now);
        }
    }

    /// Stops following, until the rate has fallen twice again, but at least for [`FALLS_WITHIN`].
    pub(super) fn stop(&mut self, now: Instant) {
        if self.varied.is_some() {
            *self = Self {
                stopped: Some(now),
                ..Self::default()
            };
        }
    }

    /// Forgets everything but when it last stopped.
    pub(super) fn forget(&mut self) {
        *self = Self {
            stopped: self.stopped,
            ..Self::default()
        };
    }

    /// Notes the rate of the latest arrivals, and returns whether it has varied recently.
    fn varies(&mut self, now: Instant, rate: f64) -> bool {
        let before = self.noted.replace(now);
        if before.is_some_and(|at| now.saturating_duration_since(at) > VARIES_WITHIN) {
            // The application has paused.
            self.high.forget();
            self.low.forget();
            self.behind = None;
        }
        self.high.add(now, rate, VARIES_WITHIN, f64::max);
        self.low.add(now, rate, VARIES_WITHIN, f64::min);
        let high = self.high.get(f64::max).unwrap_or(rate);
        let low = self.low.get(f64::min).unwrap_or(rate);
        if high > VARIES * low {
            self.varied = Some(now);
        }
        self.varied
            .is_some_and(|at| now.saturating_duration_since(at) < STEADY)
    }

    /// Returns the bandwidth before other flows filled the queue, if packets have waited much longer than they should
    /// for a while.
    fn behind_others(&mut self, now: Instant, waits: bool, bandwidth: f64) -> Option<f64> {
        if !waits {
            self.behind = None;
            return None;
        }
        let (since, before) = *self.behind.get_or_insert((now, bandwidth));
        (now.saturating_duration_since(since) > BEHIND).then_some(before)
    }
}

impl Auto {
    /// Returns whether the sender may keep a queue. Members of an ensemble would each keep one.
    pub(super) fn may_follow(&self) -> bool {
        !self.background && self.rival.is_none() && self.siblings.summary.is_none()
    }

    /// Returns whether the sender follows the path's rate.
    pub(super) fn follows(&self) -> bool {
        self.may_follow() && self.follow.varied.is_some()
    }

    /// Returns the window and the rate with which the sender follows the path's rate. In each round trip without a
    /// queue, the window grows by the queue's part of the round trip.
    pub(super) fn following(&self) -> (f64, f64) {
        let bandwidth = self.bandwidth.get();
        let window = (self.floor_s() + self.followed_queue_s()) * bandwidth;
        (window, PACING * bandwidth)
    }

    /// Returns for how long packets wait in the short queue, including the time by which acknowledgements are late.
    fn followed_queue_s(&self) -> f64 {
        let floor_s = self.floor_s();
        let short = (QUEUE_ROUNDS * floor_s).clamp(QUEUE_MIN_S, QUEUE_S);
        let queue = short.max(QUEUE_SHARE * floor_s);
        queue + ACK_LATE_S + self.sleeps.as_secs_f64()
    }

    /// Takes the `rate` of the latest arrivals as the bandwidth, or stops following.
    pub(super) fn follow(&mut self, now: Instant, rate: f64) {
        let varies = self.follow.varies(now, rate);
        let waits = self.rtt.excess().as_secs_f64() > BEHIND_QUEUES * self.followed_queue_s();
        if let Some(before) = self.follow.behind_others(now, waits, self.bandwidth.get()) {
            self.follow.stop(now);
            // The rate of the latest arrivals has fallen with the window.
            self.bandwidth.reset(before);
            return;
        }
        if !varies {
            self.follow.stop(now);
            return;
        }
        self.bandwidth.reset(rate);
        self.pressure.forget();
        if !matches!(self.phase, Phase::Cruise { .. }) {
            self.enter(now, Phase::Cruise { left: self.cruise });
        }
    }
}

/// Two falls within this time show a rate that varies.
const FALLS_WITHIN: Duration = Duration::from_secs(10);

/// The rate varies if the highest rate of this span and of the one before exceeds the lowest by the factor `VARIES`.
const VARIES_WITHIN: Duration = Duration::from_secs(1);
const VARIES: f64 = 1.5;

/// A rate that has not varied for this time is steady.
const STEADY: Duration = Duration::from_secs(10);

/// Length of the queue: this time, or this part of the floor if that is longer. It must be longer than acknowledgements
/// and grants of a radio link are late, because the rest of it is what makes the window grow.
const QUEUE_S: f64 = 0.025;
const QUEUE_SHARE: f64 = 0.5;

/// On a short path the queue is this number of floors, but at least this time.
const QUEUE_ROUNDS: f64 = 2.5;
const QUEUE_MIN_S: f64 = 0.005;

/// Factor on the queue, and the time for which packets wait that long if other flows fill the queue. After a fall of the
/// rate, the queue drains sooner.
const BEHIND_QUEUES: f64 = 1.5;
const BEHIND: Duration = Duration::from_millis(500);

/// Pacing rate over the bandwidth, so that the window is the limit.
const PACING: f64 = 1.5;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a `Follow` that has seen two falls of the rate, and the time of the second.
    fn following() -> (Follow, Instant) {
        let (mut follow, start) = (Follow::default(), Instant::now());
        follow.on_fall(start);
        assert!(follow.varied.is_none(), "a single fall may be a step");
        let again = start + FALLS_WITHIN / 2;
        follow.on_fall(again);
        (follow, again)
    }

    #[test]
    fn a_rate_that_falls_twice_is_followed_until_it_is_steady() {
        let (mut follow, start) = following();
        assert!(follow.varies(start, 1e6));
        let changed = start + STEADY / 2;
        assert!(follow.varies(changed, 2e6));
        assert!(follow.varies(changed + VARIES_WITHIN / 2, 1e6));
        let steady = (1..30).map(|half_s| changed + VARIES_WITHIN / 2 * half_s);
        assert!(steady.into_iter().any(|at| !follow.varies(at, 1e6)));
    }

    #[test]
    fn after_a_stop_two_falls_are_not_enough_for_a_while() {
        let (mut follow, start) = following();
        follow.stop(start);
        for quarter in 1..4 {
            follow.on_fall(start + FALLS_WITHIN / 4 * quarter);
            assert!(follow.varied.is_none());
        }
        follow.on_fall(start + FALLS_WITHIN);
        assert!(follow.varied.is_some());
    }

    #[test]
    fn others_that_fill_the_queue_leave_the_bandwidth_as_it_was_before() {
        let (mut follow, start) = following();
        assert_eq!(follow.behind_others(start, true, 8e6), None);
        assert_eq!(follow.behind_others(start + BEHIND, true, 2e6), None);
        let late = start + BEHIND + Duration::from_millis(1);
        assert_eq!(follow.behind_others(late, true, 1e6), Some(8e6));
        assert_eq!(follow.behind_others(late, false, 1e6), None);
        assert_eq!(follow.behind_others(late, true, 1e6), None, "a new wait");
    }
}
