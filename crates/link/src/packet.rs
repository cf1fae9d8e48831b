//! What enters a link, and what becomes of it.

use std::time::Instant;

/// A packet, as far as a link cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Bytes, without the link's overhead.
    pub length: usize,
    /// It says ECT(0), ECT(1) or CE (RFC 3168), so a queue may mark it where it would drop it.
    pub ecn_capable: bool,
}

impl Packet {
    /// A packet that may be marked.
    pub fn ecn_capable(length: usize) -> Self {
        Self {
            length,
            ecn_capable: true,
        }
    }
}

/// A packet that may not be marked.
impl From<usize> for Packet {
    fn from(length: usize) -> Self {
        Self {
            length,
            ecn_capable: false,
        }
    }
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It comes out.
    Delivered {
        /// When.
        at: Instant,
        /// When a copy of it comes out, where there is one.
        copy: Option<Instant>,
        /// It comes out with CE, and so does the copy.
        marked: bool,
    },
    /// It does not.
    Dropped(DropReason),
}

/// Why a packet does not come out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DropReason {
    /// It is longer than the MTU.
    TooLong,
    /// The queue has no room.
    QueueFull,
    /// `CoDel` found that the queue has stood for too long.
    Codel,
    /// It came faster than the policer allows.
    Policer,
    /// It was transmitted during an outage.
    Outage,
    /// It was lost at random, independently of the others.
    Random,
    /// It was lost in a burst.
    Burst,
}
