//! A flow as the engine keeps it, from the request for it to its last byte.

mod end_wait;
mod hand_over;
mod leaving;
mod placement;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;

use self::end_wait::EndWait;
pub use self::placement::StreamKey;
use self::placement::{Attachment, Placement};
use crate::backlog::{Backlog, ReceiveState};
use crate::bonded::BondMembership;
use crate::close::Ending;
use crate::flow::Flow;
use crate::ids::{ConnectionKey, FlowId};
use crate::inlet::Inlet;
use crate::message_detector::MessageDetector;
use crate::pinned::PinnedByFlow;
use crate::report::{FlowReport, FlowSummary};
use crate::request::FlowRequest;
use crate::salvage::Leg;
use crate::socket::Socket;

/// Maximum number of application bytes sent before the server has answered. They wait in its receive window, which all
/// flows share, for as long as the dial takes. A few targets that never answer must not fill that window.
const EARLY_MAX: usize = 64 * 1024;

/// The same limit for a server of the original protocol, whose windows are smaller.
const EARLY_COMPAT_MAX: usize = 8 * 1024;

/// First four bytes of a SPICE link message. Only such flows are classified.
const SPICE_MAGIC: &[u8] = b"REDQ";

/// A flow with its peer, its place and its phase.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent marks: what the peer was told, and which queue holds the flow"
)]
pub struct FlowEntry<S> {
    id: FlowId,
    placement: Placement,
    /// The phase that the flow is in.
    pub phase: FlowPhase<S>,
    token: String,
    client_app: String,
    server_app: String,
    /// Client: the address of the application, if the server is to learn it.
    source: Option<SocketAddr>,
    opened: Instant,
    established: bool,
    /// The server opened the flow, for an application that connected to a listener (PROTOCOL section 5.9).
    incoming: bool,
    /// The flow is in a queue of flows that wait for their client's rate.
    shaped: bool,
    /// Received data that the flow holds, as last counted.
    pub backlog: Backlog,
    /// Batches that slices of the held data keep in memory, as counted in the flow's engine.
    pub pinned: PinnedByFlow,
    /// Bytes that move from the flow's application.
    pub outbound: MessageDetector,
    /// Bytes that move to the flow's application.
    pub inbound: MessageDetector,
    /// The first number of the flow that the peer has not confirmed (PROTOCOL CONTROL-5).
    seen: u64,
    end_reported: bool,
    /// The time that the flow may still take if it only waits: for its socket to send, or for the peer to confirm what
    /// the application sent before its reset.
    end_wait: Option<Box<EndWait>>,
    /// Number of times that the flow was taken off a connection because the server did not answer.
    reopened: u8,
    /// Set if the flow can move to another connection of its bond.
    pub bonded: Option<BondMembership>,
}

/// The phases of a flow.
#[derive(Debug)]
pub enum FlowPhase<S> {
    /// Client: the flow waits for a connection.
    Waiting(S),
    /// Server: the request is being read.
    Reading(Inlet),
    /// The local connection is being dialled: on the server the target, on the client the target of a flow that the
    /// server opened. Data behind the request waits in the inlet.
    Dialing(Inlet),
    /// Bytes move between the application and the stream.
    Bridged {
        /// The flow between the two.
        flow: Flow<S>,
        /// True if the peer has accepted the flow.
        answered: bool,
    },
}

impl<S> FlowPhase<S> {
    /// Returns whether the flow is bridged, and its peer has not answered yet.
    pub fn is_unanswered(&self) -> bool {
        let Self::Bridged { answered, .. } = self else {
            return false;
        };
        !answered
    }
}

/// Creation, phases and end.
impl<S: Socket> FlowEntry<S> {
    /// Client: creates a flow that waits for a connection.
    pub fn waiting(id: FlowId, socket: S, request: FlowRequest, now: Instant) -> Self {
        Self {
            token: request.token,
            client_app: request.client_app,
            source: request.source,
            ..Self::new(id, Placement::Waiting, FlowPhase::Waiting(socket), now)
        }
    }

    /// Server: makes a flow for a stream whose request is to be read.
    pub fn reading(id: FlowId, stream_key: StreamKey, now: Instant) -> Self {
        let placement = Placement::On(Attachment::new(stream_key));
        Self::new(id, placement, FlowPhase::Reading(Inlet::new()), now)
    }

    /// Server: makes a flow for an application that connected to the listener named by `token`. Call
    /// [`FlowEntry::request`] next.
    pub fn incoming(
        id: FlowId,
        stream_key: StreamKey,
        socket: S,
        (token, server_app): (String, String),
        now: Instant,
    ) -> Self {
        let phase = FlowPhase::Bridged {
            flow: Flow::new(socket, Inlet::new()),
            answered: false,
        };
        Self {
            token,
            server_app,
            incoming: true,
            ..Self::new(id, Placement::On(Attachment::new(stream_key)), phase, now)
        }
    }

    fn new(id: FlowId, placement: Placement, phase: FlowPhase<S>, now: Instant) -> Self {
        Self {
            id,
            placement,
            phase,
            token: String::new(),
            client_app: String::new(),
            server_app: String::new(),
            source: None,
            opened: now,
            established: false,
            incoming: false,
            shaped: false,
            backlog: Backlog::new(now),
            pinned: PinnedByFlow::default(),
            outbound: MessageDetector::default(),
            inbound: MessageDetector::default(),
            seen: 0,
            end_reported: false,
            end_wait: None,
            reopened: 0,
            bonded: None,
        }
    }

    /// Returns the id of the flow.
    pub fn id(&self) -> FlowId {
        self.id
    }

    /// Returns the time since the flow was opened.
    pub fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.opened)
    }

    /// Returns the token or target of the flow.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Client: returns the application's address, if the server is to learn it.
    pub fn source(&self) -> Option<SocketAddr> {
        self.source
    }

    /// Returns the application's address on the server, if known.
    pub fn server_app(&self) -> &str {
        &self.server_app
    }

    /// Returns the connection and stream that carry the flow now.
    pub fn stream_key(&self) -> Option<StreamKey> {
        self.placement.attachment().map(|attachment| attachment.key)
    }

    /// Returns whether `connection` carries the flow.
    pub fn is_on(&self, connection: ConnectionKey) -> bool {
        self.stream_key()
            .is_some_and(|stream_key| stream_key.connection == connection)
    }

    /// Server: notes that the request has been read. Data behind the request waits in `inlet`.
    pub fn begin_dialing(&mut self, token: &str, inlet: Inlet) {
        token.clone_into(&mut self.token);
        self.phase = FlowPhase::Dialing(inlet);
    }

    /// Client: notes that the server opened this flow for `peer`, an application that connected to a listener. Data
    /// behind the request waits in `inlet`.
    pub fn begin_incoming(&mut self, peer: String, inlet: Inlet) {
        self.server_app = peer;
        self.incoming = true;
        self.phase = FlowPhase::Dialing(inlet);
    }

    /// Server: sets the request that is sent before the bytes of an application that connected to a listener. Keeps
    /// these bytes if the flow has a number in a bond.
    pub fn request(&mut self, request: Bytes) {
        let retains = self.bonded.is_some();
        if let Some(flow) = self.flow_mut() {
            flow.send_first(request);
            if retains {
                flow.retain();
            }
        }
    }

    /// Client: sets the target of a flow that the server opened.
    pub fn set_token(&mut self, token: String) {
        self.token = token;
    }

    /// Returns whether the server opened the flow.
    pub fn is_incoming(&self) -> bool {
        self.incoming
    }

    /// Bridges the flow to the dialled `socket`. `acceptance` is sent before the application's bytes.
    pub fn accept(&mut self, socket: S, app: String, acceptance: Bytes) {
        if self.incoming {
            self.client_app = app;
        } else {
            self.server_app = app;
        }
        let inlet = match std::mem::replace(&mut self.phase, FlowPhase::Reading(Inlet::new())) {
            FlowPhase::Dialing(inlet) => inlet,
            _ => Inlet::new(),
        };
        let is_spice = inlet.header(SPICE_MAGIC.len()) == SPICE_MAGIC;
        let mut flow = Flow::new(socket, inlet);
        flow.send_first(acceptance);
        if is_spice {
            flow.keep_heads();
        }
        self.phase = FlowPhase::Bridged {
            flow,
            answered: true,
        };
        self.established = true;
    }

    /// Client: bridges the flow to a new stream. `request` is sent before the application's bytes. With `raw`, no
    /// answer is expected. Returns false if the flow did not wait for a stream.
    pub fn open_on(&mut self, stream_key: StreamKey, request: Bytes, raw: bool) -> bool {
        let phase = std::mem::replace(&mut self.phase, FlowPhase::Reading(Inlet::new()));
        let FlowPhase::Waiting(socket) = phase else {
            return false;
        };
        self.placement = Placement::On(Attachment::new(stream_key));
        let mut flow = Flow::new(socket, Inlet::new());
        flow.send_first(request);
        // A raw flow has no answer to wait for, so it is established from the start.
        if !raw {
            flow.keep_heads();
        }
        self.established = raw;
        self.phase = FlowPhase::Bridged {
            flow,
            answered: raw,
        };
        true
    }

    /// Notes that the peer has accepted the flow.
    pub fn handle_accepted(&mut self) {
        if let FlowPhase::Bridged { answered, .. } = &mut self.phase {
            *answered = true;
        }
        self.established = true;
    }

    /// Server: returns whether the flow has a number in a bond, and waits for the answer of the client that is to dial
    /// its target.
    pub fn awaits_bonded_answer(&self) -> bool {
        let unanswered = self.phase.is_unanswered();
        let bonded = self.bonded.is_some_and(|bonded| bonded.bond.is_some());
        self.incoming && unanswered && bonded
    }

    /// Server: notes that the client has left the flow's stream, which it does with accepted flows only. Drops the
    /// part of the answer that has arrived.
    pub fn handle_left_unread(&mut self) {
        if let Some(flow) = self.flow_mut() {
            let part = flow.arrived().ready();
            flow.inlet().skip_header(part);
        }
        self.handle_accepted();
    }

    /// Returns whether both sides have agreed on the flow.
    pub fn is_established(&self) -> bool {
        self.established
    }

    /// Returns how the flow ended, or `None` while it lives.
    pub fn ending(&self) -> Option<Ending> {
        self.flow().and_then(Flow::ending)
    }

    /// Summarises the flow's life for one log line. `leg` is `None` if the flow never had a connection.
    pub fn into_summary(self, now: Instant, ending: Ending, leg: Option<Leg>) -> FlowSummary {
        FlowSummary {
            flow: self.id,
            connection: leg.map(|leg| leg.connection),
            stream_id: leg.map(|leg| leg.stream_id),
            remote: leg.map(|leg| leg.remote),
            ending,
            established: self.established,
            incoming: self.incoming,
            bytes_to_tunnel: self.flow().map_or(0, Flow::bytes_to_tunnel),
            bytes_to_app: self.flow().map_or(0, Flow::bytes_to_app),
            elapsed: self.age(now),
            token: self.token,
            client_app: self.client_app,
            server_app: self.server_app,
        }
    }

    /// Reports the flow's state. `leg` says where the flow is, or was last, carried.
    pub fn report(&self, leg: Leg) -> FlowReport {
        let flow = self.flow();
        let heads = flow.and_then(Flow::heads);
        FlowReport {
            id: self.id,
            connection: leg.connection,
            stream_id: leg.stream_id,
            remote: leg.remote,
            token: self.token.clone(),
            client_app: self.client_app.clone(),
            server_app: self.server_app.clone(),
            opened: self.opened,
            bytes_to_tunnel: flow.map_or(0, Flow::bytes_to_tunnel),
            bytes_to_app: flow.map_or(0, Flow::bytes_to_app),
            established: self.established,
            incoming: self.incoming,
            detached_since: self.detached_since(),
            head_from_app: heads.map_or_else(Vec::new, |heads| heads.from_app.clone()),
            head_to_app: heads.map_or_else(Vec::new, |heads| heads.to_app.clone()),
        }
    }
}

/// Data transfer and memory.
impl<S: Socket> FlowEntry<S> {
    /// Returns the bridged flow, if the phase is [`FlowPhase::Bridged`].
    pub fn flow(&self) -> Option<&Flow<S>> {
        match &self.phase {
            FlowPhase::Bridged { flow, .. } => Some(flow),
            FlowPhase::Waiting(_) | FlowPhase::Reading(_) | FlowPhase::Dialing(_) => None,
        }
    }

    /// Returns the bridged flow for changes, if the phase is [`FlowPhase::Bridged`].
    pub fn flow_mut(&mut self) -> Option<&mut Flow<S>> {
        match &mut self.phase {
            FlowPhase::Bridged { flow, .. } => Some(flow),
            FlowPhase::Waiting(_) | FlowPhase::Reading(_) | FlowPhase::Dialing(_) => None,
        }
    }

    /// Returns the application's socket, if there is one.
    pub fn socket(&self) -> Option<&S> {
        match &self.phase {
            FlowPhase::Waiting(socket) => Some(socket),
            FlowPhase::Bridged { flow, .. } => Some(flow.socket()),
            FlowPhase::Reading(_) | FlowPhase::Dialing(_) => None,
        }
    }

    /// Returns the application's socket, if there is one, for the datagrams that do not pass the stream.
    pub fn socket_mut(&mut self) -> Option<&mut S> {
        match &mut self.phase {
            FlowPhase::Waiting(socket) => Some(socket),
            FlowPhase::Bridged { flow, .. } => Some(flow.socket_mut()),
            FlowPhase::Reading(_) | FlowPhase::Dialing(_) => None,
        }
    }

    /// Returns the inlet where the stream's bytes arrive, if there is a stream.
    pub fn inlet_mut(&mut self) -> Option<&mut Inlet> {
        if let Placement::Moving(_, inlet) = &mut self.placement {
            return Some(inlet);
        }
        match &mut self.phase {
            FlowPhase::Reading(inlet) | FlowPhase::Dialing(inlet) => Some(inlet),
            FlowPhase::Bridged { flow, .. } => Some(flow.inlet()),
            FlowPhase::Waiting(_) => None,
        }
    }

    fn inlet(&self) -> Option<&Inlet> {
        match &self.phase {
            FlowPhase::Reading(inlet) | FlowPhase::Dialing(inlet) => Some(inlet),
            FlowPhase::Bridged { flow, .. } => Some(flow.arrived()),
            FlowPhase::Waiting(_) => None,
        }
    }

    /// Returns the number of application bytes that may still be sent before the server has answered.
    pub fn early_left(&self, compat: bool) -> usize {
        let FlowPhase::Bridged {
            flow,
            answered: false,
        } = &self.phase
        else {
            return usize::MAX;
        };
        let most = if compat { EARLY_COMPAT_MAX } else { EARLY_MAX };
        most.saturating_sub(usize::try_from(flow.bytes_to_tunnel()).unwrap_or(usize::MAX))
    }

    /// Enters the connection's queue of flows with data to send. Returns whether the flow was not queued yet.
    pub fn enqueue(&mut self) -> bool {
        let attachment = self.placement.attachment_mut();
        attachment.is_some_and(|attachment| !std::mem::replace(&mut attachment.queued, true))
    }

    /// Leaves the queue of flows with data to send.
    pub fn dequeue(&mut self) {
        if let Some(attachment) = self.placement.attachment_mut() {
            attachment.queued = false;
        }
    }

    /// Notes that the flow got credit for `bytes`, and whether it is still blocked. `next` is the position behind all
    /// waiting flows. A flow that got no credit keeps its position.
    pub fn note_credit(&mut self, bytes: usize, blocked: bool, next: u64) {
        let Some(attachment) = self.placement.attachment_mut() else {
            return;
        };
        if bytes > 0 || !blocked {
            attachment.blocked = None;
        }
        if blocked {
            attachment.blocked.get_or_insert(next);
        }
    }

    /// Returns the flow's position among flows that wait for credit of their connection.
    pub fn blocked(&self) -> Option<u64> {
        self.placement.attachment()?.blocked
    }

    /// Enters a queue of flows that wait for their client's rate. Returns whether the flow was not
    /// queued yet.
    pub fn wait_for_rate(&mut self) -> bool {
        !std::mem::replace(&mut self.shaped, true)
    }

    /// Leaves the queue of flows that wait for the rate. Returns whether the flow was in it.
    pub fn leave_rate(&mut self) -> bool {
        std::mem::take(&mut self.shaped)
    }

    /// Sets whether the peer asked for a pause: HOLD (`true`) or GO (`false`).
    pub fn set_paused_by_peer(&mut self, paused_by_peer: bool) {
        if let Some(attachment) = self.placement.attachment_mut() {
            attachment.paused_by_peer = paused_by_peer;
        }
    }

    /// Returns whether the peer asked for a pause (HOLD).
    pub fn is_paused_by_peer(&self) -> bool {
        self.placement
            .attachment()
            .is_some_and(|attachment| attachment.paused_by_peer)
    }

    /// Returns the memory of the data that the flow has received, in bytes.
    pub fn held(&self) -> usize {
        let moving = self.placement.moving().map_or(0, Inlet::held);
        moving + self.inlet().map_or(0, Inlet::held)
    }

    /// Returns the state of the flow's receiving part.
    pub fn received(&self) -> ReceiveState {
        // A target that is still being dialled does not read either.
        let dialing = matches!(self.phase, FlowPhase::Dialing(_));
        let held = self.held();
        let sum = |of: fn(&Inlet) -> u64| {
            let inlets = [self.inlet(), self.placement.moving()];
            inlets.into_iter().flatten().map(of).sum::<u64>()
        };
        let buffered = sum(|inlet| inlet.buffered() as u64);
        ReceiveState {
            held,
            overhead: held.saturating_sub(usize::try_from(buffered).unwrap_or(usize::MAX)),
            taken: sum(Inlet::taken),
            parked: dialing || self.flow().is_some_and(Flow::is_parked),
            shaped: self.flow().is_some_and(Flow::is_shaped),
            delivered: self.flow().map_or(0, Flow::bytes_to_app),
        }
    }
}
