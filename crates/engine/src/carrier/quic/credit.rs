//! The credit that the library has given to a peer.
//!
//! The library grants growth of a window at once, but takes back a reduction only as bytes are read.

use quinn_proto::VarInt;

use crate::carrier::interface::CreditOffer;

#[derive(Debug)]
pub(super) struct GrantedCredit {
    /// The window that the library was last given.
    announced: u64,
    /// Credit that the peer has beyond `announced`, because the library has not taken it back yet.
    unreclaimed: u64,
    /// Number of `DATA_BLOCKED` frames of the peer that were answered.
    blocked_seen: u64,
}

impl GrantedCredit {
    pub(super) fn new(window: u64) -> Self {
        Self {
            announced: window,
            unreclaimed: 0,
            blocked_seen: 0,
        }
    }

    pub(super) fn granted(&self) -> u64 {
        self.announced + self.unreclaimed
    }

    pub(super) fn note_taken(&mut self, bytes: u64) {
        self.unreclaimed = self.unreclaimed.saturating_sub(bytes);
    }

    /// Gives the library the credit of an offer. The peer may send the window and everything that is still to be taken
    /// back. A window grows by no more than that allows.
    pub(super) fn grant(&mut self, offer: CreditOffer, library: &mut quinn_proto::Connection) {
        let step = (offer.window / 8).max(1);
        let to = if offer.left < self.announced {
            offer.left
        } else {
            let grown = offer.left.saturating_sub(self.unreclaimed);
            grown.max(self.announced)
        };
        // Only a larger window costs a frame.
        let little = to >= self.announced && to - self.announced < step;
        let starved = self.announced < offer.floor;
        if to == self.announced || (little && to < offer.window && !starved) {
            return;
        }
        self.unreclaimed += self.announced.saturating_sub(to);
        self.set_window(to, library);
    }

    /// Answers a `DATA_BLOCKED` frame (RFC 9000 section 19.12): announces the remaining credit, and resets
    /// `unreclaimed`.
    ///
    /// The library sends `MAX_DATA` once an eighth of the window is new. After a window has shrunk, the whole credit
    /// may be less than that, so that no frame would announce it. A blocked peer has used its credit, so it owes none.
    /// A peer that lies gains one window at most: a window shrinks only by what the peer has sent.
    pub(super) fn answer_blocked(
        &mut self,
        offer: CreditOffer,
        library: &mut quinn_proto::Connection,
    ) {
        if self.announced == offer.window && self.unreclaimed == 0 {
            return;
        }
        let blocked = library.stats().frame_rx.data_blocked;
        if std::mem::replace(&mut self.blocked_seen, blocked) == blocked {
            return;
        }
        self.unreclaimed = 0;
        let to = self.announced;
        // The library announces growth at once, so the window shrinks by a byte here and grows again.
        self.set_window(to.saturating_sub(1), library);
        self.set_window(to, library);
        self.grant(offer, library);
    }

    fn set_window(&mut self, to: u64, library: &mut quinn_proto::Connection) {
        self.announced = to;
        library.set_receive_window(VarInt::from_u64(to).unwrap_or(VarInt::MAX));
    }

    /// Reduces `unreclaimed`. The library also takes credit back from streams that end early, and does not report it.
    pub(super) fn forgive(&mut self) {
        self.unreclaimed -= (self.unreclaimed / 8).max(self.unreclaimed.min(1024));
    }
}
