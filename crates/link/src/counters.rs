//! Counters of the fates of packets.

use std::fmt;
use std::time::Duration;

use crate::packet::DropReason;

/// Counts since the link was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that entered: those delivered and those dropped for any reason.
    pub sent: u64,
    /// Packets delivered or scheduled for delivery. Copies do not count.
    pub delivered: u64,
    /// Bytes of the delivered packets, `overhead` included.
    pub delivered_bytes: u64,
    /// Packets dropped because they were longer than the MTU.
    pub too_long: u64,
    /// Packets dropped because the queue had no room.
    pub queue_full: u64,
    /// Packets that `CoDel` dropped.
    pub codel: u64,
    /// Packets that the policer dropped.
    pub policer: u64,
    /// Packets lost to an outage.
    pub outage: u64,
    /// Packets lost at random, independently of each other.
    pub random: u64,
    /// Packets lost in bursts.
    pub burst: u64,
    /// Packets marked CE, whether or not they were delivered.
    pub marked: u64,
    /// Packets that were delivered twice.
    pub duplicated: u64,
    /// Packets picked for late delivery.
    pub reordered: u64,
    /// Packets that were transmitted, whether or not they were delivered.
    pub transmitted: u64,
    /// Sum of the times that transmitted packets waited for transmission to begin.
    pub queued: Duration,
    /// The longest of these waits.
    pub queued_max: Duration,
}

impl Counters {
    /// Returns the mean time that a transmitted packet waited for transmission to begin.
    pub fn queued_mean(&self) -> Duration {
        let nanos = self.queued.as_nanos() / u128::from(self.transmitted.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Returns the number of packets that were not delivered, for any reason.
    pub fn dropped(&self) -> u64 {
        self.reasons().iter().map(|(_, count)| count).sum()
    }

    /// Returns the number of packets lost at random: [`random`](Self::random) plus [`burst`](Self::burst). Compare a
    /// configured loss with this number.
    pub fn lost(&self) -> u64 {
        self.random + self.burst
    }

    fn reasons(&self) -> [(&'static str, u64); 7] {
        [
            ("random", self.random),
            ("burst", self.burst),
            ("queue full", self.queue_full),
            ("codel", self.codel),
            ("policer", self.policer),
            ("outage", self.outage),
            ("too long", self.too_long),
        ]
    }

    pub(crate) fn count_drop(&mut self, reason: DropReason) {
        let counter = match reason {
            DropReason::TooLong => &mut self.too_long,
            DropReason::QueueFull => &mut self.queue_full,
            DropReason::Codel => &mut self.codel,
            DropReason::Policer => &mut self.policer,
            DropReason::Outage => &mut self.outage,
            DropReason::Random => &mut self.random,
            DropReason::Burst => &mut self.burst,
        };
        *counter += 1;
    }
}

/// Writes one line that omits counts of zero.
impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} sent, {} delivered", self.sent, self.delivered)?;
        let others = [
            ("marked", self.marked),
            ("duplicated", self.duplicated),
            ("reordered", self.reordered),
        ];
        for (name, count) in others {
            if count > 0 {
                write!(f, ", {count} {name}")?;
            }
        }
        let mut before = "; dropped: ";
        for (name, count) in self.reasons() {
            if count > 0 {
                write!(f, "{before}{count} {name}")?;
                before = ", ";
            }
        }
        Ok(())
    }
}
