//! The receiving part of a stream (RFC 9000 section 3.2). STREAM frames arrive in order
//! (draft-ietf-quic-qmux-02 section 4.1), so there is nothing to reassemble.
//!
//! ```text
//!   Open ──FIN──► Finished ──all is read──► Done
//!    │ └──reset──► Reset ──all is read──► Done      (all: the reliable size, or nothing)
//!    └──stop──► Stopped ──FIN or reset──► Done      (what arrives is dropped)
//! ```

use bytes::Bytes;
use quictun_flow::PieceQueue;
use quictun_wire::varint;

use crate::error::{TransportCode, Violation};

#[derive(Debug)]
pub(crate) struct RecvPart {
    pub(crate) state: RecvState,
    /// Bytes that were not read.
    queue: PieceQueue,
    /// The offset of the next byte to read.
    read: u64,
    /// The offset of the next byte to arrive, or the final size.
    received: u64,
    /// Number of bytes that the peer may send in total, as announced.
    limit: u64,
    /// An event tells that the stream is readable, and has not been polled.
    pub(crate) noted: bool,
    /// A `MAX_STREAM_DATA` frame is due.
    pub(crate) limit_due: bool,
    /// The code of a `STOP_SENDING` frame that is due.
    pub(crate) stop_due: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecvState {
    Open,
    Finished,
    Reset(u64),
    Stopped,
    Done,
}

/// Length below which a piece is copied, bytes: a quarter of a record, whose rest may be padding.
const COPY_BELOW: usize = 4096;

impl RecvPart {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            state: RecvState::Open,
            queue: PieceQueue::default(),
            read: 0,
            received: 0,
            limit,
            noted: false,
            limit_due: false,
            stop_due: None,
        }
    }

    /// Checks a STREAM frame of `len` bytes.
    pub(crate) fn check(&self, offset: u64, len: u64, fin: bool) -> Result<(), Violation> {
        let end = offset + len;
        match self.state {
            RecvState::Open | RecvState::Stopped if offset != self.received => Err(NOT_IN_ORDER),
            RecvState::Open | RecvState::Stopped if end > self.limit => Err(OVER_LIMIT),
            RecvState::Finished if end > self.received || (fin && end < self.received) => {
                Err(FINAL_SIZE)
            }
            RecvState::Finished if len > 0 || end < self.received => Err(NOT_IN_ORDER),
            RecvState::Open | RecvState::Stopped | RecvState::Finished => Ok(()),
            RecvState::Reset(_) | RecvState::Done => Err(AFTER_END),
        }
    }

    /// Takes in the data of a checked STREAM frame. Returns the number of bytes that are dropped.
    pub(crate) fn insert(&mut self, data: Bytes, fin: bool) -> u64 {
        let len = data.len() as u64;
        self.received += len;
        if self.state == RecvState::Stopped {
            if fin {
                self.state = RecvState::Done;
            }
            return len;
        }
        self.queue.push(data, COPY_BELOW);
        if fin {
            self.state = RecvState::Finished;
        }
        0
    }

    /// Checks the sizes of a reset. Returns the number of bytes that the final size counts and that have not arrived.
    pub(crate) fn check_reset(&self, final_size: u64, reliable: u64) -> Result<u64, Violation> {
        match self.state {
            RecvState::Open | RecvState::Stopped => {
                if reliable > self.received {
                    let rule = "a reset precedes the data that is to be delivered";
                    return Err(Violation::protocol(rule));
                }
                if final_size > self.limit {
                    return Err(OVER_LIMIT);
                }
                final_size.checked_sub(self.received).ok_or(FINAL_SIZE)
            }
            RecvState::Finished | RecvState::Reset(_) if final_size != self.received => {
                Err(FINAL_SIZE)
            }
            RecvState::Finished | RecvState::Reset(_) | RecvState::Done => Ok(0),
        }
    }

    /// Handles a checked reset. Returns the number of bytes that are dropped or never arrive.
    pub(crate) fn reset(&mut self, code: u64, final_size: u64, reliable: u64) -> u64 {
        let dropped = match self.state {
            RecvState::Open => {
                self.state = RecvState::Reset(code);
                self.queue.truncate(reliable.saturating_sub(self.read))
            }
            RecvState::Stopped => {
                self.state = RecvState::Done;
                0
            }
            RecvState::Finished | RecvState::Reset(_) | RecvState::Done => return 0,
        };
        let absent = final_size - self.received;
        self.received = final_size;
        dropped + absent
    }

    /// Refuses the rest. Returns the number of bytes that are dropped.
    pub(crate) fn stop(&mut self, code: u64) -> u64 {
        match self.state {
            RecvState::Open => {
                self.state = RecvState::Stopped;
                self.stop_due = Some(code);
                self.limit_due = false;
            }
            RecvState::Finished | RecvState::Reset(_) => self.state = RecvState::Done,
            RecvState::Stopped | RecvState::Done => {}
        }
        self.queue.truncate(0)
    }

    /// Takes the next piece, of at most `max` bytes, with its offset.
    pub(crate) fn pull(&mut self, max: usize) -> Option<(u64, Bytes)> {
        let piece = self.queue.pop(max)?;
        let offset = self.read;
        self.read += piece.len() as u64;
        Some((offset, piece))
    }

    /// Notes that bytes were read. Returns whether to announce a limit, because half of the window is used.
    pub(crate) fn note_read(&mut self, window: u64) -> bool {
        let raise = self.wanted_limit(window) - self.limit;
        self.limit_due |= self.state == RecvState::Open && raise > 0 && raise >= window / 2;
        self.limit_due
    }

    /// Returns the limit to announce, with a window of `window` bytes.
    pub(crate) fn wanted_limit(&self, window: u64) -> u64 {
        (self.read + window).clamp(self.limit, varint::MAX)
    }

    pub(crate) fn note_announced(&mut self, limit: u64) {
        self.limit_due = false;
        self.limit = limit;
    }
}

const OVER_LIMIT: Violation = Violation::new(
    TransportCode::FLOW_CONTROL_ERROR,
    "a stream has more data than it has credit for",
);

const NOT_IN_ORDER: Violation = Violation::protocol("the data of a stream is not in order");

/// A STREAM frame follows a FIN that was read, or a reset.
pub(crate) const AFTER_END: Violation = Violation::new(
    TransportCode::STREAM_STATE_ERROR,
    "a STREAM frame follows the end of its stream",
);

const FINAL_SIZE: Violation = Violation::new(
    TransportCode::FINAL_SIZE_ERROR,
    "the final size of a stream changes",
);
