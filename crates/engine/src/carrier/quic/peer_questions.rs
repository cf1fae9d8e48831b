//! Detects a datagram with which an idle peer only asks whether this side is there.
//!
//! An acknowledgement usually waits for a millisecond, because data for the peer may carry it. The answer to a
//! keep-alive has no data to wait for. If it leaves at once, the connection needs no timer and no second turn.

use std::time::{Duration, Instant};

/// Silence after which a datagram without news for a flow counts as a question.
const QUIET: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct PeerQuestions {
    heard: Instant,
    asked: bool,
}

impl PeerQuestions {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            heard: now,
            asked: false,
        }
    }

    pub(super) fn handle_datagram(&mut self, now: Instant) {
        let silence = now.saturating_duration_since(self.heard);
        self.asked = silence >= QUIET;
        self.heard = now;
    }

    /// Records whether the library has an event. If it has, the datagram was more than a question.
    pub(super) fn note_event(&mut self, any: bool) {
        self.asked &= !any;
    }

    /// Returns whether a question has arrived since the last call.
    pub(super) fn take(&mut self) -> bool {
        std::mem::take(&mut self.asked)
    }
}
