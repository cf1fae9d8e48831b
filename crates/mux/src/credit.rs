//! Credit of the connection that the peer has given (RFC 9000 section 4.1).

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
