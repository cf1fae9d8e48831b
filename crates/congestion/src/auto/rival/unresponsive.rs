//! Detection of flows that do not yield to loss: the queue overflows repeatedly, and stays nearly as long as it was.
//!
//! If flows yield to loss, an overflow leaves seven tenths of what was in flight, and round trips become shorter in
//! proportion. With many flows only some of them lose packets at each overflow, but rarely the same ones many times
//! in a row.

use std::time::{Duration, Instant};

/// Counts consecutive overflows after which other flows did not send less.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unresponsive {
    /// Round-trip time without a queue, in seconds.
    floor_s: f64,
    /// Extreme mean round-trip times since the latest overflow, in seconds: the longest, and the shortest from the time
    /// at which others may have reacted.
    longest_s: f64,
    shortest_s: f64,
    /// End of this sender's latest rest.
    rested: Instant,
    /// Number of consecutive overflows without a reaction, and when the first of them was counted.
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

    /// Records the current mean round-trip time and the floor, both in seconds. `overflowed` is when the queue last
    /// overflowed.
    pub(super) fn watch(&mut self, now: Instant, mean_s: f64, floor_s: f64, overflowed: Instant) {
        self.floor_s = floor_s;
        self.longest_s = self.longest_s.max(mean_s);
        let since = |at| now.saturating_duration_since(at).as_secs_f64();
        let answered = since(overflowed) > ANSWER_ROUNDS * mean_s;
        if answered && since(self.rested) > REST_ROUNDS * mean_s {
            self.shortest_s = self.shortest_s.min(mean_s);
        }
    }

    /// Judges the time since the previous overflow, because the queue overflows again.
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

    /// Excludes the effect of this sender's own rest on the queue.
    pub(super) fn rested(&mut self, now: Instant) {
        self.rested = now;
        self.forget();
    }

    /// Forgets the round trips since the latest overflow.
    pub(super) fn forget(&mut self) {
        self.longest_s = 0.0;
        self.shortest_s = f64::MAX;
    }

    /// Returns whether so many overflows had no reaction that other flows certainly do not yield to loss.
    ///
    /// `share` is this sender's part of what the path carries. If it is small, few flows have the rest, so that few
    /// flows take turns at losing packets.
    pub(super) fn is_certain(&self, now: Instant, share: f64) -> bool {
        let least = match share {
            ..STARVED if self.floor_s > LONG_S => UNANSWERED_STARVED,
            ..SMALL => UNANSWERED,
            _ => UNANSWERED_ALWAYS,
        };
        self.unanswered >= least && now.saturating_duration_since(self.since) >= LASTING
    }
}

/// Number of round trips after an overflow until the queue shows how others reacted. The second value is the number
/// of round trips after a rest until others have refilled the queue.
const ANSWER_ROUNDS: f64 = 1.0;
const REST_ROUNDS: f64 = 4.0;

/// Part of the longest round trip, and part of the queue in it. A shorter round trip shows that others have sent
/// less.
const ANSWERED: f64 = 0.78;
const DRAINED: f64 = 0.3;

/// The shortest round trip with a queue worth judging, over the round-trip time without a queue.
const QUEUE_LEAST: f64 = 1.2;

/// Few flows can have the rest of the path if this sender's share is below `STARVED`, and round trips above `LONG_S`
/// show overflows well. Then this number of overflows is enough. With fewer, eight flows of this kind take one
/// another for BBR (`fairness.rs`).
const STARVED: f64 = 0.1;
const LONG_S: f64 = 0.015;
const UNANSWERED_STARVED: u32 = 8;

/// Number of overflows that are needed with a larger share. With fewer, five CUBIC flows are taken for BBR more often
/// (`rivals_cubic.txt`). `UNANSWERED_ALWAYS` are enough with any share: a connection that began beside BBR has never
/// seen the whole path, and takes its share for a large one.
const SMALL: f64 = 0.3;
const UNANSWERED: u32 = 12;
const UNANSWERED_ALWAYS: u32 = 16;

/// Minimum time that the overflows must span. In a shorter time, one standstill of a host may have caused all of
/// them.
const LASTING: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Simulates overflows every 300 ms on a path of 30 ms, after each of which the round trip falls to `shortest_ms`
    /// for a while. If `rests` is true, the sender rests every second. Returns whether this reveals a flow that does
    /// not yield, to a flow with this `share` of the path.
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
    fn a_queue_that_stays_after_overflows_shows_unresponsive_flows() {
        assert!(shown(UNANSWERED_STARVED, 55.0, false, 0.05));
        assert!(!shown(UNANSWERED_STARVED - 1, 55.0, false, 0.05));
        assert!(shown(UNANSWERED, 55.0, false, 0.2));
        assert!(!shown(UNANSWERED - 1, 55.0, false, 0.2));
        assert!(shown(UNANSWERED_ALWAYS, 55.0, false, 0.9));
        assert!(!shown(UNANSWERED_ALWAYS - 1, 55.0, false, 0.35));
    }

    #[test]
    fn a_queue_that_shrinks_after_overflows_shows_flows_that_yield() {
        assert!(!shown(100, 0.7 * 60.0, false, 0.05));
    }

    #[test]
    fn a_queue_that_own_rests_emptied_shows_nothing() {
        assert!(shown(100, 55.0, true, 0.05));
    }
}
