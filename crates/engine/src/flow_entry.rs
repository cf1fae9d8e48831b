//! A flow as the engine keeps it: from the first wish to the last byte.

use std::time::Instant;

use quictun_flow::{Ending, Flow, Inlet, Socket};
use quinn_proto::StreamId;

use crate::FlowId;
use crate::charges::{Holding, Pace};
use crate::pinned::Kept;
use crate::salvage::Salvage;

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
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent marks: what was told, and where it stands in queues"
)]
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
    /// Bytes taken off its stream, as noted in its connection.
    pub(crate) noted: u64,
    /// What it holds of received data, as counted in its connection.
    pub(crate) holding: Holding,
    /// Batches that slices of that keep in memory, as counted in its engine.
    pub(crate) pinned: Kept,
    /// The first number of it that the peer has not confirmed (PROTOCOL CONTROL-5).
    pub(crate) seen: u64,
    /// The peer was told that everything has arrived.
    pub(crate) end_told: bool,
    /// The peer's application does not read: nothing is sent for now.
    pub(crate) resting: bool,
    /// Set while the peer is asked to hold this flow: the total of stream bytes that it may send before it is taken to
    /// ignore HOLD.
    pub(crate) told_to_rest: Option<u64>,
    /// Since when it has held more than it should.
    pub(crate) over_since: Option<Instant>,
    /// How fast it reads.
    pub(crate) pace: Pace,
    /// Its connection is gone, and what has arrived is still being delivered.
    pub(crate) salvage: Option<Salvage>,
    /// Until when its socket must have sent what is left to it.
    pub(crate) part_by: Option<Instant>,
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
    Reading(Inlet),
    /// Server: the target is being dialled; what follows the request waits.
    Dialing(Inlet),
    /// Bytes move. Client: `answered` once the server has accepted.
    Bridged {
        /// The bridge.
        flow: Flow<S>,
        /// The server has accepted.
        answered: bool,
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
            noted: 0,
            holding: Holding::default(),
            pinned: Kept::default(),
            seen: 0,
            end_told: false,
            resting: false,
            told_to_rest: None,
            over_since: None,
            pace: Pace::new(now),
            salvage: None,
            part_by: None,
            reopened: 0,
        }
    }

    pub(crate) fn flow(&self) -> Option<&Flow<S>> {
        match &self.phase {
            Phase::Bridged { flow, .. } => Some(flow),
            Phase::Waiting(_) | Phase::Reading(_) | Phase::Dialing(_) => None,
        }
    }

    pub(crate) fn flow_mut(&mut self) -> Option<&mut Flow<S>> {
        match &mut self.phase {
            Phase::Bridged { flow, .. } => Some(flow),
            Phase::Waiting(_) | Phase::Reading(_) | Phase::Dialing(_) => None,
        }
    }

    /// How many bytes of the application may still go before the server has answered.
    pub(crate) fn early_left(&self, compat: bool) -> usize {
        let Phase::Bridged {
            flow,
            answered: false,
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
            answered: false,
        } = &self.phase
        else {
            return false;
        };
        self.reopened < REOPENS_MAX && flow.is_untouched()
    }

    /// Where the stream's bytes arrive.
    pub(crate) fn inlet_mut(&mut self) -> Option<&mut Inlet> {
        match &mut self.phase {
            Phase::Reading(inlet) | Phase::Dialing(inlet) => Some(inlet),
            Phase::Bridged { flow, .. } => Some(flow.inlet()),
            Phase::Waiting(_) => None,
        }
    }

    /// What it holds in memory of what it has received, bytes.
    pub(crate) fn held(&self) -> usize {
        match &self.phase {
            Phase::Reading(inlet) | Phase::Dialing(inlet) => inlet.held(),
            Phase::Bridged { flow, .. } => flow.held(),
            Phase::Waiting(_) => 0,
        }
    }

    /// Bytes taken off its stream in all.
    pub(crate) fn taken(&self) -> u64 {
        match &self.phase {
            Phase::Reading(inlet) | Phase::Dialing(inlet) => inlet.taken(),
            Phase::Bridged { flow, .. } => flow.taken(),
            Phase::Waiting(_) => self.noted,
        }
    }

    /// Bytes of it.
    pub(crate) fn buffered(&self) -> usize {
        match &self.phase {
            Phase::Reading(inlet) | Phase::Dialing(inlet) => inlet.buffered(),
            Phase::Bridged { flow, .. } => flow.buffered(),
            Phase::Waiting(_) => 0,
        }
    }

    pub(crate) fn ending(&self) -> Option<Ending> {
        self.flow().and_then(Flow::ending)
    }
}
