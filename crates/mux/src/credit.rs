//! Credit of the connection in both directions (RFC 9000 section 4.1).

use quictun_wire::varint;

/// Credit that the peer has given to this side, and the limit of bytes that wait here.
#[derive(Debug, Default)]
pub(crate) struct SendCredit {
    /// Number of bytes that the peer permits in total.
    limit: u64,
    /// Number of bytes that streams have taken over and not discarded.
    used: u64,
    /// Number of bytes that wait to be written to the transport.
    queued: u64,
    /// Most bytes that may wait.
    kept: u64,
    pub(crate) blocked: BlockedNotice,
}

impl SendCredit {
    pub(crate) fn new(kept: u64) -> Self {
        Self {
            kept,
            ..Self::default()
        }
    }

    /// Returns the number of bytes that streams may take over.
    pub(crate) fn room(&self) -> u64 {
        let kept = self.kept.saturating_sub(self.queued);
        kept.min(self.limit - self.used)
    }

    pub(crate) fn queued(&self) -> u64 {
        self.queued
    }

    pub(crate) fn set_kept(&mut self, bytes: u64) {
        self.kept = bytes;
    }

    pub(crate) fn raise(&mut self, limit: u64) {
        if limit > self.limit {
            self.limit = limit;
            self.blocked.withdraw();
        }
    }

    pub(crate) fn note_queued(&mut self, bytes: u64) {
        self.used += bytes;
        self.queued += bytes;
    }

    pub(crate) fn note_sent(&mut self, bytes: u64) {
        self.queued -= bytes;
    }

    /// Takes back bytes that were queued and are never sent.
    pub(crate) fn note_discarded(&mut self, bytes: u64) {
        self.used -= bytes;
        self.queued -= bytes;
    }

    /// Notes that a write was refused.
    pub(crate) fn note_refused(&mut self) {
        if self.used == self.limit {
            self.blocked.note(self.limit);
        }
    }
}

/// A notice to the peer that its limit blocks this side, once for each limit.
#[derive(Debug, Default)]
pub(crate) struct BlockedNotice {
    limit: Option<u64>,
    due: bool,
}

impl BlockedNotice {
    pub(crate) fn note(&mut self, limit: u64) {
        self.due |= self.limit != Some(limit);
        self.limit = Some(limit);
    }

    /// Cancels the notice, because the limit has been raised or the notice was written.
    pub(crate) fn withdraw(&mut self) {
        self.due = false;
    }

    /// Returns the limit to state, if the notice is due.
    pub(crate) fn due(&self) -> Option<u64> {
        self.limit.filter(|_| self.due)
    }
}

/// Credit that this side has given to the peer.
#[derive(Debug)]
pub(crate) struct ReceiveCredit {
    /// Number of bytes beyond `taken` that the peer should be able to send.
    window: u64,
    /// Number of bytes that the peer may send in total, as announced.
    limit: u64,
    /// Number of bytes that have arrived, or that ended streams have counted.
    received: u64,
    /// Number of bytes that were read or dropped.
    taken: u64,
    /// The window has grown, which was not announced.
    urgent: bool,
}

impl ReceiveCredit {
    pub(crate) fn new(window: u64) -> Self {
        let window = window.min(varint::MAX);
        Self {
            window,
            limit: window,
            received: 0,
            taken: 0,
            urgent: false,
        }
    }

    /// Returns the number of bytes that the peer may send beyond those that were taken.
    pub(crate) fn granted(&self) -> u64 {
        self.limit - self.taken
    }

    /// Sets the window. Growth is announced at once; a smaller window takes effect as bytes are taken.
    pub(crate) fn set_window(&mut self, window: u64) {
        let window = window.min(varint::MAX);
        self.urgent |= window > self.window;
        self.window = window;
    }

    /// Notes that `bytes` arrive. Returns false if they exceed the limit.
    pub(crate) fn note_received(&mut self, bytes: u64) -> bool {
        let fits = bytes <= self.limit - self.received;
        if fits {
            self.received += bytes;
        }
        fits
    }

    pub(crate) fn note_taken(&mut self, bytes: u64) {
        self.taken += bytes;
    }

    /// Returns the limit to announce, if it is higher, and if half of the window is used or the window has
    /// grown.
    pub(crate) fn wanted_limit(&self) -> Option<u64> {
        let limit = (self.taken + self.window).min(varint::MAX);
        let more = limit.checked_sub(self.limit).filter(|more| *more > 0)?;
        (self.urgent || more >= self.window / 2).then_some(limit)
    }

    pub(crate) fn note_announced(&mut self, limit: u64) {
        self.limit = limit;
        self.urgent = false;
    }
}
