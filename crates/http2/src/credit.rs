//! Credit of the connection in both directions (RFC 9113 section 5.2).

use crate::frame::{WINDOW_INITIAL, WINDOW_MAX};

/// Credit that the peer has given to this side, and the limit of bytes that wait here.
#[derive(Debug)]
pub(crate) struct SendCredit {
    /// Number of bytes that the peer permits beyond those sent.
    window: i64,
    /// Number of bytes that wait to be written to the transport.
    queued: u64,
    /// Most bytes that may wait.
    kept: u64,
}

impl SendCredit {
    pub(crate) fn new(kept: u64) -> Self {
        Self {
            window: WINDOW_INITIAL.into(),
            queued: 0,
            kept,
        }
    }

    /// Returns the number of bytes that streams may take over.
    pub(crate) fn room(&self) -> u64 {
        let window = u64::try_from(self.window).unwrap_or(0);
        self.kept.min(window).saturating_sub(self.queued)
    }

    pub(crate) fn queued(&self) -> u64 {
        self.queued
    }

    pub(crate) fn set_kept(&mut self, bytes: u64) {
        self.kept = bytes;
    }

    /// Takes more credit. Returns false if it is more than a side may have.
    pub(crate) fn add(&mut self, bytes: u32) -> bool {
        add_to(&mut self.window, bytes)
    }

    pub(crate) fn note_queued(&mut self, bytes: u64) {
        self.queued += bytes;
    }

    pub(crate) fn note_sent(&mut self, bytes: u64) {
        self.queued -= bytes;
        self.window -= i64::try_from(bytes).unwrap_or(0);
    }

    /// Takes back bytes that were queued and are never sent.
    pub(crate) fn note_discarded(&mut self, bytes: u64) {
        self.queued -= bytes;
    }
}

/// Adds credit to a window. Returns false if it is more than a side may have.
pub(crate) fn add_to(window: &mut i64, bytes: u32) -> bool {
    *window += i64::from(bytes);
    *window <= i64::from(WINDOW_MAX)
}

/// Credit that this side has given to the peer.
#[derive(Debug)]
pub(crate) struct ReceiveCredit {
    /// Number of bytes beyond `taken` that the peer should be able to send.
    window: u64,
    /// Number of bytes that the peer may send in total, as announced.
    limit: u64,
    received: u64,
    /// Number of bytes that were read or dropped.
    taken: u64,
    /// The window has grown, which was not announced.
    urgent: bool,
}

impl ReceiveCredit {
    /// Every connection begins with the same credit, also if its window is smaller.
    pub(crate) fn new(window: u64) -> Self {
        let mut new = Self {
            window: u64::from(WINDOW_INITIAL),
            limit: u64::from(WINDOW_INITIAL),
            received: 0,
            taken: 0,
            urgent: false,
        };
        new.set_window(window);
        new
    }

    /// Returns the number of bytes that the peer may send beyond those that were taken.
    pub(crate) fn granted(&self) -> u64 {
        self.limit - self.taken
    }

    pub(crate) fn window(&self) -> u64 {
        self.window
    }

    /// Sets the window. Growth is announced at once; a smaller window takes effect as bytes are taken.
    pub(crate) fn set_window(&mut self, window: u64) {
        let window = window.min(WINDOW_MAX.into());
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

    /// Returns by how much the limit is to grow, if half of the window is used or the window has grown.
    pub(crate) fn wanted(&self) -> Option<u32> {
        let more = (self.taken + self.window).checked_sub(self.limit)?;
        let due = more > 0 && (self.urgent || more >= self.window / 2);
        due.then(|| u32::try_from(more).unwrap_or(WINDOW_MAX))
    }

    pub(crate) fn note_announced(&mut self, more: u32) {
        self.limit += u64::from(more);
        self.urgent = false;
    }
}
