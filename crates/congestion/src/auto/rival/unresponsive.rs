//! Flows that do not yield to loss: the queue overflows again and again, and stays nearly as long as it was.
//!
//! Where flows yield to loss, an overflow leaves seven tenths of what was in flight, and round trips become as much
//! shorter. Of many flows only some lose packets at once, but seldom the same ones many times in a row.

use std::time::{Duration, Instant};

/// Counts overflows in a row after which other flows sent no less.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unresponsive {
    /// The round trip without queue, in seconds.
    floor_s: f64,
    /// Mean round trips since the latest overflow, in seconds: the longest, and the shortest once others may have answered.
    longest_s: f64,
    shortest_s: f64,
    /// The end of the latest rest of ours.
    rested: Instant,
    /// Overflows in a row that had no answer, and when the first of them was counted.
    unanswered: u32,
    since: Instant,
}

impl Unresponsive {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            floor_s: 0.0,
            longest_s: 0.0,
            shortest_s: f64::MAX,
            rested: now,
            unanswered: 0,
            since: now,
        }
    }

    /// Takes the mean round trip of now and the floor, in seconds; `overflowed` is when the queue last did.
    pub(super) fn watch(&mut self, now: Instant, mean_s: f64, floor_s: f64, overflowed: Instant) {
        self.floor_s = floor_s;
        self.longest_s = self.longest_s.max(mean_s);
        let since = |at| now.saturating_duration_since(at).as_secs_f64();
        let answered = since(overflowed) > ANSWER_ROUNDS * mean_s;
        if answered && since(self.rested) > REST_ROUNDS * mean_s {
            self.shortest_s = self.shortest_s.min(mean_s);
        }
    }

    /// Judges the time since the overflow before: the queue overflows again.
    pub(super) fn on_overflow(&mut self, now: Instant) {
        let queued = self.longest_s > QUEUE_LEAST * self.floor_s;
        if queued && self.shortest_s < f64::MAX {
            if self.unanswered == 0 {
                self.since = now;
            }
            let drained_s = self.floor_s + DRAINED * (self.longest_s - self.floor_s);
            let answered = self.shortest_s < drained_s.max(ANSWERED * self.longest_s);
            self.unanswered = if answered { 0 } else { self.unanswered + 1 };
        }
        self.forget();
    }

    /// Leaves out what a rest of ours has done to the queue.
    pub(super) fn rested(&mut self, now: Instant) {
        self.rested = now;
        self.forget();
    }

    fn forget(&mut self) {
        self.longest_s = 0.0;
        self.shortest_s = f64::MAX;
    }

    /// Whether so many overflows had no answer that others do not yield to loss. `share` is our part of what the path
    /// carries: where it is small, few flows have the rest, and few of them take turns.
    pub(super) fn is_certain(&self, now: Instant, share: f64) -> bool {
        let least = match share {
            ..STARVED if self.floor_s > LONG_S => UNANSWERED_STARVED,
            ..SMALL => UNANSWERED,
            _ => return false,
        };
        self.unanswered >= least && now.saturating_duration_since(self.since) >= LASTING
    }
}

/// Round trips after an overflow until the queue shows how others answered, and after a rest until it is theirs again.
const ANSWER_ROUNDS: f64 = 1.0;
const REST_ROUNDS: f64 = 4.0;

/// Part of the longest round trip, and of the queue in it: a shorter one shows that others have sent less.
const ANSWERED: f64 = 0.78;
const DRAINED: f64 = 0.3;

/// The shortest round trip that holds a queue worth judging, over that of the path.
const QUEUE_LEAST: f64 = 1.2;

/// Few flows can have the rest where our share is smaller than this; round trips longer than this show overflows well. Then so
/// many overflows are enough: with fewer, eight flows of our own kind take one another for BBR (`fairness.rs`).
const STARVED: f64 = 0.1;
const LONG_S: f64 = 0.015;
const UNANSWERED_STARVED: u32 = 8;

/// The overflows that a larger share needs: with fewer, five flows of CUBIC are taken for BBR more often (`rivals_cubic.txt`).
const SMALL: f64 = 0.3;
const UNANSWERED: u32 = 12;

/// Shorter than this, one standstill of a host may be the reason of all.
const LASTING: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Overflows every 300 ms on a path of 30 ms, after each of which the round trip falls to `shortest_ms` for a while;
    /// `rests` every second. Whether they show a flow that does not yield, to a flow with so much of the path.
    fn shown(overflows: u32, shortest_ms: f64, rests: bool, share: f64) -> bool {
        let start = Instant::now();
        let mut others = Unresponsive::new(start);
        let mut overflowed = start;
        for at in 1..=overflows * 300 {
            let now = start + at * MS;
            let mean_ms = match at % 300 {
                100..150 => shortest_ms,
                _ if rests && (1..100).contains(&(at % 1000)) => 31.0,
                _ => 60.0,
            };
            others.watch(now, mean_ms / 1e3, 0.03, overflowed);
            if at % 300 == 0 {
                others.on_overflow(now);
                overflowed = now;
            }
            if rests && at % 1000 == 0 {
                others.rested(now);
            }
        }
        others.is_certain(start + overflows * 300 * MS, share)
    }

    #[test]
    fn a_queue_that_stays_after_overflows_is_of_flows_that_do_not_yield() {
        assert!(shown(UNANSWERED_STARVED, 55.0, false, 0.05));
        assert!(!shown(UNANSWERED_STARVED - 1, 55.0, false, 0.05));
        assert!(shown(UNANSWERED, 55.0, false, 0.2));
        assert!(!shown(UNANSWERED - 1, 55.0, false, 0.2));
        assert!(!shown(100, 55.0, false, 0.35));
    }

    #[test]
    fn a_queue_that_loses_three_tenths_of_all_in_flight_is_of_flows_that_yield() {
        assert!(!shown(100, 0.7 * 60.0, false, 0.05));
    }

    #[test]
    fn a_queue_that_rests_of_ours_have_emptied_tells_nothing() {
        assert!(shown(100, 55.0, true, 0.05));
    }
}
