//! The flags that this crate uses in messages.

use quictun_shmq::{INLINE, Message, Violation};

pub(crate) const CALL: u16 = 1;
pub(crate) const REPLY: u16 = 2;
pub(crate) const SEND: u16 = 3;
const KIND: u16 = 0xff;

/// The payload is in the client's arena.
pub(crate) const BUFFER: u16 = 0x100;

/// Flag of the answer that ends a stream ([`crate::Client::stream`]). That answer is not an item itself.
pub const LAST: u16 = 0x200;

#[inline]
pub(crate) fn kind(message: &Message) -> u16 {
    message.flags() & KIND
}

/// Returns whether the message has no more inline bytes than fit into it.
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
