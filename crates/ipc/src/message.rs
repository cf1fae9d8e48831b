//! What calls and answers carry themselves.

use quictun_shmq::{INLINE, Item, Violation};
use thiserror::Error;

/// What an item is, in its flags.
pub(crate) const CALL: u16 = 1;
pub(crate) const REPLY: u16 = 2;
pub(crate) const SEND: u16 = 3;
const KIND: u16 = 0xff;

/// The payload is in the arena of the client.
pub(crate) const BUFFER: u16 = 0x100;

/// More bytes than a message carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{0} bytes: a message carries {INLINE}; put more into a buffer")]
pub struct MessageTooLong(usize);

/// A call, its answer, or a one-way message: a few numbers and up to 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    pub(crate) item: Item,
}

impl Message {
    /// What is to be done, or how it went.
    pub fn new(op: u16) -> Self {
        let item = Item {
            op,
            ..Item::default()
        };
        Self { item }
    }

    /// With a number.
    #[must_use]
    pub fn with_arg(mut self, arg: u64) -> Self {
        self.item.arg = arg;
        self
    }

    /// With the number of what it is about.
    #[must_use]
    pub fn with_sock(mut self, sock: u32) -> Self {
        self.item.sock = sock;
        self
    }

    /// With up to 32 bytes.
    pub fn with_bytes(mut self, bytes: &[u8]) -> Result<Self, MessageTooLong> {
        let place = self.item.inline.get_mut(..bytes.len());
        place
            .ok_or(MessageTooLong(bytes.len()))?
            .copy_from_slice(bytes);
        self.item.len = u32::try_from(bytes.len()).unwrap_or_default();
        Ok(self)
    }

    /// What is to be done, or how it went.
    pub fn op(&self) -> u16 {
        self.item.op
    }

    /// A number.
    pub fn arg(&self) -> u64 {
        self.item.arg
    }

    /// What it is about.
    pub fn sock(&self) -> u32 {
        self.item.sock
    }

    /// What it carries itself.
    pub fn bytes(&self) -> &[u8] {
        let len = if self.item.flags & BUFFER == 0 {
            self.item.len as usize
        } else {
            0
        };
        self.item.inline.get(..len).unwrap_or(&self.item.inline)
    }
}

pub(crate) fn kind(item: &Item) -> u16 {
    item.flags & KIND
}

/// Whether it carries no more than it can.
pub(crate) fn is_sound(item: &Item) -> bool {
    item.flags & BUFFER != 0 || item.len as usize <= INLINE
}

pub(crate) fn senseless(item: &Item) -> Violation {
    Violation::Senseless {
        kind: kind(item),
        cid: item.cid,
        len: item.len,
    }
}
