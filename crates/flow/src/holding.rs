//! Received data that flows hold, and how fast their applications read it.

use std::ops::{AddAssign, SubAssign};
use std::time::{Duration, Instant};

/// Shortest interval over which an application's reading rate is measured.
pub(crate) const RATE_INTERVAL_MIN: Duration = Duration::from_millis(2);

/// Memory held for received data by one flow, or by all flows of a connection, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Holding {
    /// All of the memory.
    pub held: usize,
    /// The part that does not count against the connection's window.
    pub parked: usize,
    /// The part that is not data: the overhead of pieces.
    pub overhead: usize,
}

impl AddAssign for Holding {
    fn add_assign(&mut self, other: Self) {
        self.held += other.held;
        self.parked += other.parked;
        self.overhead += other.overhead;
    }
}

impl SubAssign for Holding {
    fn sub_assign(&mut self, other: Self) {
        self.held -= other.held;
        self.parked -= other.parked;
        self.overhead -= other.overhead;
    }
}

#[derive(Debug)]
pub(crate) struct ReadRate {
    since: Instant,
    bytes: u64,
    /// Bytes that the application took per round trip, in the previous interval.
    per_round_trip: u64,
}

impl ReadRate {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            since: now,
            bytes: 0,
            per_round_trip: 0,
        }
    }

    /// Estimates the bytes that the application takes per round trip. `bytes` is the total that it has taken so far.
    pub(crate) fn update(&mut self, now: Instant, rtt: Duration, bytes: u64) -> usize {
        let elapsed = now.saturating_duration_since(self.since);
        let interval = rtt.max(RATE_INTERVAL_MIN);
        let taken = bytes - self.bytes;
        if elapsed >= interval {
            let share = interval.as_nanos() * u128::from(taken) / elapsed.as_nanos().max(1);
            self.per_round_trip = u64::try_from(share).unwrap_or(u64::MAX);
            (self.since, self.bytes) = (now, bytes);
        }
        usize::try_from(self.per_round_trip.max(taken)).unwrap_or(usize::MAX)
    }
}
