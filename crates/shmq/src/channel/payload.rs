//! Payloads that do not fit into a message: parts of the arenas, read and written in place.

use super::Channel;
use crate::arena::Allocation;
use crate::bytes::SharedBytes;
use crate::message::Message;
use crate::violation::{ChannelError, Violation};

/// A payload that the peer announced. It lies inside the peer's arena; its content is untrusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerPayload {
    off: u32,
    len: u32,
}

impl PeerPayload {
    /// Returns the length in bytes, which is never 0.
    #[expect(clippy::len_without_is_empty, reason = "its length is never 0")]
    pub fn len(self) -> u32 {
        self.len
    }
}

impl Channel {
    /// Allocates a contiguous part of the local arena for a payload of `len` bytes. Returns `None` if there is no such
    /// part.
    pub fn reserve(&mut self, len: u32) -> Option<Allocation> {
        self.arena.reserve(len)
    }

    /// Frees a part of the local arena. The peer must no longer read it; the caller's protocol has to ensure that.
    #[expect(clippy::needless_pass_by_value, reason = "the part is gone afterwards")]
    pub fn release(&mut self, reserved: Allocation) {
        self.arena.release(&reserved);
    }

    /// Writes into a local payload, starting at byte `at`.
    ///
    /// # Panics
    ///
    /// Panics if `bytes` extends beyond the end of the payload.
    pub fn write(&self, reserved: &Allocation, at: u32, bytes: &[u8]) {
        self.ours(reserved, at, bytes.len()).write(bytes);
    }

    /// Writes a local payload in place, in lines of eight words. Bytes after the last whole line stay unchanged.
    #[inline]
    pub fn fill_lines(&self, reserved: &Allocation, make: impl FnMut(usize) -> [u64; 8]) {
        let whole = self.ours(reserved, 0, reserved.len() as usize);
        whole.fill_lines(make);
    }

    /// Copies bytes out of a local payload into which the peer may have written an answer, starting at byte `at`.
    ///
    /// # Panics
    ///
    /// Panics if `into` extends beyond the end of the payload.
    pub fn read_back(&self, reserved: &Allocation, at: u32, into: &mut [u8]) {
        self.ours(reserved, at, into.len()).read(into);
    }

    /// Like [`read_back`](Self::read_back) for `len` bytes, which are appended to `onto`.
    pub fn append_back(&self, reserved: &Allocation, at: u32, len: u32, onto: &mut Vec<u8>) {
        self.ours(reserved, at, len as usize).append_to(onto);
    }

    /// Returns the payload of a message that the peer sent, or `None` if the message has no payload in the arena. A
    /// payload outside the peer's arena is an error and ends the channel.
    pub fn received(&mut self, message: &Message) -> Result<Option<PeerPayload>, ChannelError> {
        self.received_at(message.off(), message.len())
    }

    /// Like [`received`](Self::received), for a caller that has only the payload's offset and length.
    pub fn received_at(&mut self, off: u32, len: u32) -> Result<Option<PeerPayload>, ChannelError> {
        let arena = self.region().layout().arena;
        if len == 0 {
            return Ok(None);
        }
        if off >= arena || len > arena - off || !off.is_multiple_of(8) {
            return Err(self.reject(Violation::Payload { off, len, arena }));
        }
        Ok(Some(PeerPayload { off, len }))
    }

    /// Copies bytes out of a received payload, starting at byte `at`. The peer may write to the payload at any time, so
    /// check the copy, not the payload.
    ///
    /// # Panics
    ///
    /// Panics if `into` extends beyond the end of the payload.
    pub fn read(&self, received: PeerPayload, at: u32, into: &mut [u8]) {
        self.theirs(received, at, into.len()).read(into);
    }

    /// Writes an answer into a received payload, starting at byte `at`.
    ///
    /// # Panics
    ///
    /// Panics if `bytes` extends beyond the end of the payload.
    pub fn answer(&self, received: PeerPayload, at: u32, bytes: &[u8]) {
        self.theirs(received, at, bytes.len()).write(bytes);
    }

    /// Folds over a received payload in place, in lines of eight words. The last line is padded with zeros.
    #[inline]
    pub fn fold_lines<T>(
        &self,
        received: PeerPayload,
        start: T,
        each: impl FnMut(T, &[u64; 8]) -> T,
    ) -> T {
        let whole = self.theirs(received, 0, received.len as usize);
        whole.fold_lines(start, each)
    }

    #[inline]
    fn ours(&self, reserved: &Allocation, at: u32, len: usize) -> SharedBytes {
        let begins = place(reserved.off(), reserved.len(), at, len);
        self.ours.part(begins, len)
    }

    #[inline]
    fn theirs(&self, received: PeerPayload, at: u32, len: usize) -> SharedBytes {
        let begins = place(received.off, received.len, at, len);
        self.theirs.part(begins, len)
    }
}

/// Returns the arena offset of byte `at` of a payload. Panics if the payload has fewer than `len` bytes from there on.
#[inline]
fn place(off: u32, whole: u32, at: u32, len: usize) -> usize {
    assert!(
        at <= whole && len <= (whole - at) as usize,
        "the range extends beyond the end of the payload"
    );
    (off + at) as usize
}
