//! A flow as the engine keeps it: from the first wish to the last byte.

use std::time::Instant;

use bytes::Bytes;
use quictun_flow::{Ending, Flow, Socket};
use quinn_proto::StreamId;

use crate::FlowId;

/// Application bytes sent before the server has answered. They wait in its receive window, which all
/// flows share, for as long as the dial takes: a few targets that never answer must not fill it.
const EARLY_MAX: usize = 64 * 1024;

/// The same towards a server of the original protocol, whose windows are smaller.
const EARLY_COMPAT_MAX: usize = 8 * 1024;

/// Times that a flow begins again elsewhere. Behind more dead targets than this it waits for its turn:
/// each time costs a connection.
const REOPENS_MAX: u8 = 3;

/// One flow.
#[derive(Debug)]
pub(crate) struct FlowEntry<S> {
    pub(crate) id: FlowId,
    /// The connection's handle and the stream, once there is one.
    pub(crate) place: Option<Place>,
    pub(crate) phase: Phase<S>,
    pub(crate) token: String,
    pub(crate) client_app: String,
    pub(crate) server_app: String,
    pub(crate) opened: Instant,
    pub(crate) established: bool,
    /// Until when it must have left its present phase.
    pub(crate) deadline: Option<Instant>,
    /// It stands in its connection's queue of flows with something to send.
    pub(crate) queued: bool,
    /// Its application does not read; counted in its connection.
    pub(crate) parked: bool,
    /// How often it was taken off a connection on which nothing answered it.
    pub(crate) reopened: u8,
}

/// Where a flow is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) handle: usize,
    pub(crate) stream: StreamId,
}

/// Where a flow stands.
#[derive(Debug)]
pub(crate) enum Phase<S> {
    /// Client: it waits for a connection.
    Waiting(S),
    /// Server: the request is being read.
    Reading(Vec<u8>),
    /// Server: the target is being dialled; these bytes came with the request.
    Dialing {
        /// Bytes after the request.
        rest: Bytes,
        /// Bytes of the stream read so far.
        offset: u64,
        /// The stream's FIN was read with them.
        fin: bool,
    },
    /// Bytes move. Client: `answer` is `Some` until the server has accepted.
    Bridged {
        /// The bridge.
        flow: Flow<S>,
        /// What has been read of the answer.
        answer: Option<Vec<u8>>,
    },
}

impl<S: Socket> FlowEntry<S> {
    pub(crate) fn new(id: FlowId, phase: Phase<S>, now: Instant) -> Self {
        Self {
            id,
            place: None,
            phase,
            token: String::new(),
            client_app: String::new(),
            server_app: String::new(),
            opened: now,
            established: false,
            deadline: None,
            queued: false,
            parked: false,
            reopened: 0,
        }
    }

    pub(crate) fn flow(&self) -> Option<&Flow<S>> {
        match &self.phase {
            Phase::Bridged { flow, .. } => Some(flow),
            Phase::Waiting(_) | Phase::Reading(_) | Phase::Dialing { .. } => None,
        }
    }

    pub(crate) fn flow_mut(&mut self) -> Option<&mut Flow<S>> {
        match &mut self.phase {
            Phase::Bridged { flow, .. } => Some(flow),
            Phase::Waiting(_) | Phase::Reading(_) | Phase::Dialing { .. } => None,
        }
    }

    /// How many bytes of the application may still go before the server has answered.
    pub(crate) fn early_left(&self, compat: bool) -> usize {
        let Phase::Bridged {
            flow,
            answer: Some(_),
        } = &self.phase
        else {
            return usize::MAX;
        };
        let most = if compat { EARLY_COMPAT_MAX } else { EARLY_MAX };
        most.saturating_sub(usize::try_from(flow.bytes_to_tunnel()).unwrap_or(usize::MAX))
    }

    /// Whether it may begin again on another connection: the server has not answered, and no byte of
    /// the application's has been sent that another request would send again (PROTOCOL CLOSE-10).
    pub(crate) fn may_reopen(&self) -> bool {
        let Phase::Bridged {
            flow,
            answer: Some(answer),
        } = &self.phase
        else {
            return false;
        };
        answer.is_empty() && self.reopened < REOPENS_MAX && flow.is_untouched()
    }

    pub(crate) fn ending(&self) -> Option<Ending> {
        self.flow().and_then(Flow::ending)
    }
}
