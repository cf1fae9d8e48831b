//! Measurement of the delivered rate over one round trip, or over several short ones.

use std::time::{Duration, Instant};

use crate::bytes::to_f64;

/// Minimum duration of a measurement: threads that share cores take turns of milliseconds.
const TIME_MIN: Duration = Duration::from_millis(5);

/// Number of packets that make a reliable mean rate, unless the measurement lasts for [`TIME_ENOUGH`].
const PACKETS_MIN: f64 = 24.0;
const TIME_ENOUGH: Duration = Duration::from_millis(50);

/// Share of the sending time below which a measurement's duration is not believed. Sending may take a little longer
/// than arriving: by chance, because of losses, and because queues drain. A stop of one millisecond exceeds that
/// margin in a short measurement, and matters little in a long one.
const CLUMPED_SHORT: f64 = 0.92;
const CLUMPED: f64 = 0.85;

#[derive(Clone, Copy, Debug)]
pub(crate) struct RateSample {
    /// Delivered rate in bytes per second.
    pub(crate) rate: f64,
    pub(crate) arrived: f64,
    pub(crate) lost: f64,
    /// True if everything was sent as fast as the limits allowed.
    pub(crate) limited: bool,
    /// True if a queue was seen.
    pub(crate) queued: bool,
}

impl RateSample {
    pub(crate) fn loss(&self) -> f64 {
        let sent = self.arrived + self.lost;
        if sent > 0.0 { self.lost / sent } else { 0.0 }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Epoch {
    start: Instant,
    /// Send time of the newest batch that had arrived by the start of the measurement.
    newest: Option<Instant>,
    delivered: u64,
    lost: u64,
    unlimited: bool,
    queued: bool,
    /// True if a packet sent after the start of the measurement has arrived.
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

    /// Records that a packet arrived which was sent when `delivered` bytes had arrived.
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

    /// Ends the measurement if it has lasted long enough, and returns its outcome.
    ///
    /// `newest` is when the newest batch was sent of which a packet has arrived. If `strict` is true, data that was
    /// sent in more time than it took to arrive counts at the rate at which it was sent.
    pub(crate) fn end(
        &mut self,
        now: Instant,
        delivered: u64,
        newest: Option<Instant>,
        mtu: f64,
        strict: bool,
    ) -> Option<RateSample> {
        let elapsed = now.saturating_duration_since(self.start);
        let arrived = to_f64(delivered - self.delivered);
        if !self.round || elapsed < TIME_MIN {
            return None;
        }
        if elapsed < TIME_ENOUGH && arrived < PACKETS_MIN * mtu {
            return None;
        }
        // Data that a path or a host has held back while it stood still arrives all at once. It then arrives faster
        // than the path can carry it, but was not sent that fast.
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
        let outcome = RateSample {
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
