//! A flow of a bond: its number there, and its time without a connection (PROTOCOL section 5.8).

use std::time::{Duration, Instant};

use crate::account::Lease;
use crate::ids::{BondKey, ConnectionId};
use crate::salvage::Carried;

/// Bytes that may arrive before the peer is told that they are here.
const SEEN_EVERY: u64 = 256 * 1024;

/// A flow's place in its bond.
#[derive(Clone, Copy, Debug)]
pub struct Bonded {
    /// The bond; `None`: the peer has not agreed to it yet.
    pub bond: Option<BondKey>,
    /// The flow's number in the bond.
    pub number: u64,
    /// How often the flow has moved.
    pub leg: u64,
    /// The connection that it moves from, or moved from last.
    pub from: Option<ConnectionId>,
    /// Time since which nothing moves, between two connections.
    stalled: Option<Instant>,
    /// The number that the peer was told last by SEEN.
    told: u64,
    /// It stands in its connection's queue of flows with something to tell.
    queued: bool,
}

impl Bonded {
    /// A flow with this number.
    pub fn new(bond: Option<BondKey>, number: u64) -> Self {
        Self {
            bond,
            number,
            leg: 0,
            from: None,
            stalled: None,
            told: 0,
            queued: false,
        }
    }

    /// Everything before the number `next` has arrived. Returns what the peer should be told: at once, or with the next
    /// flows.
    pub fn note_arrived(&mut self, next: u64) -> Tell {
        let untold = next.saturating_sub(self.told);
        if untold >= SEEN_EVERY {
            self.told = next;
            Tell::Now
        } else if untold > 0 && !std::mem::replace(&mut self.queued, true) {
            Tell::Soon
        } else {
            Tell::Nothing
        }
    }

    /// The flow's turn among those with something to tell: whether `next` is new to the peer.
    pub fn take_turn(&mut self, next: u64) -> bool {
        self.queued = false;
        std::mem::replace(&mut self.told, next) < next
    }

    /// The peer is told that everything before `next` is here.
    pub fn note_told(&mut self, next: u64) {
        self.told = next;
    }

    /// The flow has left its connection, on which nothing has moved since `since`. Of several connections before it goes on the
    /// first counts.
    pub fn stall(&mut self, since: Instant) {
        self.stalled.get_or_insert(since);
    }

    /// Time since which nothing moves, if the flow is between two connections.
    pub fn stalled(&self) -> Option<Instant> {
        self.stalled
    }

    /// The flow goes on. Returns for how long nothing moved.
    pub fn go_on(&mut self, now: Instant) -> Duration {
        let since = self.stalled.take();
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// The flow is on another connection, whose peer is told by MOVE or its answer that everything before `next` is here.
    pub fn begin_leg(&mut self, next: u64) {
        self.queued = false;
        self.told = next;
    }
}

/// When the peer is to be told that bytes have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tell {
    /// It knows, or the flow waits for its turn.
    Nothing,
    /// With the next flows: the flow is to be queued.
    Soon,
    /// At once.
    Now,
}

/// A flow's time without a connection.
#[derive(Debug)]
pub struct Detached {
    carried: Carried,
    until: Instant,
    /// Memory that is charged for what it has received, bytes.
    charged: u64,
}

impl Detached {
    /// Until `until` the flow may wait for another connection.
    pub(crate) fn new(carried: Carried, until: Instant) -> Self {
        Self {
            carried,
            until,
            charged: 0,
        }
    }

    /// The connection and stream that carried the flow.
    pub fn carried(&self) -> Carried {
        self.carried
    }

    /// End of the wait.
    pub fn until(&self) -> Instant {
        self.until
    }

    /// The flow holds `held` bytes of memory for what it has received.
    pub fn charge(&mut self, held: usize, lease: &mut Lease) {
        lease.adjust(&mut self.charged, held as u64);
    }

    /// Gives back what was charged.
    pub fn release(&mut self, lease: &mut Lease) {
        lease.adjust(&mut self.charged, 0);
    }
}
