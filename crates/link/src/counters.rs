//! What became of the packets.

use std::time::Duration;

/// Counts since the link was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that entered.
    pub sent: u64,
    /// Packets that came or will come out; copies do not count.
    pub delivered: u64,
    /// Bytes of them, `overhead` included.
    pub delivered_bytes: u64,
    /// Packets longer than the MTU.
    pub too_long: u64,
    /// Packets the queue had no room for.
    pub queue_full: u64,
    /// Packets lost to an outage.
    pub outage: u64,
    /// Packets lost at random, independently of each other.
    pub random: u64,
    /// Packets that came out twice.
    pub duplicated: u64,
    /// Packets picked to come late.
    pub reordered: u64,
    /// Sum of the time that packets waited for transmission to begin.
    pub queued: Duration,
    /// The longest of these waits.
    pub queued_max: Duration,
}

impl Counters {
    /// Mean time that a packet that was let in waited for transmission to begin.
    pub fn queued_mean(&self) -> Duration {
        let waited = self.sent - self.too_long - self.queue_full;
        let nanos = self.queued.as_nanos() / u128::from(waited.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}
