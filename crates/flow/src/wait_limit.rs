//! How long a flow that only waits for its end is given (PROTOCOL CLOSE-12).

use std::time::{Duration, Instant};

use crate::deadlines::passed_asleep;

/// An application, or a peer, that makes no progress for this long is considered dead, as a silent connection is.
const IDLE_MAX: Duration = Duration::from_mins(1);

/// Longest time for which a flow that only waits for its end holds memory, however slowly it makes progress.
const WAIT_MAX: Duration = Duration::from_mins(10);

/// The time that a wait may still take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitLimit {
    since: Instant,
    until: Instant,
    idle_until: Instant,
}

impl WaitLimit {
    /// Starts the time at `now`.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            since: now,
            until: now + WAIT_MAX,
            idle_until: now + IDLE_MAX,
        }
    }

    /// Notes whether the wait has made progress. Returns the time until which it may continue.
    pub(crate) fn update(&mut self, now: Instant, progress: bool) -> Instant {
        // A host that slept has given no time either.
        let slept = passed_asleep(self.end(), now);
        if slept {
            self.until = self.until.max(now + IDLE_MAX);
        }
        if progress || slept {
            self.idle_until = now + IDLE_MAX;
        }
        self.end()
    }

    /// Returns whether the wait has taken too long. A limit that passed during a sleep does not count: the next
    /// [`WaitLimit::update`] grants a new one.
    pub(crate) fn has_passed(&self, now: Instant) -> bool {
        self.end() <= now && !passed_asleep(self.end(), now)
    }

    /// Returns the time until which the wait may continue.
    fn end(&self) -> Instant {
        self.until.min(self.idle_until)
    }

    /// Returns how long the wait has taken so far.
    pub(crate) fn waited(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_has_a_minute_and_all_have_ten() {
        let start = Instant::now();
        let mut limit = WaitLimit::new(start);
        assert_eq!(limit.update(start, false), start + IDLE_MAX);
        let later = start + IDLE_MAX / 2;
        assert_eq!(limit.update(later, true), later + IDLE_MAX);
        let late = start + WAIT_MAX.saturating_sub(IDLE_MAX / 2);
        let mut now = later + IDLE_MAX;
        limit.update(now, true);
        while now < late {
            now += IDLE_MAX / 2;
            limit.update(now, true);
        }
        assert_eq!(limit.update(now, true), start + WAIT_MAX);
    }

    #[test]
    fn a_sleep_costs_no_time() {
        let start = Instant::now();
        for sleep in [2 * IDLE_MAX, 2 * WAIT_MAX] {
            let mut limit = WaitLimit::new(start);
            let awake = start + sleep;
            assert!(!limit.has_passed(awake), "after {sleep:?}");
            let until = limit.update(awake, false);
            assert_eq!(until, awake + IDLE_MAX, "after {sleep:?}");
            assert_eq!(limit.update(until, false), until, "one minute, no more");
            assert!(limit.has_passed(until));
        }
    }
}
