//! The credit that a peer gets: the connection's receive window, but for what flows hold of it.

use std::time::Instant;

use quictun_flow::{
    Holding, Lease, OVERHEAD_MIN,
    window::{self, ReceiveWindow},
};
use quinn_proto::VarInt;

use crate::grants::First;

/// The receive window of one connection, as its peer and the library know it.
#[derive(Debug)]
pub(crate) struct Credit {
    window: ReceiveWindow,
    /// What flows and the control stream hold of received data.
    pub(crate) holding: Holding,
    /// The window that the library has been told.
    announced: u64,
    /// Credit that the peer has beyond it: the library has still to take it back.
    owed: u64,
    /// Credit that the peer gets whatever flows hold, bytes: 0 where memory is short.
    floor: u64,
    /// The peer obeys HOLD. One that does not has no floor: it cannot know which flow should stop, so it has to stop them
    /// all.
    pub(crate) obeys_hold: bool,
    /// Flows wait for their client's rate, which stops all of them: there is no floor either.
    shaped: bool,
    /// `DATA_BLOCKED` frames of the peer that were answered.
    blocked_seen: u64,
    /// Stream bytes that applications have taken.
    pub(crate) delivered: u64,
}

impl Credit {
    pub(crate) fn new(now: Instant, first: First) -> Self {
        Self {
            window: ReceiveWindow::new(now, first.window, first.remembered),
            holding: Holding::default(),
            announced: first.window,
            owed: 0,
            floor: 0,
            obeys_hold: false,
            shaped: false,
            blocked_seen: 0,
            delivered: 0,
        }
    }

    pub(crate) fn restart(&mut self, first: First) {
        self.window.restart(first.window, first.remembered);
    }

    pub(crate) fn window(&self) -> u64 {
        self.window.size()
    }

    /// The window with which the next connection to the same peer should begin; 0: like any.
    pub(crate) fn needed(&self) -> u64 {
        self.window.needed()
    }

    /// Whether its client has a rate, which holds the peer back by the window.
    pub(crate) fn set_shaped(&mut self, shaped: bool) {
        self.shaped = shaped;
    }

    /// A flow, or the control stream, holds `after` where it held `before`.
    pub(crate) fn note_holding(&mut self, before: Holding, after: Holding) {
        self.holding -= before;
        self.holding += after;
    }

    pub(crate) fn note_taken(&mut self, bytes: u64) {
        self.owed = self.owed.saturating_sub(bytes);
    }

    /// Whether flows that do not read hold as much as the whole window.
    pub(crate) fn is_taken_up(&self) -> bool {
        self.excess() >= self.window.size()
    }

    /// Whether the peer makes us hold more than its credit can account for: it sends tiny pieces.
    pub(crate) fn is_hoarded(&self, flows: usize) -> bool {
        let some = flows * OVERHEAD_MIN;
        let size = self.window.size();
        self.holding.overhead as u64 > window::debt(size) - size + some as u64
    }

    /// Memory that the peer may make us hold with it, bytes.
    pub(crate) fn debt(&self) -> u64 {
        let given = self.announced + self.owed + self.excess();
        window::debt(self.window.size()).max(given)
    }

    /// Bytes that flows hold at the expense of the window.
    fn excess(&self) -> u64 {
        self.holding.held.saturating_sub(self.holding.parked) as u64
    }

    /// The part of the window that flows do not hold, at least `floor`, bytes.
    fn left(&self, floor: u64) -> u64 {
        let size = self.window.size();
        let floor = if self.obeys_hold && !self.shaped {
            floor
        } else {
            0
        };
        size.saturating_sub(self.excess()).max(floor.min(size))
    }

    /// Follows what the path has shown; `free` is the memory that there is for the window, its own included, bytes.
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
        // Not the smoothed time: that grows with the queue that a larger window would only lengthen.
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

    /// Tells the library the window: what flows hold takes up a part of it, but for what is parked. At least `floor` is
    /// left, bytes.
    ///
    /// The library gives at once what a window grows by, and takes back what it shrinks by only as bytes are read. What
    /// the peer may send is therefore the window and all that is still to be taken back; a window grows by no more
    /// than that allows.
    pub(crate) fn announce(&mut self, floor: u64, quic: &mut quinn_proto::Connection) {
        let size = self.window.size();
        let wanted = self.left(floor);
        let step = (size / 8).max(1);
        let to = if wanted < self.announced {
            wanted
        } else {
            wanted.saturating_sub(self.owed).max(self.announced)
        };
        // Only a larger one costs a frame.
        let little = to >= self.announced && to - self.announced < step;
        let starved = self.announced < floor;
        self.floor = floor;
        if to == self.announced || (little && to < size && !starved) {
            return;
        }
        self.owed += self.announced.saturating_sub(to);
        self.set_window(to, quic);
    }

    /// Answers a `DATA_BLOCKED` frame (RFC 9000 section 19.12): announces the remaining credit, and forgets what is owed.
    ///
    /// The library sends `MAX_DATA` once an eighth of the window is new. After a window has shrunk, the whole credit may be
    /// less than that, and nothing would announce it. A blocked peer has used its credit, so it owes none. A peer that
    /// lies gains one window at most: a window shrinks only by what the peer has sent.
    fn answer_blocked(&mut self, quic: &mut quinn_proto::Connection) {
        if self.announced == self.window.size() && self.owed == 0 {
            return;
        }
        let blocked = quic.stats().frame_rx.data_blocked;
        if std::mem::replace(&mut self.blocked_seen, blocked) == blocked {
            return;
        }
        self.owed = 0;
        let to = self.announced;
        // The library announces a window that grows at once, so this one shrinks by a byte and grows again.
        self.set_window(to.saturating_sub(1), quic);
        self.set_window(to, quic);
        self.announce(self.floor, quic);
    }

    fn set_window(&mut self, to: u64, quic: &mut quinn_proto::Connection) {
        self.announced = to;
        quic.set_receive_window(VarInt::from_u64(to).unwrap_or(VarInt::MAX));
    }

    /// Where there is plenty of memory, forgets some of what is still to be taken back: the library takes it from
    /// streams that end early, too, and does not say so.
    fn forgive(&mut self) {
        self.owed -= (self.owed / 8).max(self.owed.min(1024));
    }
}
