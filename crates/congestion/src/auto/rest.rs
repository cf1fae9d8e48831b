//! Sending less for a while, to see what delays answer.
//!
//! A queue answers to what is sent, jitter does not: where a path is full, taking so many bytes out of flight takes away
//! the time that it needs to carry them. Alone on the path all of it goes, beside others our share.

mod ask;
mod longer;
mod verdict;

pub(super) use longer::Jump;

use std::time::{Duration, Instant};

/// A question, and what has been seen of the answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rest {
    pub(super) reason: Reason,
    /// Before: the mean round-trip time in seconds, bytes in flight, and the least mean of a round trip for some seconds.
    mean_before: f64,
    in_flight_before: f64,
    ebb: f64,
    /// When less was in flight than fills the path, or that was waited for in vain.
    drained: Option<Instant>,
    in_vain: bool,
    /// When the first packet came that left after that.
    since: Option<Instant>,
    /// Since then: the least round-trip time, the lowest and the highest level, and how often it turned.
    least: Duration,
    low: Duration,
    high: Duration,
    swings: Swings,
    /// Sums of round-trip times, in seconds, and of bytes in flight, at so many acknowledgements.
    sum: f64,
    in_flight: f64,
    acks: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// The floor was not looked for in a while.
    Routine,
    /// The queue of the start has not gone.
    Start,
    /// Packets wait more often than not.
    Waits,
    /// They wait on although less is sent.
    Pressed,
    /// Queues overflow again and again.
    Overflows,
    /// A rival was met that may be none, or that may have more than its share.
    Check,
}

/// Turns of a series from up to down and back that are more than `least`.
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
    /// An acknowledgement came: the newest packet that it names took `latest`, the oldest `late`.
    fn see(&mut self, latest: Duration, late: Duration, level: Option<Duration>, in_flight: f64) {
        self.in_flight += in_flight;
        self.acks += 1.0;
        self.sum += latest.as_secs_f64();
        self.least = self.least.min(latest);
        // Packets that one acknowledgement names left one by one: their spread is jitter, too.
        self.swings.add(latest.max(late));
        self.swings.add(latest);
        if let Some(level) = level {
            self.low = self.low.min(level);
            self.high = self.high.max(level);
        }
    }

    /// Whether delays turned as often as jitter does; a queue of others swings slowly.
    fn swings(&self) -> bool {
        let turns = f64::from(self.swings.turns);
        turns >= (self.acks / ACKS_A_TURN).clamp(TURNS_LEAST, TURNS_ENOUGH)
    }

    pub(super) fn in_flight_before(&self) -> f64 {
        self.in_flight_before
    }

    /// Enough packets have been acknowledged for a verdict.
    fn is_certain(&self) -> bool {
        self.acks >= ACKS_LEAST
    }

    /// The mean round-trip time, in seconds.
    fn mean(&self) -> f64 {
        self.sum / self.acks.max(1.0)
    }

    /// Bytes per second that arrived before, by Little's law.
    fn carried(&self) -> f64 {
        self.in_flight_before / self.mean_before.max(1e-6)
    }

    /// Part of the delay that should have gone, had all of the queue been ours, which has; 1 where too little was taken
    /// out of flight to tell.
    fn answer(&self, bandwidth: f64) -> f64 {
        self.answered(bandwidth).unwrap_or(1.0)
    }

    /// The same where enough was taken out of flight.
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

/// Acknowledgements that tell of delays.
const ACKS_LEAST: f64 = 16.0;

/// Turns among so many acknowledgements, the fewest, and those that are enough.
const ACKS_A_TURN: f64 = 3.0;
const TURNS_LEAST: f64 = 3.0;
const TURNS_ENOUGH: f64 = 5.0;

/// Part of the bytes in flight that must have gone for delays to tell anything.
const REMOVED_LEAST: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swing_is_a_turn_and_a_drift_is_none() {
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
