//! The place of a flow: a stream, or a state without one.

use crate::bonded::DetachedState;
use crate::ids::{ConnectionKey, StreamId};
use crate::inlet::Inlet;
use crate::salvage::Salvage;

/// The place of a flow.
#[derive(Debug)]
pub(super) enum Placement {
    /// Client: the flow waits for a connection.
    Waiting,
    /// A stream carries the flow.
    On(Attachment),
    /// Client: a stream is to carry the flow. The answer to MOVE, and the data that follows it, arrive in the inlet.
    Moving(Attachment, Box<Inlet>),
    /// The flow waits for another connection of its bond.
    Detached(Box<DetachedState>),
    /// The connection is lost, or the stream was reset. Data that has arrived is still being delivered.
    Salvaged(Box<Salvage>),
}

/// The connection and stream that carry a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamKey {
    /// Key of the connection.
    pub connection: ConnectionKey,
    /// The stream on that connection.
    pub stream: StreamId,
}

/// A flow's place on a connection, and in the connection's queues.
#[derive(Debug)]
pub(super) struct Attachment {
    pub(super) key: StreamKey,
    /// The flow is in the queue of flows with data to send.
    pub(super) queued: bool,
    /// The flow's position among flows that wait for credit, until it gets some.
    pub(super) blocked: Option<u64>,
    /// The peer's application does not read, so nothing is sent for now.
    pub(super) paused_by_peer: bool,
}

impl Attachment {
    pub(super) fn new(key: StreamKey) -> Self {
        Self {
            key,
            queued: false,
            blocked: None,
            paused_by_peer: false,
        }
    }
}

impl Placement {
    pub(super) fn attachment(&self) -> Option<&Attachment> {
        match self {
            Self::On(attachment) | Self::Moving(attachment, _) => Some(attachment),
            Self::Waiting | Self::Detached(_) | Self::Salvaged(_) => None,
        }
    }

    pub(super) fn attachment_mut(&mut self) -> Option<&mut Attachment> {
        match self {
            Self::On(attachment) | Self::Moving(attachment, _) => Some(attachment),
            Self::Waiting | Self::Detached(_) | Self::Salvaged(_) => None,
        }
    }

    /// Returns the inlet for the answer to MOVE, while it has not arrived.
    pub(super) fn moving(&self) -> Option<&Inlet> {
        match self {
            Self::Moving(_, inlet) => Some(inlet),
            _ => None,
        }
    }
}
