//! Lulls: moments in which the queue that others fill drains and then returns.
//!
//! BBR empties the queue every ten seconds to measure the round-trip time, regardless of losses. A flow that yields
//! to loss leaves seven tenths of what was in flight.

use std::time::{Duration, Instant};

/// Detects lulls in the mean of round trips.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lulls {
    /// Mean round-trip time outside of lulls, in seconds.
    usual_s: f64,
    watched: Option<Instant>,
    low: Option<LullCandidate>,
    /// End of this sender's latest rest, whose delays say nothing about other flows.
    rested: Option<Instant>,
    /// Time of the latest lull, and the number of lulls that have followed one another at BBR's interval.
    latest: Option<Instant>,
    regular: u32,
}

/// A period in which round trips are shorter than usual.
#[derive(Clone, Copy, Debug)]
struct LullCandidate {
    began: Instant,
    least_s: f64,
    deep: bool,
}

/// A lull that has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lull {
    /// The lowest mean of a round trip during the lull.
    pub(super) least: Duration,
    /// True if the lull is deeper than one that a flow causes by yielding to loss.
    pub(super) deep: bool,
    /// Number of lulls before this one that followed one another at BBR's interval.
    pub(super) regular: u32,
}

impl Lulls {
    /// Returns whether a lull has been seen, or a deep one is in progress.
    pub(super) fn seen(&self) -> bool {
        self.latest.is_some() || self.low.is_some_and(|low| low.deep)
    }

    /// Records that a rest of this sender has ended.
    pub(super) fn rested(&mut self, now: Instant) {
        self.rested = Some(now);
        self.low = None;
        self.watched = self.watched.map(|_| now);
    }

    /// Records the current mean round-trip time and the floor, both in seconds. `overflowed` is when a queue last
    /// overflowed. Returns a lull that has just ended.
    pub(super) fn watch(
        &mut self,
        now: Instant,
        mean_s: f64,
        floor_s: f64,
        overflowed: Instant,
    ) -> Option<Lull> {
        let Some(watched) = self.watched.replace(now) else {
            self.usual_s = mean_s;
            return None;
        };
        let deep = mean_s < DEEP * self.usual_s;
        let Some(low) = &mut self.low else {
            let since = self.rested.map_or(overflowed, |at| at.max(overflowed));
            let unasked = seconds(since, now) > ANSWERED_ROUNDS * self.usual_s;
            if unasked && (deep || self.is_empty(mean_s, floor_s)) {
                self.low = Some(LullCandidate {
                    began: now,
                    least_s: mean_s,
                    deep,
                });
            } else {
                let part = (seconds(watched, now) / (USUAL_ROUNDS * floor_s)).min(1.0);
                self.usual_s += (mean_s - self.usual_s) * part;
            }
            return None;
        };
        low.deep |= deep;
        low.least_s = low.least_s.min(mean_s);
        let low = *low;
        let lasted = seconds(low.began, now);
        let (back, longest_s) = if low.deep { DEEP_ENDS } else { SHALLOW_ENDS };
        let back = mean_s - low.least_s > back * (self.usual_s - low.least_s);
        let long = lasted > longest_s + LONGEST_ROUNDS * self.usual_s;
        if !back && !long {
            return None;
        }
        self.low = None;
        if !back {
            self.usual_s = mean_s;
        }
        (back && lasted > SHORTEST_S).then(|| self.end(now, low))
    }

    /// Returns whether a significant queue has almost disappeared.
    fn is_empty(&self, mean_s: f64, floor_s: f64) -> bool {
        let queue_s = self.usual_s - floor_s;
        queue_s > QUEUE_LEAST_S.max(floor_s / 8.0) && mean_s - floor_s < EMPTY * queue_s
    }

    fn end(&mut self, now: Instant, low: LullCandidate) -> Lull {
        let regular = self
            .latest
            .replace(now)
            .is_some_and(|before| APART_S.contains(&seconds(before, now)));
        self.regular = if regular { self.regular + 1 } else { 0 };
        Lull {
            least: Duration::from_secs_f64(low.least_s),
            deep: low.deep,
            regular: self.regular,
        }
    }
}

fn seconds(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64()
}

/// Part of the usual round-trip time below which a lull is deep. If all flows yield to loss at once, seven tenths are
/// left.
const DEEP: f64 = 0.65;

/// A queue counts as drained if less than `EMPTY` of its usual length is left. A usual queue of at most `QUEUE_LEAST_S`
/// seconds is not examined.
const EMPTY: f64 = 0.2;
const QUEUE_LEAST_S: f64 = 0.003;

/// A lull ends when the queue has returned to the first number, as a part of its usual length. It must do so within the
/// second number of seconds, plus some round trips. A flow that yields to loss also empties short queues, but for
/// longer.
const DEEP_ENDS: (f64, f64) = (0.6, 1.2);
const SHALLOW_ENDS: (f64, f64) = (0.35, 0.6);

/// Minimum duration of a lull. BBR's lull lasts 200 ms.
const SHORTEST_S: f64 = 0.15;
/// Additional maximum duration of a lull, in round trips.
const LONGEST_ROUNDS: f64 = 3.0;

/// Time from the end of one of BBR's lulls to the end of the next.
const APART_S: std::ops::Range<f64> = 9.7..12.0;

/// Number of round trips after an overflow, or after a rest of this sender, in which delays react to that event.
const ANSWERED_ROUNDS: f64 = 2.5;

/// Number of round trips over which the usual round-trip time is measured.
const USUAL_ROUNDS: f64 = 16.0;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Returns the lulls on a path of 30 ms, on which `queue_ms` gives the queue in milliseconds at each millisecond
    /// up to `length_ms`.
    fn lulls(length_ms: u32, queue_ms: fn(u32) -> f64) -> Vec<Lull> {
        let start = Instant::now();
        let mut lulls = Lulls::default();
        let mut seen = Vec::new();
        for at in 1..length_ms {
            let mean_s = (30.0 + queue_ms(at)) / 1e3;
            seen.extend(lulls.watch(start + at * MS, mean_s, 0.03, start));
        }
        seen
    }

    #[test]
    fn a_queue_that_goes_and_comes_back_is_a_lull() {
        let seen = lulls(6000, |at| {
            if (3000..3300).contains(&at) {
                0.5
            } else {
                30.0
            }
        });
        let [lull] = seen[..] else {
            panic!("{seen:?}");
        };
        assert!(lull.deep);
        assert_eq!(lull.regular, 0);
        assert_eq!(lull.least, Duration::from_micros(30_500));
    }

    #[test]
    fn a_queue_that_loses_three_tenths_is_no_lull() {
        let seen = lulls(6000, |at| {
            if (3000..3300).contains(&at) {
                12.0
            } else {
                30.0
            }
        });
        assert_eq!(seen, []);
    }

    #[test]
    fn a_queue_that_stays_empty_or_returns_at_once_is_no_lull() {
        let seen = lulls(6000, |at| {
            if (3000..5000).contains(&at) {
                0.5
            } else {
                30.0
            }
        });
        assert_eq!(seen, []);
        let seen = lulls(6000, |at| {
            if (3000..3100).contains(&at) {
                0.5
            } else {
                30.0
            }
        });
        assert_eq!(seen, []);
    }

    #[test]
    fn shallow_lulls_are_regular_if_one_follows_every_ten_seconds() {
        let short = lulls(35_000, |at| if at % 10_400 > 10_100 { 0.5 } else { 12.0 });
        let regular = short.iter().map(|lull| lull.regular).collect::<Vec<_>>();
        assert_eq!(regular, [0, 1, 2]);
        assert!(short.iter().all(|lull| !lull.deep));
        let often = lulls(35_000, |at| if at % 5200 > 4900 { 0.5 } else { 12.0 });
        let regular = often.iter().map(|lull| lull.regular).collect::<Vec<_>>();
        assert_eq!(regular, [0; 6], "{often:?}");
    }

    #[test]
    fn short_delays_after_an_overflow_or_a_rest_are_no_lull() {
        let start = Instant::now();
        for rests in [true, false] {
            let mut lulls = Lulls::default();
            let mut overflowed = start;
            for at in 1..6000 {
                let now = start + at * MS;
                if at == 2990 && rests {
                    lulls.rested(now);
                } else if at == 2990 {
                    overflowed = now;
                }
                let mean_s = if (3000..3200).contains(&at) {
                    0.031
                } else {
                    0.06
                };
                assert_eq!(
                    lulls.watch(now, mean_s, 0.03, overflowed),
                    None,
                    "{at} {rests}"
                );
            }
        }
    }
}
