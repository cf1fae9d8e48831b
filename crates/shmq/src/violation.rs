//! What a peer does that no honest one can.

use thiserror::Error;

/// The peer broke the rules of the memory it shares with us: it is broken or hostile, and nothing more is read from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// A slot holds neither the next item nor what was there before.
    #[error("slot of item {index} has turn {found} instead of {expected} or the one before")]
    Turn {
        /// Of the item.
        index: u64,
        /// In the slot.
        found: u32,
        /// In the slot once the item is there.
        expected: u32,
    },
    /// It says to have consumed what was not there, or less than before.
    #[error(
        "it says to have consumed {found} items, of {written} written and {before} consumed before"
    )]
    Head {
        /// What it says.
        found: u64,
        /// What it said last.
        before: u64,
        /// Written by us.
        written: u64,
    },
    /// A payload that is not inside its part of the arena.
    #[error("a payload of {len} bytes at {off} is not in its arena of {arena} bytes")]
    Payload {
        /// First byte.
        off: u32,
        /// Bytes.
        len: u32,
        /// Bytes of the arena.
        arena: u32,
    },
    /// An item that its receiver cannot have been sent: an answer to no call, a request to a client, a wrong length.
    #[error("an item that makes no sense here: kind {kind}, call {cid}, length {len}")]
    Senseless {
        /// Of the item.
        kind: u16,
        /// Of the item.
        cid: u32,
        /// Of the item.
        len: u32,
    },
    /// It answered nothing for too long.
    #[error("it did not answer within {0:?}")]
    Silent(std::time::Duration),
    /// It keeps waking us for nothing.
    #[error("it woke us {0} times in a row for nothing")]
    EmptyWakes(u32),
}
