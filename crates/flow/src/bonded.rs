//! A flow of a bond: its number in the bond, and its time without a connection (PROTOCOL section 5.8).

use std::time::{Duration, Instant};

use crate::account::Lease;
use crate::ids::{BondKey, ConnectionId};
use crate::salvage::Leg;

/// Bytes that may arrive before the peer is sent SEEN at once.
const SEEN_EVERY: u64 = 256 * 1024;

/// A flow's state in its bond.
#[derive(Clone, Copy, Debug)]
pub struct BondMembership {
    /// The bond; `None` while the peer has not agreed to it yet.
    pub bond: Option<BondKey>,
    /// The flow's number in the bond.
    pub number: u64,
    /// Number of times that the flow has moved.
    pub leg: u64,
    /// The connection that the flow moves from, or last moved from.
    pub from: Option<ConnectionId>,
    /// Time at which bytes stopped moving, while the flow is between two connections.
    stalled: Option<Instant>,
    /// The number that the peer was last sent in SEEN.
    reported: u64,
    /// The flow is in its connection's queue of flows with a SEEN to send.
    queued: bool,
}

impl BondMembership {
    /// Creates a flow that has this number and has not moved yet.
    pub fn new(bond: Option<BondKey>, number: u64) -> Self {
        Self {
            bond,
            number,
            leg: 0,
            from: None,
            stalled: None,
            reported: 0,
            queued: false,
        }
    }

    /// Returns whether no arrival was confirmed to the peer yet.
    pub fn has_confirmed_nothing(&self) -> bool {
        self.reported == 0
    }

    /// Notes that everything before the number `next` has arrived. Returns whether to confirm this to the peer at once,
    /// as for a peer that `waits`, or together with other flows.
    pub fn note_arrived(&mut self, next: u64, waits: bool) -> SeenTiming {
        let unreported = next.saturating_sub(self.reported);
        if unreported >= SEEN_EVERY || unreported > 0 && waits {
            self.reported = next;
            SeenTiming::Now
        } else if unreported > 0 && !std::mem::replace(&mut self.queued, true) {
            SeenTiming::Soon
        } else {
            SeenTiming::Nothing
        }
    }

    /// Takes the flow's turn in the queue of flows with a SEEN to send. Returns whether `next` is new to the peer.
    pub fn take_turn(&mut self, next: u64) -> bool {
        self.queued = false;
        std::mem::replace(&mut self.reported, next) < next
    }

    /// Notes that the arrival of everything before `next` was confirmed to the peer.
    pub fn note_reported(&mut self, next: u64) {
        self.reported = next;
    }

    /// Notes that the flow has left its connection, on which nothing has moved since `since`. If the flow leaves
    /// several connections before it continues, the first time counts.
    pub fn stall(&mut self, since: Instant) {
        self.stalled.get_or_insert(since);
    }

    /// Returns the time at which bytes stopped moving, if the flow is between two connections.
    pub fn stalled(&self) -> Option<Instant> {
        self.stalled
    }

    /// Notes that the flow continues. Returns for how long nothing moved.
    pub fn resume(&mut self, now: Instant) -> Duration {
        let since = self.stalled.take();
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Notes that the flow is on another connection, whose peer learns from MOVE or `MOVE_ACK` that everything before
    /// `next` has arrived.
    pub fn begin_leg(&mut self, next: u64) {
        self.queued = false;
        self.reported = next;
    }
}

/// The time at which to confirm to the peer that bytes have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeenTiming {
    /// Send nothing: the peer knows already, or the flow is already queued.
    Nothing,
    /// Send it together with other flows: queue the flow.
    Soon,
    /// Send it at once.
    Now,
}

/// The state of a flow that has no connection.
#[derive(Debug)]
pub struct DetachedState {
    leg: Leg,
    until: Instant,
    /// Memory that is charged for the flow's received data, in bytes.
    charged: u64,
}

impl DetachedState {
    /// Makes the state of a flow that may wait until `until` for another connection.
    pub(crate) fn new(leg: Leg, until: Instant) -> Self {
        Self {
            leg,
            until,
            charged: 0,
        }
    }

    /// Returns the connection and stream that carried the flow.
    pub fn leg(&self) -> Leg {
        self.leg
    }

    /// Returns the time until which the flow waits.
    pub fn until(&self) -> Instant {
        self.until
    }

    /// Charges the `held` bytes of memory that the flow holds for received data, in place of the previous charge.
    pub fn charge(&mut self, held: usize, lease: &mut Lease) {
        lease.adjust(&mut self.charged, held as u64);
    }

    /// Releases the memory that was charged.
    pub fn release(&mut self, lease: &mut Lease) {
        lease.adjust(&mut self.charged, 0);
    }
}
