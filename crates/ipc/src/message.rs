//! What `ipc` says in the flags of messages.

use quictun_shmq::{INLINE, Message, Violation};

pub(crate) const CALL: u16 = 1;
pub(crate) const REPLY: u16 = 2;
pub(crate) const SEND: u16 = 3;
const KIND: u16 = 0xff;

/// The payload is in the arena of the client.
pub(crate) const BUFFER: u16 = 0x100;

/// An answer with this flag ends a stream ([`crate::Client::stream`]), and is no item itself.
pub const LAST: u16 = 0x200;

#[inline]
pub(crate) fn kind(message: &Message) -> u16 {
    message.flags() & KIND
}

/// Whether it carries no more than it can.
#[inline]
pub(crate) fn is_sound(message: &Message) -> bool {
    message.flags() & BUFFER != 0 || message.len() as usize <= INLINE
}

pub(crate) fn senseless(message: &Message) -> Violation {
    Violation::Senseless {
        kind: kind(message),
        cid: message.cid(),
        len: message.len(),
    }
}
