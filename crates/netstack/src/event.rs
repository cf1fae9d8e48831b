//! Events of a stack, results of reads, and errors of operations on flows.

use std::net::SocketAddr;

/// Identifies a flow during its lifetime. An id is not reused for a later flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackFlowId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl std::fmt::Display for StackFlowId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.index, self.generation)
    }
}

impl StackFlowId {
    /// Returns the id as a number, under which another process may refer to the flow.
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// Returns the id for a number. A flow with this id may never have existed.
    #[expect(clippy::cast_possible_truncation, reason = "two halves")]
    pub fn from_bits(bits: u64) -> Self {
        Self {
            index: bits as u32,
            generation: (bits >> 32) as u32,
        }
    }
}

/// An event of a flow, or of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An application wants to connect. Answer with [`Stack::accept`](crate::Stack::accept) or
    /// [`Stack::refuse`](crate::Stack::refuse).
    Offered {
        /// The flow that was offered.
        flow: StackFlowId,
        /// The address of the application.
        client: SocketAddr,
        /// The address that the application connects to.
        target: SocketAddr,
    },
    /// The handshake is complete.
    Open(StackFlowId),
    /// There are bytes to read, or the application has finished. Reported again only after a read that found nothing.
    Readable(StackFlowId),
    /// There is room to write, after a write that found too little.
    Writable(StackFlowId),
    /// The flow no longer exists.
    Ended {
        /// The flow that ended.
        flow: StackFlowId,
        /// The way in which the flow ended.
        ending: FlowEnding,
    },
}

/// The way in which a flow ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowEnding {
    /// Both sides have finished, and everything was read and acknowledged.
    Finished,
    /// The application reset the flow.
    Reset,
    /// The application was silent for too long, or the user did not accept the flow in time.
    TimedOut,
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackRead {
    /// This number of bytes was taken.
    Data(usize),
    /// There is nothing to read yet; [`Event::Readable`] will follow.
    Empty,
    /// The application has finished, and no more bytes will arrive.
    Finished,
}

/// The reason why an operation on a flow is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FlowError {
    /// The flow has ended, which an event reports, or was refused or reset.
    #[error("the flow has ended")]
    Gone,
    /// The user has already finished the flow.
    #[error("the flow is finished: nothing more can be written")]
    Finished,
    /// The flow was not offered, or has been accepted already.
    #[error("the flow is not waiting to be accepted")]
    NotOffered,
    /// The flow has not been accepted yet.
    #[error("the flow is waiting to be accepted")]
    NotAccepted,
    /// All buffers are in use.
    #[error("no memory left for another flow: refuse it, or allow more")]
    NoMemory,
}
