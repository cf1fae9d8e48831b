//! The receiving part of a stream (RFC 9113 section 5.1).
//!
//! ```text
//!   Open ──END_STREAM──► Finished ──all is read──► Done
//!    │ └──RST_STREAM──► Reset ──all is read──► Done
//!    └──stop──► Stopped                         (what arrives is dropped)
//! ```

use bytes::Bytes;
use quictun_flow::PieceQueue;

use crate::frame::WINDOW_INITIAL;

#[derive(Debug)]
pub(crate) struct RecvPart {
    pub(crate) state: RecvState,
    /// The peer sends no more.
    pub(crate) peer_ended: bool,
    /// The head of the request, which is not a part of the data and needs no credit.
    head: Bytes,
    /// Bytes that were not read.
    queue: PieceQueue,
    /// The offset of the next byte to read, with the head.
    offset: u64,
    /// Number of bytes that have arrived, padding included.
    received: u64,
    /// Number of bytes that were read, padding included.
    read: u64,
    /// Number of bytes that were read, and that the application has not taken.
    held: u64,
    /// Number of bytes that the peer may send in total, as announced.
    limit: u64,
    /// An event tells that the stream is readable, and has not been polled.
    pub(crate) noted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecvState {
    Open,
    Finished,
    Reset,
    Stopped,
    Done,
}

/// Length below which a piece is copied, bytes: a sixteenth of a record. A longer one is worth the memory of the record.
const COPY_BELOW: usize = 1024;

impl RecvPart {
    pub(crate) fn new(head: Vec<u8>) -> Self {
        Self {
            state: RecvState::Open,
            peer_ended: false,
            head: head.into(),
            queue: PieceQueue::default(),
            offset: 0,
            received: 0,
            read: 0,
            held: 0,
            limit: u64::from(WINDOW_INITIAL),
            noted: false,
        }
    }

    /// Notes that `bytes` arrive. Returns false if they exceed the limit.
    pub(crate) fn note_received(&mut self, bytes: u64) -> bool {
        let fits = bytes <= self.limit - self.received;
        if fits {
            self.received += bytes;
        }
        fits
    }

    /// Notes that bytes which have arrived are padding.
    pub(crate) fn note_padding(&mut self, bytes: u64) {
        self.read += bytes;
    }

    pub(crate) fn insert(&mut self, data: Bytes) {
        self.queue.push(data, COPY_BELOW);
    }

    /// Takes the next piece, of at most `max` bytes, with its offset. The number tells how many of the bytes used credit.
    pub(crate) fn pull(&mut self, max: usize) -> Option<(u64, Bytes, u64)> {
        let offset = self.offset;
        let (piece, used) = if self.head.is_empty() {
            let piece = self.queue.pop(max)?;
            let used = piece.len() as u64;
            self.read += used;
            (piece, used)
        } else {
            (self.head.split_to(max.min(self.head.len())), 0)
        };
        self.offset += piece.len() as u64;
        Some((offset, piece, used))
    }

    /// Drops what has arrived. Returns the number of bytes that used credit.
    pub(crate) fn discard(&mut self) -> u64 {
        self.head = Bytes::new();
        self.queue.truncate(0)
    }

    /// Notes that the application has not taken this many of the bytes that were read.
    pub(crate) fn note_held(&mut self, bytes: u64) {
        self.held = bytes;
    }

    /// Returns the limit to announce, if the application has taken half of a window, which has at most `most` bytes. A
    /// stream begins with a small one.
    pub(crate) fn wanted_limit(&self, most: u64) -> Option<u64> {
        if self.state != RecvState::Open || self.peer_ended {
            return None;
        }
        let taken = self.read.saturating_sub(self.held);
        let least = u64::from(WINDOW_INITIAL);
        let window = if taken < least / 2 {
            least
        } else {
            most.max(least)
        };
        let limit = taken + window;
        let more = limit.checked_sub(self.limit)?;
        (more > 0 && more >= window / 2).then_some(limit)
    }

    /// Returns the number of bytes that the peer may send in total.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Notes that a limit which is higher by this is announced.
    pub(crate) fn note_announced(&mut self, more: u32) {
        self.limit += u64::from(more);
    }

    /// Returns the length of the part of the head that was not read, bytes.
    pub(crate) fn head_len(&self) -> usize {
        self.head.len()
    }

    /// Returns whether nothing was read, not even a part of the head.
    pub(crate) fn is_unread(&self) -> bool {
        self.offset == 0
    }
}
