//! The sending part of a stream (RFC 9113 section 5.1).
//!
//! ```text
//!   Open ──finish──► Finishing ──its bytes and END_STREAM written──► Done
//!    └──reset──────────► Resetting ──RST_STREAM written──────────► Done
//! ```

use std::collections::VecDeque;

use bytes::{Buf, BufMut, Bytes};

use crate::error::ErrorCode;

#[derive(Debug)]
pub(crate) struct SendPart {
    pub(crate) state: SendState,
    pub(crate) answer: AnswerState,
    chunks: VecDeque<Bytes>,
    /// Number of bytes in `chunks`.
    queued: u64,
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
            chunks: VecDeque::new(),
            queued: 0,
            window,
            blocked: false,
            waits: false,
        }
    }

    /// Returns the bytes that the stream's own credit leaves.
    pub(crate) fn room(&self) -> u64 {
        u64::try_from(self.window)
            .unwrap_or(0)
            .saturating_sub(self.queued)
    }

    pub(crate) fn push(&mut self, chunk: Bytes) {
        self.queued += chunk.len() as u64;
        self.chunks.push_back(chunk);
    }

    /// Returns whether the answer has begun.
    pub(crate) fn is_answered(&self) -> bool {
        !matches!(self.answer, AnswerState::Awaited(_))
    }

    /// Returns the number of bytes to send now.
    pub(crate) fn sendable(&self) -> u64 {
        self.queued.min(u64::try_from(self.window).unwrap_or(0))
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
        self.queued == bytes as u64
    }

    /// Moves the first `length` queued bytes to `out`.
    pub(crate) fn pull(&mut self, mut length: usize, out: &mut impl BufMut) {
        self.queued -= length as u64;
        self.window -= i64::try_from(length).unwrap_or(0);
        while length > 0
            && let Some(chunk) = self.chunks.front_mut()
        {
            let part = length.min(chunk.len());
            out.put_slice(&chunk[..part]);
            chunk.advance(part);
            length -= part;
            if chunk.is_empty() {
                self.chunks.pop_front();
            }
        }
    }

    /// Drops the queued bytes. Returns how many they were.
    pub(crate) fn discard(&mut self) -> u64 {
        self.chunks = VecDeque::new();
        std::mem::take(&mut self.queued)
    }
}
