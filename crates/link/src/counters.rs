//! What became of the packets.

use std::fmt;
use std::time::Duration;

use crate::packet::DropReason;

/// Counts since the link was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that entered: those delivered and those dropped for any reason.
    pub sent: u64,
    /// Packets that came or will come out; copies do not count.
    pub delivered: u64,
    /// Bytes of them, `overhead` included.
    pub delivered_bytes: u64,
    /// Packets longer than the MTU.
    pub too_long: u64,
    /// Packets the queue had no room for.
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
    /// Packets marked CE, whether or not they came out.
    pub marked: u64,
    /// Packets that came out twice.
    pub duplicated: u64,
    /// Packets picked to come late.
    pub reordered: u64,
    /// Packets that were transmitted, whether or not they came out.
    pub transmitted: u64,
    /// Sum of the time that these waited for transmission to begin.
    pub queued: Duration,
    /// The longest of these waits.
    pub queued_max: Duration,
}

impl Counters {
    /// Mean time that a packet waited for transmission to begin.
    pub fn queued_mean(&self) -> Duration {
        let nanos = self.queued.as_nanos() / u128::from(self.transmitted.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Packets that did not come out, for whatever reason.
    pub fn dropped(&self) -> u64 {
        self.reasons().iter().map(|(_, count)| count).sum()
    }

    /// Packets dropped by accident, [`random`](Self::random) or [`burst`](Self::burst), which is what a
    /// configured loss has to be compared with.
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

/// One line that leaves out what did not happen.
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
