//! What a stack tells, and what it is told.

use std::net::SocketAddr;

/// A flow, for as long as it lives; never used again afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl std::fmt::Display for FlowId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.index, self.generation)
    }
}

impl FlowId {
    /// The number under which another process may know it.
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The flow of that number, which may never have been.
    #[expect(clippy::cast_possible_truncation, reason = "two halves")]
    pub fn from_bits(bits: u64) -> Self {
        Self {
            index: bits as u32,
            generation: (bits >> 32) as u32,
        }
    }
}

/// Something that happened to a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An application wants to connect: to be answered with `accept` or `refuse`.
    Offered {
        /// The new flow.
        flow: FlowId,
        /// The application's address.
        client: SocketAddr,
        /// Where it wants to.
        target: SocketAddr,
    },
    /// The hand-shake is complete.
    Open(FlowId),
    /// There is something to read: bytes, or the end of them. Told again after a read that found nothing.
    Readable(FlowId),
    /// There is room, after a write that found less than it wanted.
    Writable(FlowId),
    /// The flow is no more.
    Ended {
        /// Which.
        flow: FlowId,
        /// How.
        ending: Ending,
    },
}

/// How a flow came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Both sides have finished, and everything was read and acknowledged.
    Finished,
    /// The application reset it.
    Reset,
    /// The application, or whoever was to accept it, was silent for too long.
    TimedOut,
}

/// What a read found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// That many bytes were taken.
    Data(usize),
    /// Nothing yet: [`Event::Readable`] will tell.
    Empty,
    /// The application has finished; nothing more will come.
    Finished,
}

/// Why an operation on a flow was not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FlowError {
    /// It has ended, and an event has told or will tell how.
    #[error("the flow has ended")]
    Gone,
    /// It was finished by ourselves.
    #[error("the flow was finished: nothing more can be written")]
    Finished,
    /// Only a flow that was offered can be accepted or refused, and only once.
    #[error("the flow is not waiting to be accepted")]
    NotOffered,
    /// It was not accepted yet.
    #[error("the flow is waiting to be accepted")]
    NotAccepted,
    /// All buffers are in use.
    #[error("no memory left for another flow: refuse it, or allow more")]
    NoMemory,
}
