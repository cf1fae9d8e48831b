//! Pings: `QX_PING` frames (draft-ietf-quic-qmux-02 section 4.3).

use std::time::{Duration, Instant};

use crate::error::Violation;

#[derive(Debug, Default)]
pub(crate) struct Pings {
    state: State,
    /// The sequence number of the next ping.
    next: u64,
    /// The sequence number of the peer's last ping.
    heard: Option<u64>,
    /// The sequence number that is to be answered. Only the last one is.
    answer: Option<u64>,
}

/// The state of this side's ping. There is one at a time: on an ordered transport another one would arrive behind it.
#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Idle,
    Due,
    Sent(Instant),
}

impl Pings {
    pub(crate) fn request(&mut self) {
        if matches!(self.state, State::Idle) {
            self.state = State::Due;
        }
    }

    /// Returns the sequence number of the ping that is due.
    pub(crate) fn due(&self) -> Option<u64> {
        matches!(self.state, State::Due).then_some(self.next)
    }

    pub(crate) fn note_sent(&mut self, now: Instant) {
        self.next += 1;
        self.state = State::Sent(now);
    }

    /// Returns the sequence number to answer.
    pub(crate) fn answer(&self) -> Option<u64> {
        self.answer
    }

    pub(crate) fn note_answered(&mut self) {
        self.answer = None;
    }

    pub(crate) fn handle_ping(&mut self, sequence: u64) -> Result<(), Violation> {
        if self.heard.is_some_and(|heard| sequence <= heard) {
            return Err(Violation::protocol("the numbers of pings do not increase"));
        }
        self.heard = Some(sequence);
        self.answer = Some(sequence);
        Ok(())
    }

    /// Handles the answer to a ping. Returns the round-trip time, if it is the answer to the last one.
    pub(crate) fn handle_response(
        &mut self,
        now: Instant,
        sequence: u64,
    ) -> Result<Option<Duration>, Violation> {
        if sequence >= self.next {
            return Err(Violation::protocol("an answer precedes its ping"));
        }
        let State::Sent(at) = self.state else {
            return Ok(None);
        };
        if sequence + 1 < self.next {
            return Ok(None);
        }
        self.state = State::Idle;
        Ok(Some(now.saturating_duration_since(at)))
    }
}
