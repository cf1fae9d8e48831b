//! The sending part of a stream (RFC 9113 section 5.1).
//!
//! ```text
//!   Open ──finish──► Finishing ──its bytes and END_STREAM written──► Done
//!    └──reset──────────► Resetting ──RST_STREAM written──────────► Done
//! ```

use bytes::BufMut;
use quictun_flow::PieceQueue;

use crate::error::ErrorCode;

#[derive(Debug)]
pub(crate) struct SendPart {
    pub(crate) state: SendState,
    pub(crate) answer: AnswerState,
    /// Bytes that were not written to the transport.
    pub(crate) queue: PieceQueue,
    /// Number of bytes that the peer permits beyond those sent. Its settings may lower it below 0.
    pub(crate) window: i64,
    /// A write was refused, and no event has told that the stream is writable.
    pub(crate) blocked: bool,
    /// The stream is in the queue of streams that wait for room of the connection.
    pub(crate) waits: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendState {
    Open,
    Finishing,
    /// A reset with this code is due.
    Resetting(ErrorCode),
    Done,
}

/// The head of the answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AnswerState {
    /// The bytes of the head that were written so far.
    Awaited(Vec<u8>),
    /// The block is to be sent.
    Due(Vec<u8>),
    Sent,
}

impl SendPart {
    pub(crate) fn new(window: i64) -> Self {
        Self {
            state: SendState::Open,
            answer: AnswerState::Awaited(Vec::new()),
            queue: PieceQueue::default(),
            window,
            blocked: false,
            waits: false,
        }
    }

    /// Returns the bytes that the stream's own credit leaves.
    pub(crate) fn room(&self) -> u64 {
        u64::try_from(self.window)
            .unwrap_or(0)
            .saturating_sub(self.queue.len())
    }

    /// Returns whether the answer has begun.
    pub(crate) fn is_answered(&self) -> bool {
        !matches!(self.answer, AnswerState::Awaited(_))
    }

    /// Returns the number of bytes to send now.
    pub(crate) fn sendable(&self) -> u64 {
        self.queue
            .len()
            .min(u64::try_from(self.window).unwrap_or(0))
    }

    /// Returns whether a DATA frame is due, and may be sent.
    pub(crate) fn wants_frame(&self) -> bool {
        match self.state {
            SendState::Open => self.sendable() > 0,
            SendState::Finishing => self.sendable() > 0 || self.holds(0),
            SendState::Resetting(_) | SendState::Done => false,
        }
    }

    /// Returns whether this many bytes, and no more, are queued.
    pub(crate) fn holds(&self, bytes: usize) -> bool {
        self.queue.len() == bytes as u64
    }

    /// Moves the first `length` queued bytes to `out`.
    pub(crate) fn pull(&mut self, length: usize, out: &mut impl BufMut) {
        self.window -= i64::try_from(length).unwrap_or(0);
        self.queue.pull(length, out);
    }
}
