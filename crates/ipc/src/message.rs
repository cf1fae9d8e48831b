//! What calls and answers carry themselves.

use quictun_shmq::{INLINE, Line, Violation};
use thiserror::Error;

/// What an item is, in its flags.
pub(crate) const CALL: u16 = 1;
pub(crate) const REPLY: u16 = 2;
pub(crate) const SEND: u16 = 3;
const KIND: u16 = 0xff;

/// The payload is in the arena of the client.
pub(crate) const BUFFER: u16 = 0x100;

/// The answer is the last of a stream.
pub(crate) const LAST: u16 = 0x200;

/// More bytes than a message carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{0} bytes: a message carries {INLINE}; put more into a buffer")]
pub struct MessageTooLong(usize);

/// A call, its answer, or a one-way message: a few numbers and up to 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    pub(crate) line: Line,
}

impl Message {
    /// What is to be done, or how it went.
    #[inline]
    pub fn new(op: u16) -> Self {
        let line = Line::default().with_head(0, op, 0, 0);
        Self { line }
    }

    /// With a number.
    #[must_use]
    #[inline]
    pub fn with_arg(self, arg: u64) -> Self {
        let line = self.line.with_arg(arg);
        Self { line }
    }

    /// With the number of what it is about.
    #[must_use]
    #[inline]
    pub fn with_sock(self, sock: u32) -> Self {
        let line = self.line.with_head(0, self.line.op(), 0, sock);
        Self { line }
    }

    /// With up to 32 bytes.
    #[inline]
    pub fn with_bytes(self, bytes: &[u8]) -> Result<Self, MessageTooLong> {
        let line = self.line.with_inline(bytes);
        let line = line.ok_or(MessageTooLong(bytes.len()))?;
        Ok(Self { line })
    }

    /// An answer that ends a stream ([`crate::Client::stream`]), and is no item itself.
    pub fn last() -> Self {
        let line = Line::default().with_call(0, LAST);
        Self { line }
    }

    /// Whether it ends a stream.
    #[inline]
    pub fn is_last(&self) -> bool {
        self.line.flags() & LAST != 0
    }

    /// What is to be done, or how it went.
    #[inline]
    pub fn op(&self) -> u16 {
        self.line.op()
    }

    /// A number.
    #[inline]
    pub fn arg(&self) -> u64 {
        self.line.arg()
    }

    /// What it is about.
    #[inline]
    pub fn sock(&self) -> u32 {
        self.line.sock()
    }

    /// What it carries itself.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        let len = if self.line.flags() & BUFFER == 0 {
            self.line.len() as usize
        } else {
            0
        };
        let inline = self.line.inline();
        inline.get(..len).unwrap_or(inline)
    }
}

#[inline]
pub(crate) fn kind(line: &Line) -> u16 {
    line.flags() & KIND
}

/// Whether it carries no more than it can.
#[inline]
pub(crate) fn is_sound(line: &Line) -> bool {
    line.flags() & BUFFER != 0 || line.len() as usize <= INLINE
}

pub(crate) fn senseless(line: &Line) -> Violation {
    Violation::Senseless {
        kind: kind(line),
        cid: line.cid(),
        len: line.len(),
    }
}
