//! Protocol violations that no honest peer commits, and the errors that end a channel.

use thiserror::Error;

/// The reason why a channel is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// The peer closed the channel. Everything that it sent has been read.
    #[error("the peer closed the channel")]
    Closed,
    /// The peer's process ended without closing the channel. Everything that it sent has been read.
    #[error("the peer's process ended")]
    Died,
    /// The peer broke the rules. Messages that are still in the ring are not read.
    #[error("the peer broke the rules of the channel: {0}")]
    Violation(#[from] Violation),
}

/// A breach of the rules of the shared memory. The peer is broken or hostile, and nothing more is read from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// A slot holds neither the turn of the next message nor the turn before it.
    #[error("slot of message {index} has turn {found}, expected {expected} or the turn before it")]
    Turn {
        /// Position of the message, counted from the start of the channel.
        index: u64,
        /// Turn that the slot holds.
        found: u32,
        /// Turn that the slot holds once the message is there.
        expected: u32,
    },
    /// The peer's head is beyond the tail or behind its previous value.
    #[error(
        "it claims to have consumed {found} messages, but {written} are written and {before} were consumed before"
    )]
    Head {
        /// Head that the peer wrote.
        found: u64,
        /// Head that the peer wrote before.
        before: u64,
        /// Messages that the local side has written.
        written: u64,
    },
    /// A payload does not lie inside its sender's arena.
    #[error("a payload of {len} bytes at offset {off} is outside its arena of {arena} bytes")]
    Payload {
        /// Offset of the payload's first byte in the arena.
        off: u32,
        /// Length of the payload, in bytes.
        len: u32,
        /// Length of the arena, in bytes.
        arena: u32,
    },
    /// A message that is not valid for its receiver: an answer to no call, a request to a client, or a wrong length.
    #[error("unexpected message: kind {kind}, call {cid}, length {len}")]
    Senseless {
        /// Kind of the message.
        kind: u16,
        /// Call id of the message.
        cid: u32,
        /// Length of the message's payload.
        len: u32,
    },
    /// The peer neither answered nor made room within the limit.
    #[error("it did not answer within {0:?}")]
    Silent(std::time::Duration),
    /// The peer keeps waking the local side without a reason.
    #[error("it caused {0} wake-ups in a row without a reason")]
    EmptyWakes(u32),
}
