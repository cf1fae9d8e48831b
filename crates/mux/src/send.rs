//! The sending part of a stream (RFC 9000 section 3.1).
//!
//! ```text
//!   Open ──finish──► Finishing ──its bytes and FIN written──► Done
//!    └──reset──────► Resetting ──written─────────────────────► Done
//! ```
//!
//! Bytes that are written to the transport count as acknowledged (draft-ietf-quic-qmux-02 section 4).

use bytes::BufMut;
use quictun_flow::PieceQueue;

use crate::credit::BlockedNotice;

#[derive(Debug)]
pub(crate) struct SendPart {
    pub(crate) state: SendState,
    /// Bytes that were not written to the transport.
    pub(crate) queue: PieceQueue,
    /// Number of bytes that were written to the transport.
    sent: u64,
    /// Number of bytes that the peer permits in total.
    limit: u64,
    /// The code of the peer's `STOP_SENDING`.
    pub(crate) stopped: Option<u64>,
    /// A write was refused, and no event has told that the stream is writable.
    pub(crate) blocked: bool,
    /// The stream is in the queue of streams that wait for credit of the connection.
    pub(crate) waits: bool,
    pub(crate) notice: BlockedNotice,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendState {
    Open,
    Finishing,
    /// A reset with this code is due.
    Resetting(u64),
    Done,
}

impl SendPart {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            state: SendState::Open,
            queue: PieceQueue::default(),
            sent: 0,
            limit,
            stopped: None,
            blocked: false,
            waits: false,
            notice: BlockedNotice::default(),
        }
    }

    /// Returns the bytes that the stream's own limit leaves.
    pub(crate) fn room(&self) -> u64 {
        self.limit - self.sent - self.queue.len()
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Raises the limit. Returns whether it was lower.
    pub(crate) fn raise(&mut self, limit: u64) -> bool {
        let raised = limit > self.limit;
        if raised {
            self.limit = limit;
            self.notice.withdraw();
        }
        raised
    }

    /// Notes that a write was refused. Returns whether the peer is to be told that the stream's own limit is the reason.
    pub(crate) fn note_refused(&mut self) -> bool {
        self.blocked = true;
        if self.room() == 0 {
            self.notice.note(self.limit);
        }
        self.notice.due().is_some()
    }

    /// Returns whether a write would take a byte, as far as the stream is concerned.
    pub(crate) fn can_write(&self) -> bool {
        self.state == SendState::Open && self.stopped.is_none() && self.room() > 0
    }

    /// Returns whether a STREAM frame is due.
    pub(crate) fn wants_frame(&self) -> bool {
        match self.state {
            SendState::Open => !self.queue.is_empty(),
            SendState::Finishing => true,
            SendState::Resetting(_) | SendState::Done => false,
        }
    }

    /// Moves the first `length` queued bytes to `out`.
    pub(crate) fn pull(&mut self, length: usize, out: &mut impl BufMut) {
        self.sent += length as u64;
        self.queue.pull(length, out);
    }
}
