//! Credit of the connection that the peer has given (RFC 9113 section 5.2).

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
