//! Rests: sending less for a while, to see how delays react.
//!
//! A queue reacts to what is sent, and jitter does not. On a full path, taking bytes out of flight shortens the
//! delay by the time that the path needs to carry them. A sender that is alone on the path sees all of that
//! reduction; beside other flows it sees a part in proportion to its share.

mod course;
mod findings;
mod path_change;
mod starvation;
mod verdict;

pub(super) use path_change::DelayJump;

use std::time::{Duration, Instant};

/// A rest in progress, and what has been seen of the reaction so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rest {
    pub(super) reason: RestReason,
    /// State before the rest: the mean round-trip time in seconds, the bytes in flight, and the lowest mean of a
    /// round trip in the last seconds.
    mean_before: f64,
    in_flight_before: f64,
    lowest_mean: f64,
    /// Time at which fewer bytes were in flight than fill the path, or at which waiting for that was given up.
    /// `in_vain` is true in the latter case.
    drained: Option<Instant>,
    in_vain: bool,
    /// Arrival time of the first packet that was sent after `drained`.
    since: Option<Instant>,
    /// Values measured since then: the lowest round-trip time, the lowest and highest level, and the swings of the
    /// delay.
    least: Duration,
    low: Duration,
    high: Duration,
    swings: Swings,
    /// Sums of round-trip times in seconds and of bytes in flight, and the number of acknowledgements that they
    /// cover.
    sum: f64,
    in_flight: f64,
    acks: f64,
}

/// The reason why a rest was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RestReason {
    /// The floor has not been looked for in a while.
    Routine,
    /// The queue of the startup phase has not drained.
    Start,
    /// Packets wait more often than not.
    Waits,
    /// Packets still wait although less is sent.
    Pressed,
    /// The bottleneck queue overflows repeatedly.
    Overflows,
    /// The rival that was met may not exist, or may have more than its share.
    Check,
}

/// Counts the turns of a series, up or down, that exceed `least`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Swings {
    least: Duration,
    up: bool,
    extreme: Option<Duration>,
    turns: u32,
}

impl Swings {
    fn of(least: Duration) -> Self {
        Self {
            least,
            up: false,
            extreme: None,
            turns: 0,
        }
    }

    fn add(&mut self, value: Duration) {
        let extreme = *self.extreme.get_or_insert(value);
        let turned = if self.up {
            value + self.least < extreme
        } else {
            value > extreme + self.least
        };
        if turned {
            self.up = !self.up;
            self.turns += 1;
        }
        if turned || self.up == (value > extreme) {
            self.extreme = Some(value);
        }
    }
}

impl Rest {
    /// Records an acknowledgement. The newest packet that it names took `latest`, and the oldest took `late`.
    fn on_ack(
        &mut self,
        latest: Duration,
        late: Duration,
        level: Option<Duration>,
        in_flight: f64,
    ) {
        self.in_flight += in_flight;
        self.acks += 1.0;
        self.sum += latest.as_secs_f64();
        self.least = self.least.min(latest);
        // Packets that one acknowledgement names were sent one by one, so a difference between them is jitter too.
        self.swings.add(latest.max(late));
        self.swings.add(latest);
        if let Some(level) = level {
            self.low = self.low.min(level);
            self.high = self.high.max(level);
        }
    }

    /// Returns whether delays turned as often as jitter makes them turn. A queue of other flows swings slowly.
    fn swings(&self) -> bool {
        let turns = f64::from(self.swings.turns);
        turns >= (self.acks / ACKS_A_TURN).clamp(TURNS_LEAST, TURNS_ENOUGH)
    }

    pub(super) fn in_flight_before(&self) -> f64 {
        self.in_flight_before
    }

    /// Returns whether enough packets have been acknowledged for a verdict.
    fn is_certain(&self) -> bool {
        self.acks >= ACKS_LEAST
    }

    /// Returns whether the acknowledgements suffice for a verdict that another rest will check.
    fn is_likely(&self) -> bool {
        self.acks >= ACKS_LIKELY
    }

    /// Returns the mean round-trip time in seconds.
    fn mean(&self) -> f64 {
        self.sum / self.acks.max(1.0)
    }

    /// Returns the rate, in bytes per second, at which data arrived before the rest, by Little's law.
    fn carried(&self) -> f64 {
        self.in_flight_before / self.mean_before.max(1e-6)
    }

    /// Returns the observed reduction of the delay, as a part of the reduction expected if the whole queue were this
    /// sender's. Returns 1 if too little was taken out of flight to judge.
    fn answer(&self, bandwidth: f64) -> f64 {
        self.answered(bandwidth).unwrap_or(1.0)
    }

    /// Returns the same part, or `None` if too little was taken out of flight.
    fn answered(&self, bandwidth: f64) -> Option<f64> {
        let in_flight = self.in_flight / self.acks.max(1.0);
        let removed = self.in_flight_before - in_flight;
        let little = removed <= REMOVED_LEAST * self.in_flight_before;
        if self.in_vain || little || self.high.is_zero() {
            return None;
        }
        Some((self.mean_before - self.mean()) * bandwidth / removed)
    }
}

/// Minimum number of acknowledgements for a judgement of delays, and for one that another rest will check.
const ACKS_LEAST: f64 = 16.0;
const ACKS_LIKELY: f64 = 6.0;

/// Delays swing as jitter does if they change their direction once in this many acknowledgements. At least
/// `TURNS_LEAST` turns are needed, and `TURNS_ENOUGH` are always enough.
const ACKS_A_TURN: f64 = 3.0;
const TURNS_LEAST: f64 = 3.0;
const TURNS_ENOUGH: f64 = 5.0;

/// Part of the bytes in flight that must be taken out of flight for delays to show anything.
const REMOVED_LEAST: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swing_counts_as_a_turn_and_a_drift_does_not() {
        let ms = Duration::from_millis;
        let turns = |series: &[u64]| {
            let mut swings = Swings::of(ms(3));
            for value in series {
                swings.add(ms(*value));
            }
            swings.turns
        };
        assert_eq!(turns(&[20, 30, 21, 33, 20]), 4);
        assert_eq!(turns(&[20, 22, 21, 23, 22, 21, 20]), 0);
        assert_eq!(turns(&[20, 24, 28, 32, 36]), 1);
    }
}
