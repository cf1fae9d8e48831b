//! Flow-control credit of a peer: the connection's receive window minus the data that flows hold.

use std::time::Instant;

use quictun_flow::{
    Holding, Lease, OVERHEAD_MIN,
    window::{self, ReceiveWindow},
};
use quinn_proto::VarInt;

use crate::grants::InitialGrants;

/// The receive window of one connection, as the peer and the library know it.
#[derive(Debug)]
pub(crate) struct Credit {
    window: ReceiveWindow,
    /// Received data that flows and the control stream hold.
    pub(crate) holding: Holding,
    /// The window that the library was last given.
    announced: u64,
    /// Credit that the peer has beyond `announced`, because the library has not taken it back yet.
    unreclaimed: u64,
    /// Credit that the peer gets regardless of what flows hold, in bytes. 0 if memory is short.
    floor: u64,
    /// True if the peer obeys HOLD. Other peers get no floor: they cannot know which flow should stop, so they have to
    /// stop all of them.
    pub(crate) obeys_hold: bool,
    /// True if the client has a rate limit. The limit stops all its flows, so there is no floor either.
    shaped: bool,
    /// Number of `DATA_BLOCKED` frames of the peer that were answered.
    blocked_seen: u64,
    /// Stream bytes that applications have taken.
    pub(crate) delivered: u64,
}

impl Credit {
    pub(crate) fn new(now: Instant, first: InitialGrants) -> Self {
        Self {
            window: ReceiveWindow::new(now, first.window, first.remembered),
            holding: Holding::default(),
            announced: first.window,
            unreclaimed: 0,
            floor: 0,
            obeys_hold: false,
            shaped: false,
            blocked_seen: 0,
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

    pub(crate) fn note_taken(&mut self, bytes: u64) {
        self.unreclaimed = self.unreclaimed.saturating_sub(bytes);
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

    /// Returns the memory that the peer can make this side hold with its credit, in bytes.
    pub(crate) fn committed_memory(&self) -> u64 {
        let given = self.announced + self.unreclaimed + self.excess();
        window::committed_memory(self.window.size()).max(given)
    }

    /// Returns the bytes that flows hold at the expense of the window.
    fn excess(&self) -> u64 {
        self.holding.held.saturating_sub(self.holding.parked) as u64
    }

    /// Returns the part of the window that flows do not hold, but at least `floor`, in bytes.
    fn left(&self, floor: u64) -> u64 {
        let size = self.window.size();
        let floor = if self.obeys_hold && !self.shaped {
            floor
        } else {
            0
        };
        size.saturating_sub(self.excess()).max(floor.min(size))
    }

    /// Adapts the window to the path. `free` is the memory available for the window, including the memory that it has
    /// already, in bytes.
    pub(crate) fn update(
        &mut self,
        now: Instant,
        free: u64,
        lease: &Lease,
        quic: &mut quinn_proto::Connection,
    ) {
        let floor = lease.floor();
        let left = self.left(floor);
        let least = lease.is_half_full().then_some(floor);
        // Not the smoothed time: it grows with the queue, which a larger window would only lengthen.
        let rtt = quic.min_rtt();
        let passed = self
            .window
            .update(now, rtt, self.delivered, left, free, least);
        if passed && lease.is_plenty() {
            self.forgive();
        }
        self.announce(floor, quic);
        self.answer_blocked(quic);
    }

    /// Gives the library the window minus the data that flows hold, except for parked data, but at least `floor` bytes.
    ///
    /// The library grants growth of a window at once, but takes back a reduction only as bytes are read. The peer may
    /// therefore send the window and everything that is still to be taken back. A window grows by no more than that
    /// allows.
    pub(crate) fn announce(&mut self, floor: u64, quic: &mut quinn_proto::Connection) {
        let size = self.window.size();
        let wanted = self.left(floor);
        let step = (size / 8).max(1);
        let to = if wanted < self.announced {
            wanted
        } else {
            wanted.saturating_sub(self.unreclaimed).max(self.announced)
        };
        // Only a larger window costs a frame.
        let little = to >= self.announced && to - self.announced < step;
        let starved = self.announced < floor;
        self.floor = floor;
        if to == self.announced || (little && to < size && !starved) {
            return;
        }
        self.unreclaimed += self.announced.saturating_sub(to);
        self.set_window(to, quic);
    }

    /// Answers a `DATA_BLOCKED` frame (RFC 9000 section 19.12): announces the remaining credit, and resets
    /// `unreclaimed`.
    ///
    /// The library sends `MAX_DATA` once an eighth of the window is new. After a window has shrunk, the whole credit
    /// may be less than that, so that no frame would announce it. A blocked peer has used its credit, so it owes none.
    /// A peer that lies gains one window at most: a window shrinks only by what the peer has sent.
    fn answer_blocked(&mut self, quic: &mut quinn_proto::Connection) {
        if self.announced == self.window.size() && self.unreclaimed == 0 {
            return;
        }
        let blocked = quic.stats().frame_rx.data_blocked;
        if std::mem::replace(&mut self.blocked_seen, blocked) == blocked {
            return;
        }
        self.unreclaimed = 0;
        let to = self.announced;
        // The library announces growth at once, so the window shrinks by a byte here and grows again.
        self.set_window(to.saturating_sub(1), quic);
        self.set_window(to, quic);
        self.announce(self.floor, quic);
    }

    fn set_window(&mut self, to: u64, quic: &mut quinn_proto::Connection) {
        self.announced = to;
        quic.set_receive_window(VarInt::from_u64(to).unwrap_or(VarInt::MAX));
    }

    /// Reduces `unreclaimed` if there is plenty of memory. The library also takes credit back from streams that end
    /// early, and does not report it.
    fn forgive(&mut self) {
        self.unreclaimed -= (self.unreclaimed / 8).max(self.unreclaimed.min(1024));
    }
}
