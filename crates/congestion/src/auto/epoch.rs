//! One measurement: a round trip, or a few where they are short.

use std::time::{Duration, Instant};

use crate::bytes::to_f64;

/// Shortest measurement: threads that share cores take turns of milliseconds.
const TIME_MIN: Duration = Duration::from_millis(5);

/// Packets that make a mean of a rate, where they come within [`TIME_ENOUGH`].
const PACKETS_MIN: f64 = 24.0;
const TIME_ENOUGH: Duration = Duration::from_millis(50);

/// Sending may take so much longer than what was sent takes to arrive, by chance, by losses and since queues drain: a
/// millisecond's stop is more than that in short measurements, little in long ones.
const CLUMPED_SHORT: f64 = 0.92;
const CLUMPED: f64 = 0.85;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// Bytes per second that arrived.
    pub(crate) rate: f64,
    pub(crate) arrived: f64,
    pub(crate) lost: f64,
    /// All of it was sent as fast as it was allowed to be.
    pub(crate) limited: bool,
    /// A queue was seen.
    pub(crate) queued: bool,
}

impl Outcome {
    pub(crate) fn loss(&self) -> f64 {
        let sent = self.arrived + self.lost;
        if sent > 0.0 { self.lost / sent } else { 0.0 }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Epoch {
    start: Instant,
    /// When the newest batch that had arrived by then was sent.
    newest: Option<Instant>,
    delivered: u64,
    lost: u64,
    unlimited: bool,
    queued: bool,
    /// Something that left after its start has arrived.
    round: bool,
}

impl Epoch {
    pub(crate) fn new(now: Instant, delivered: u64, newest: Option<Instant>) -> Self {
        Self {
            start: now,
            newest,
            delivered,
            lost: 0,
            unlimited: false,
            queued: false,
            round: false,
        }
    }

    /// A packet arrived that left when `delivered` bytes had.
    pub(crate) fn on_acked(&mut self, delivered: u64, limited: bool) {
        self.round |= delivered >= self.delivered;
        self.unlimited |= !limited;
    }

    pub(crate) fn on_lost(&mut self, bytes: u64) {
        self.lost += bytes;
    }

    pub(crate) fn on_queue(&mut self) {
        self.queued = true;
    }

    /// Ends it, if it has lasted. `newest`: when the newest batch was sent of which something has arrived. `strict`: what
    /// was sent within less time than it took to arrive counts no more for that.
    pub(crate) fn end(
        &mut self,
        now: Instant,
        delivered: u64,
        newest: Option<Instant>,
        mtu: f64,
        strict: bool,
    ) -> Option<Outcome> {
        let elapsed = now.saturating_duration_since(self.start);
        let arrived = to_f64(delivered - self.delivered);
        if !self.round || elapsed < TIME_MIN {
            return None;
        }
        if elapsed < TIME_ENOUGH && arrived < PACKETS_MIN * mtu {
            return None;
        }
        // What a path or a host gathered while it stood still arrives at once, faster than the path carries, but
        // not faster than it was sent.
        let sending = newest
            .zip(self.newest)
            .map_or(Duration::ZERO, |(last, first)| {
                last.saturating_duration_since(first)
            });
        let short = elapsed < TIME_ENOUGH;
        let clumped = match short {
            _ if strict => 1.0,
            true => CLUMPED_SHORT,
            false => CLUMPED,
        };
        let outcome = Outcome {
            rate: arrived / elapsed.max(sending.mul_f64(clumped)).as_secs_f64(),
            arrived,
            lost: to_f64(self.lost),
            limited: !self.unlimited,
            queued: self.queued,
        };
        *self = Self::new(now, delivered, newest);
        Some(outcome)
    }
}
