//! Flow-control credit of a peer: the connection's receive window minus the data that flows hold. The carrier gives it
//! to the peer.

use std::time::{Duration, Instant};

use quictun_flow::{
    Holding, Lease, OVERHEAD_MIN,
    window::{self, ReceiveWindow},
};

use crate::carrier::CreditOffer;
use crate::grants::InitialGrants;

/// The receive window of one connection.
#[derive(Debug)]
pub(crate) struct Credit {
    window: ReceiveWindow,
    /// Received data that flows and the control stream hold.
    pub(crate) holding: Holding,
    /// True if the peer stops a flow whose application does not read: it obeys HOLD, or has credit for each stream. Other
    /// peers get no floor: they cannot know which flow should stop, so they have to stop all of them.
    pub(crate) stops_flows: bool,
    /// True if the client has a rate limit. The limit stops all its flows, so there is no floor either.
    shaped: bool,
    /// Stream bytes that applications have taken.
    pub(crate) delivered: u64,
}

impl Credit {
    pub(crate) fn new(now: Instant, first: InitialGrants) -> Self {
        Self {
            window: ReceiveWindow::new(now, first.window, first.remembered),
            holding: Holding::default(),
            stops_flows: false,
            shaped: false,
            delivered: 0,
        }
    }

    pub(crate) fn restart(&mut self, first: InitialGrants) {
        self.window.restart(first.window, first.remembered);
    }

    pub(crate) fn window(&self) -> u64 {
        self.window.size()
    }

    /// Returns the window with which the next connection to the same peer should begin. 0 means the default.
    pub(crate) fn needed(&self) -> u64 {
        self.window.needed()
    }

    /// Sets whether the client has a rate limit, which the window enforces on the peer.
    pub(crate) fn set_shaped(&mut self, shaped: bool) {
        self.shaped = shaped;
    }

    /// Records that a flow, or the control stream, holds `after` instead of `before`.
    pub(crate) fn note_holding(&mut self, before: Holding, after: Holding) {
        self.holding -= before;
        self.holding += after;
    }

    /// Returns whether flows that do not read hold as much as the whole window.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.excess() >= self.window.size()
    }

    /// Returns whether the peer makes this side hold more overhead than its credit accounts for. It then sends tiny
    /// pieces.
    pub(crate) fn has_excess_overhead(&self, flows: usize) -> bool {
        let some = flows * OVERHEAD_MIN;
        let size = self.window.size();
        self.holding.overhead as u64 > window::committed_memory(size) - size + some as u64
    }

    /// Returns the memory that the peer can make this side hold with the credit that the carrier has `granted`, in bytes.
    pub(crate) fn committed_memory(&self, granted: u64) -> u64 {
        let given = granted + self.excess();
        window::committed_memory(self.window.size()).max(given)
    }

    /// Returns the bytes that flows hold at the expense of the window.
    fn excess(&self) -> u64 {
        self.holding.held.saturating_sub(self.holding.parked) as u64
    }

    /// Returns the part of the window that flows do not hold, but at least `floor`, in bytes.
    fn left(&self, floor: u64) -> u64 {
        let size = self.window.size();
        let floor = if self.stops_flows && !self.shaped {
            floor
        } else {
            0
        };
        size.saturating_sub(self.excess()).max(floor.min(size))
    }

    /// Returns the credit that the peer should have. It gets `floor` bytes whatever flows hold, or nothing if memory is short.
    pub(crate) fn offer(&self, floor: u64) -> CreditOffer {
        CreditOffer {
            window: self.window.size(),
            left: self.left(floor),
            floor,
        }
    }

    /// Adapts the window to a path of this lowest round-trip time. The smoothed time grows with the queue, which a
    /// larger window would only lengthen. `free` is the memory available for the window, including the memory that it
    /// has already, in bytes. Returns whether the time for another measurement has passed.
    pub(crate) fn update(
        &mut self,
        now: Instant,
        min_rtt: Duration,
        free: u64,
        lease: &Lease,
    ) -> bool {
        let floor = lease.floor();
        let left = self.left(floor);
        let least = lease.is_half_full().then_some(floor);
        self.window
            .update(now, min_rtt, self.delivered, left, free, least)
    }
}
