//! Packets that enter a link, and their fates.

use std::time::Instant;

/// The properties of a packet that matter to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Length in bytes, without the link's overhead.
    pub length: usize,
    /// True if the packet carries ECT(0), ECT(1) or CE (RFC 3168), so that a queue may mark it instead of dropping it.
    pub ecn_capable: bool,
}

impl Packet {
    /// Creates a packet that a queue may mark.
    pub fn ecn_capable(length: usize) -> Self {
        Self {
            length,
            ecn_capable: true,
        }
    }
}

/// Creates a packet that is not ECN-capable, from its length in bytes.
impl From<usize> for Packet {
    fn from(length: usize) -> Self {
        Self {
            length,
            ecn_capable: false,
        }
    }
}

/// The fate of a packet that entered the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The packet is delivered.
    Delivered {
        /// Time at which the packet is delivered.
        at: Instant,
        /// Time at which a copy of the packet is delivered, if there is a copy.
        copy: Option<Instant>,
        /// True if the packet and its copy are delivered with CE.
        marked: bool,
    },
    /// The packet is dropped.
    Dropped(DropReason),
}

/// The reason for which a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DropReason {
    /// The packet is longer than the MTU.
    TooLong,
    /// The queue has no room.
    QueueFull,
    /// `CoDel` found a standing queue.
    Codel,
    /// The packet exceeded the policer's rate.
    Policer,
    /// The packet was transmitted during an outage.
    Outage,
    /// The packet was lost at random, independently of the others.
    Random,
    /// The packet was lost in a burst.
    Burst,
}
