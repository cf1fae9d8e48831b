//! Payloads that are longer than what a message carries: parts of the arenas, read and written where they lie.

use super::Channel;
use crate::arena::Reserved;
use crate::bytes::Shared;
use crate::message::Message;
use crate::violation::{ChannelError, Violation};

/// A payload that the peer says it sent: inside its arena, that much is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    off: u32,
    len: u32,
}

impl Received {
    /// Bytes.
    #[expect(clippy::len_without_is_empty, reason = "it never is")]
    pub fn len(self) -> u32 {
        self.len
    }
}

impl Channel {
    /// Part of our arena for a payload of `len` bytes, if there is as much in one piece.
    pub fn reserve(&mut self, len: u32) -> Option<Reserved> {
        self.arena.reserve(len)
    }

    /// Gives it back, once the peer cannot be reading it any more: how that is known is the user's protocol.
    #[expect(clippy::needless_pass_by_value, reason = "it is gone after this")]
    pub fn release(&mut self, reserved: Reserved) {
        self.arena.release(&reserved);
    }

    /// Writes into a payload of ours, from its byte `at` on; panics where that is beyond its end.
    pub fn write(&self, reserved: &Reserved, at: u32, bytes: &[u8]) {
        self.ours(reserved, at, bytes.len()).write(bytes);
    }

    /// Writes a payload of ours in place, in lines of eight words; bytes after the last whole line stay.
    #[inline]
    pub fn fill_lines(&self, reserved: &Reserved, make: impl FnMut(usize) -> [u64; 8]) {
        let whole = self.ours(reserved, 0, reserved.len() as usize);
        whole.fill_lines(make);
    }

    /// Copies bytes of a payload of ours out, from its byte `at` on, where the peer may have answered into it; panics where
    /// that is beyond its end.
    pub fn read_back(&self, reserved: &Reserved, at: u32, into: &mut [u8]) {
        self.ours(reserved, at, into.len()).read(into);
    }

    /// As [`read_back`](Self::read_back) for `len` bytes, behind those that are in `onto` already.
    pub fn append_back(&self, reserved: &Reserved, at: u32, len: u32, onto: &mut Vec<u8>) {
        self.ours(reserved, at, len as usize).append_to(onto);
    }

    /// The payload of a message that the peer sent, if it has one outside the message. An error where it is not in the peer's
    /// arena, which tears the channel down.
    pub fn received(&mut self, message: &Message) -> Result<Option<Received>, ChannelError> {
        self.received_at(message.off(), message.len())
    }

    /// As [`received`](Self::received) for a payload of which only the place is at hand.
    pub fn received_at(&mut self, off: u32, len: u32) -> Result<Option<Received>, ChannelError> {
        let arena = self.region().layout().arena;
        if len == 0 {
            return Ok(None);
        }
        if off >= arena || len > arena - off || !off.is_multiple_of(8) {
            return Err(self.reject(Violation::Payload { off, len, arena }));
        }
        Ok(Some(Received { off, len }))
    }

    /// Copies bytes of a payload out, from its byte `at` on; panics where that is beyond its end. The peer may be writing
    /// to it: check what was copied, not what is there.
    pub fn read(&self, received: Received, at: u32, into: &mut [u8]) {
        self.theirs(received, at, into.len()).read(into);
    }

    /// Writes an answer into a payload that the peer sent, from its byte `at` on; panics where that is beyond its end.
    pub fn answer(&self, received: Received, at: u32, bytes: &[u8]) {
        self.theirs(received, at, bytes.len()).write(bytes);
    }

    /// Folds over a payload where it lies, in lines of eight words, the last one filled up with zeros.
    #[inline]
    pub fn fold_lines<T>(
        &self,
        received: Received,
        start: T,
        each: impl FnMut(T, &[u64; 8]) -> T,
    ) -> T {
        let whole = self.theirs(received, 0, received.len as usize);
        whole.fold_lines(start, each)
    }

    #[inline]
    fn ours(&self, reserved: &Reserved, at: u32, len: usize) -> Shared {
        let begins = place(reserved.off(), reserved.len(), at, len);
        self.ours.part(begins, len)
    }

    #[inline]
    fn theirs(&self, received: Received, at: u32, len: usize) -> Shared {
        let begins = place(received.off, received.len, at, len);
        self.theirs.part(begins, len)
    }
}

/// Where byte `at` of a payload lies in its arena; panics where the payload has fewer than `len` bytes from there on.
#[inline]
fn place(off: u32, whole: u32, at: u32, len: usize) -> usize {
    assert!(
        at <= whole && len <= (whole - at) as usize,
        "beyond the payload"
    );
    (off + at) as usize
}
