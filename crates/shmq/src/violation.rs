//! What a peer does that no honest one can.

use thiserror::Error;

/// The channel is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// The peer closed it, and everything that it sent has been read.
    #[error("the peer closed the channel")]
    Closed,
    /// The peer's process ended without closing it, and everything that it sent has been read.
    #[error("the peer's process ended")]
    Died,
    /// The peer broke the rules. What is left in the ring stays there.
    #[error("the peer broke the rules of the channel: {0}")]
    Violation(#[from] Violation),
}

/// The peer broke the rules of the memory it shares with us: it is broken or hostile, and nothing more is read from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// A slot holds neither the next message nor what was there before.
    #[error("slot of message {index} has turn {found} instead of {expected} or the one before")]
    Turn {
        /// Of the message.
        index: u64,
        /// In the slot.
        found: u32,
        /// In the slot once the message is there.
        expected: u32,
    },
    /// It says to have consumed what was not there, or less than before.
    #[error(
        "it says to have consumed {found} messages, of {written} written and {before} consumed before"
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
    /// A message that its receiver cannot have been sent: an answer to no call, a request to a client, a wrong length.
    #[error("a message that makes no sense here: kind {kind}, call {cid}, length {len}")]
    Senseless {
        /// Of the message.
        kind: u16,
        /// Of the message.
        cid: u32,
        /// Of the message.
        len: u32,
    },
    /// It answered nothing for too long.
    #[error("it did not answer within {0:?}")]
    Silent(std::time::Duration),
    /// It keeps waking us for nothing.
    #[error("it woke us {0} times in a row for nothing")]
    EmptyWakes(u32),
}
