//! A flow as the engine keeps it: from the first wish to the last byte.

use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::backlog::{Backlog, Stand};
use crate::bonded::{Bonded, Detached};
use crate::close::Ending;
use crate::flow::Flow;
use crate::ids::{ConnectionKey, FlowId};
use crate::inlet::Inlet;
use crate::pinned::Kept;
use crate::report::{FlowReport, FlowSummary};
use crate::salvage::{Carried, IDLE_MAX, Salvage};
use crate::socket::Socket;
use crate::tally::Tally;

/// Application bytes sent before the server has answered. They wait in its receive window, which all
/// flows share, for as long as the dial takes: a few targets that never answer must not fill it.
const EARLY_MAX: usize = 64 * 1024;

/// The same limit towards a server of the original protocol, whose windows are smaller.
const EARLY_COMPAT_MAX: usize = 8 * 1024;

/// Times that a flow begins again elsewhere. Behind more dead targets than this it waits for its turn:
/// each time costs a connection.
const REOPENS_MAX: u8 = 3;

/// Time between two looks at a socket that has not sent everything: no event tells when it has. Local
/// applications have it at once.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
const LOOK_AGAIN_MAX: Duration = Duration::from_secs(2);

/// First four bytes of a SPICE link message: such flows are classified, others are not looked at.
const SPICE_MAGIC: &[u8] = b"REDQ";

/// One flow, on a stream that is named by a `T`.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent marks: what was told, and where it stands in queues"
)]
pub struct FlowEntry<S, T> {
    id: FlowId,
    lane: Option<Lane<T>>,
    /// Where it stands.
    pub phase: Phase<S>,
    token: String,
    client_app: String,
    server_app: String,
    opened: Instant,
    established: bool,
    /// It was opened by the server, for what has connected to a listener (PROTOCOL section 5.9).
    incoming: bool,
    /// It stands in its connection's queue of flows with something to send.
    queued: bool,
    /// Its place among flows that wait for credit of their connection, until it gets some.
    blocked: Option<u64>,
    /// It stands in its connection's queue of flows that wait for their client's rate.
    shaped: bool,
    /// Received data that the flow holds, as it was counted last.
    pub backlog: Backlog,
    /// Batches that slices of what it holds keep in memory, as counted in its engine.
    pub pinned: Kept,
    /// What moves from its application.
    pub outbound: Tally,
    /// What moves to its application.
    pub inbound: Tally,
    /// The first number of it that the peer has not confirmed (PROTOCOL CONTROL-5).
    seen: u64,
    end_told: bool,
    /// The peer's application does not read: nothing is sent for now.
    resting: bool,
    /// The connection is gone, and what has arrived is still being delivered.
    salvage: Option<Salvage>,
    /// Until when its socket must have sent what is left to it.
    part_by: Option<Instant>,
    /// How often it was taken off a connection on which nothing answered it.
    reopened: u8,
    /// It can move to another connection of its bond.
    pub bonded: Option<Bonded>,
    /// It waits for another connection.
    detached: Option<Box<Detached>>,
    /// Client: where the answer to MOVE arrives, with what follows it.
    moving: Option<Box<Inlet>>,
}

/// Where a flow is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane<T> {
    /// The connection.
    pub connection: ConnectionKey,
    /// The stream.
    pub stream: T,
}

/// Where a flow stands.
#[derive(Debug)]
pub enum Phase<S> {
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

/// Life.
impl<S: Socket, T: Copy> FlowEntry<S, T> {
    /// Client: a flow that waits for a connection.
    pub fn waiting(id: FlowId, socket: S, token: String, client_app: String, now: Instant) -> Self {
        Self {
            token,
            client_app,
            ..Self::new(id, None, Phase::Waiting(socket), now)
        }
    }

    /// Server: a stream whose request is to be read.
    pub fn reading(id: FlowId, lane: Lane<T>, now: Instant) -> Self {
        Self::new(id, Some(lane), Phase::Reading(Inlet::new()), now)
    }

    /// Server: what has connected to the listener named by `token`; `request` is said before its bytes.
    pub fn incoming(
        id: FlowId,
        (lane, request): (Lane<T>, Bytes),
        socket: S,
        (token, server_app): (String, String),
        now: Instant,
    ) -> Self {
        let mut flow = Flow::new(socket, Inlet::new());
        flow.send_first(request);
        let phase = Phase::Bridged {
            flow,
            answered: false,
        };
        Self {
            token,
            server_app,
            incoming: true,
            ..Self::new(id, Some(lane), phase, now)
        }
    }

    fn new(id: FlowId, lane: Option<Lane<T>>, phase: Phase<S>, now: Instant) -> Self {
        Self {
            id,
            lane,
            phase,
            token: String::new(),
            client_app: String::new(),
            server_app: String::new(),
            opened: now,
            established: false,
            incoming: false,
            queued: false,
            blocked: None,
            shaped: false,
            backlog: Backlog::new(now),
            pinned: Kept::default(),
            outbound: Tally::default(),
            inbound: Tally::default(),
            seen: 0,
            end_told: false,
            resting: false,
            salvage: None,
            part_by: None,
            reopened: 0,
            bonded: None,
            detached: None,
            moving: None,
        }
    }

    /// The flow's id.
    pub fn id(&self) -> FlowId {
        self.id
    }

    /// How long ago it was opened.
    pub fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.opened)
    }

    /// Token or target.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The application's address on the server, where known.
    pub fn server_app(&self) -> &str {
        &self.server_app
    }

    /// Where it is carried.
    pub fn lane(&self) -> Option<Lane<T>> {
        self.lane
    }

    /// Whether it is carried on a connection.
    pub fn is_on(&self, connection: ConnectionKey) -> bool {
        self.lane.is_some_and(|lane| lane.connection == connection)
    }

    /// Server: the request was read; what has arrived behind it waits in `inlet`.
    pub fn begin_dialing(&mut self, token: &str, inlet: Inlet) {
        token.clone_into(&mut self.token);
        self.phase = Phase::Dialing(inlet);
    }

    /// Client: a server has opened it for `peer`, who has connected there. What has arrived behind that waits in `inlet`.
    pub fn begin_incoming(&mut self, peer: String, inlet: Inlet) {
        self.server_app = peer;
        self.incoming = true;
        self.phase = Phase::Dialing(inlet);
    }

    /// Client: the target of a flow that the server has opened.
    pub fn set_token(&mut self, token: String) {
        self.token = token;
    }

    /// Whether the server has opened it.
    pub fn is_incoming(&self) -> bool {
        self.incoming
    }

    /// The target is connected; `acceptance` is said before its bytes.
    pub fn accept(&mut self, socket: S, app: String, acceptance: Bytes) {
        if self.incoming {
            self.client_app = app;
        } else {
            self.server_app = app;
        }
        let inlet = match std::mem::replace(&mut self.phase, Phase::Reading(Inlet::new())) {
            Phase::Dialing(inlet) => inlet,
            _ => Inlet::new(),
        };
        let is_spice = inlet.header(SPICE_MAGIC.len()) == SPICE_MAGIC;
        let mut flow = Flow::new(socket, inlet);
        flow.send_first(acceptance);
        if is_spice {
            flow.keep_heads();
        }
        self.phase = Phase::Bridged {
            flow,
            answered: true,
        };
        self.established = true;
    }

    /// Client: a stream is open; `request` is said before the application's bytes, and answered unless `raw`. `false`: it
    /// did not wait for a stream.
    pub fn open_on(&mut self, lane: Lane<T>, request: Bytes, raw: bool) -> bool {
        let phase = std::mem::replace(&mut self.phase, Phase::Reading(Inlet::new()));
        let Phase::Waiting(socket) = phase else {
            return false;
        };
        self.lane = Some(lane);
        let mut flow = Flow::new(socket, Inlet::new());
        flow.send_first(request);
        // Without an answer to wait for it is agreed on from the start.
        if !raw {
            flow.keep_heads();
        }
        self.established = raw;
        self.phase = Phase::Bridged {
            flow,
            answered: raw,
        };
        true
    }

    /// The other side has accepted.
    pub fn handle_accepted(&mut self) {
        if let Phase::Bridged { answered, .. } = &mut self.phase {
            *answered = true;
        }
        self.established = true;
    }

    /// Whether both sides have agreed on it.
    pub fn is_established(&self) -> bool {
        self.established
    }

    /// Whether it may begin again on another connection: the server has not answered, and no byte of
    /// the application's has been sent that another request would send again (PROTOCOL CLOSE-10).
    pub fn may_reopen(&self) -> bool {
        let Phase::Bridged {
            flow,
            answered: false,
        } = &self.phase
        else {
            return false;
        };
        self.reopened < REOPENS_MAX && flow.is_untouched()
    }

    /// Takes it off its connection, to wait for another.
    pub fn reopen(&mut self) -> Option<Lane<T>> {
        let lane = self.leave()?;
        self.reopened += 1;
        let phase = std::mem::replace(&mut self.phase, Phase::Reading(Inlet::new()));
        if let Phase::Bridged { flow, .. } = phase {
            self.phase = Phase::Waiting(flow.into_socket());
        }
        Some(lane)
    }

    /// Whether it was taken off a connection before.
    pub fn is_reopened(&self) -> bool {
        self.reopened > 0
    }

    /// Goes on without its connection.
    pub fn begin_salvage(&mut self, now: Instant, carried: Carried) {
        let delivered = self.flow().map_or(0, Flow::bytes_to_app);
        self.salvage = Some(Salvage::new(now, carried, delivered));
        self.leave();
    }

    /// Takes the flow off its connection: its places in queues are void.
    fn leave(&mut self) -> Option<Lane<T>> {
        self.queued = false;
        self.blocked = None;
        self.shaped = false;
        self.lane.take()
    }

    /// The flow's time without its connection, if it has lost that.
    pub fn salvage(&self) -> Option<&Salvage> {
        self.salvage.as_ref()
    }

    /// A flow that goes on without its connection.
    pub fn salvaged(&mut self) -> Option<(&mut Flow<S>, &mut Salvage)> {
        match (&mut self.phase, &mut self.salvage) {
            (Phase::Bridged { flow, .. }, Some(salvage)) => Some((flow, salvage)),
            _ => None,
        }
    }

    /// When to look again at a flow that only waits for its socket.
    pub fn look_at(&mut self, now: Instant) -> Option<Instant> {
        if !self.flow()?.is_parting() {
            return None;
        }
        let by = *self.part_by.get_or_insert(now + IDLE_MAX);
        // Thousands of flows may wait for applications that do not read, so the interval grows with the wait.
        let waited = IDLE_MAX.saturating_sub(by.saturating_duration_since(now));
        Some(by.min(now + (waited / 4).clamp(LOOK_AGAIN, LOOK_AGAIN_MAX)))
    }

    /// Looks whether its socket has sent everything by now, or is too late.
    pub fn poll_parting(&mut self, now: Instant) {
        let late = self.part_by.is_some_and(|by| by <= now);
        if let Some(flow) = self.flow_mut() {
            flow.poll_parting(late);
        }
    }

    /// How it ended, once it has.
    pub fn ending(&self) -> Option<Ending> {
        self.flow().and_then(Flow::ending)
    }

    /// The flow's life in one line of a log; `carried` unless it never had a connection.
    pub fn into_summary(
        self,
        now: Instant,
        ending: Ending,
        carried: Option<Carried>,
    ) -> FlowSummary {
        FlowSummary {
            flow: self.id,
            connection: carried.map(|carried| carried.connection),
            stream_id: carried.map(|carried| carried.stream_id),
            remote: carried.map(|carried| carried.remote),
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

    /// How it stands.
    pub fn report(&self, carried: Carried) -> FlowReport {
        let flow = self.flow();
        let heads = flow.and_then(Flow::heads);
        FlowReport {
            id: self.id,
            connection: carried.connection,
            stream_id: carried.stream_id,
            remote: carried.remote,
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

/// Moves (PROTOCOL section 5.8).
impl<S: Socket, T: Copy> FlowEntry<S, T> {
    /// Whether it can continue on another connection.
    pub fn can_move(&self) -> bool {
        let answered = matches!(self.phase, Phase::Bridged { answered: true, .. });
        answered && self.bonded.is_some() && self.flow().is_some_and(Flow::can_move)
    }

    /// Whether it stays although both its directions have ended: the peer may still ask for what it has sent, or the stream
    /// that it has moved to has still to be ended.
    pub fn lingers(&self) -> bool {
        self.owes_stream() || self.can_move() && self.unseen_end().is_some()
    }

    /// Whether its stream has not ended, although the flow may have.
    pub fn owes_stream(&self) -> bool {
        self.lane.is_some() && self.flow().is_some_and(Flow::owes_stream)
    }

    /// Whether the flow has everything of the peer's, and the peer everything of its own.
    pub fn needs_no_peer(&self) -> bool {
        let flow = self.flow();
        let all_sent = flow.is_some_and(|flow| flow.end_sent().is_some());
        let whole = flow.is_some_and(|flow| flow.arrived().is_whole());
        all_sent && whole && self.unseen_end().is_none()
    }

    /// Goes on without a connection until `until`. Call [`Flow::detach`] before.
    pub fn detach(&mut self, carried: Carried, until: Instant) {
        if self.detached.is_none() {
            self.detached = Some(Box::new(Detached::new(carried, until)));
        }
        self.moving = None;
        self.leave();
    }

    /// The time without a connection, if there is none now.
    pub fn detached(&self) -> Option<&Detached> {
        self.detached.as_deref()
    }

    /// Time since which nothing moves, if it has no connection now.
    pub fn detached_since(&self) -> Option<Instant> {
        self.detached()?;
        self.bonded?.stalled()
    }

    /// A flow without a connection, to move bytes that are here.
    pub fn detached_mut(&mut self) -> Option<(&mut Flow<S>, &mut Detached)> {
        match (&mut self.phase, &mut self.detached) {
            (Phase::Bridged { flow, .. }, Some(detached)) => Some((flow, detached)),
            _ => None,
        }
    }

    /// Goes on on `lane`. Returns the time without a connection.
    pub fn attach(&mut self, now: Instant, lane: Lane<T>) -> Option<Box<Detached>> {
        self.lane = Some(lane);
        self.resting = false;
        self.backlog.begin_lane(now);
        self.detached.take()
    }

    /// Client: waits for the answer to MOVE on its stream.
    pub fn begin_moving(&mut self) {
        self.moving = Some(Box::default());
    }

    /// Client: whether the answer to MOVE has not come yet.
    pub fn is_moving(&self) -> bool {
        self.moving.is_some()
    }

    /// Client: the answer has come, or will not.
    pub fn end_moving(&mut self) -> Option<Inlet> {
        self.moving.take().map(|inlet| *inlet)
    }

    /// Gives its time for a move up, and goes on as one that has lost its connection for good.
    pub fn abandon_move(&mut self, now: Instant) -> Option<Box<Detached>> {
        let detached = self.detached.take()?;
        self.bonded = None;
        self.begin_salvage(now, detached.carried());
        Some(detached)
    }
}

/// Bytes.
impl<S: Socket, T: Copy> FlowEntry<S, T> {
    /// The bridge, where there is one.
    pub fn flow(&self) -> Option<&Flow<S>> {
        match &self.phase {
            Phase::Bridged { flow, .. } => Some(flow),
            Phase::Waiting(_) | Phase::Reading(_) | Phase::Dialing(_) => None,
        }
    }

    /// The bridge, to move bytes.
    pub fn flow_mut(&mut self) -> Option<&mut Flow<S>> {
        match &mut self.phase {
            Phase::Bridged { flow, .. } => Some(flow),
            Phase::Waiting(_) | Phase::Reading(_) | Phase::Dialing(_) => None,
        }
    }

    /// The application's socket.
    pub fn socket(&self) -> Option<&S> {
        match &self.phase {
            Phase::Waiting(socket) => Some(socket),
            Phase::Bridged { flow, .. } => Some(flow.socket()),
            Phase::Reading(_) | Phase::Dialing(_) => None,
        }
    }

    /// Where the stream's bytes arrive.
    pub fn inlet_mut(&mut self) -> Option<&mut Inlet> {
        if let Some(moving) = &mut self.moving {
            return Some(moving);
        }
        match &mut self.phase {
            Phase::Reading(inlet) | Phase::Dialing(inlet) => Some(inlet),
            Phase::Bridged { flow, .. } => Some(flow.inlet()),
            Phase::Waiting(_) => None,
        }
    }

    fn inlet(&self) -> Option<&Inlet> {
        match &self.phase {
            Phase::Reading(inlet) | Phase::Dialing(inlet) => Some(inlet),
            Phase::Bridged { flow, .. } => Some(flow.arrived()),
            Phase::Waiting(_) => None,
        }
    }

    /// How many bytes of the application may still go before the server has answered.
    pub fn early_left(&self, compat: bool) -> usize {
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

    /// Enters its connection's queue of flows with something to send. Returns whether it was not there yet.
    pub fn enqueue(&mut self) -> bool {
        !std::mem::replace(&mut self.queued, true)
    }

    /// Leaves that queue.
    pub fn dequeue(&mut self) {
        self.queued = false;
    }

    /// It got credit for so many bytes, and waits for more, or not. `next` is the place behind all that wait: who got
    /// nothing keeps its own.
    pub fn note_credit(&mut self, bytes: usize, blocked: bool, next: u64) {
        if bytes > 0 || !blocked {
            self.blocked = None;
        }
        if blocked {
            self.blocked.get_or_insert(next);
        }
    }

    /// Its place among flows that wait for credit of their connection.
    pub fn blocked(&self) -> Option<u64> {
        self.blocked
    }

    /// Enters its connection's queue of flows that wait for their client's rate. Returns whether it was not there yet.
    pub fn wait_for_rate(&mut self) -> bool {
        !std::mem::replace(&mut self.shaped, true)
    }

    /// Leaves that queue. Returns whether it was there.
    pub fn leave_rate(&mut self) -> bool {
        std::mem::take(&mut self.shaped)
    }

    /// Whether it stands there.
    pub fn waits_for_rate(&self) -> bool {
        self.shaped
    }

    /// The peer wants nothing to be sent for now, or wants more.
    pub fn set_resting(&mut self, resting: bool) {
        self.resting = resting;
    }

    /// Whether the peer wants nothing to be sent for now.
    pub fn is_resting(&self) -> bool {
        self.resting
    }

    /// Memory of what it has received, bytes.
    pub fn held(&self) -> usize {
        let moving = self.moving.as_deref().map_or(0, Inlet::held);
        moving + self.inlet().map_or(0, Inlet::held)
    }

    /// How its receiving part stands.
    pub fn stand(&self) -> Stand {
        // A target that is being dialled reads nothing either.
        let dialing = matches!(self.phase, Phase::Dialing(_));
        let held = self.held();
        let sum = |of: fn(&Inlet) -> u64| {
            let inlets = [self.inlet(), self.moving.as_deref()];
            inlets.into_iter().flatten().map(of).sum::<u64>()
        };
        let buffered = sum(|inlet| inlet.buffered() as u64);
        Stand {
            held,
            overhead: held.saturating_sub(usize::try_from(buffered).unwrap_or(usize::MAX)),
            taken: sum(Inlet::taken),
            parked: dialing || self.flow().is_some_and(Flow::is_parked),
            shaped: self.flow().is_some_and(Flow::is_shaped),
            delivered: self.flow().map_or(0, Flow::bytes_to_app),
        }
    }
}

/// Confirmation of what has arrived (PROTOCOL CONTROL-5).
impl<S: Socket, T: Copy> FlowEntry<S, T> {
    /// The number to tell the peer once everything has been taken off the stream; it is told once.
    pub fn take_end(&mut self) -> Option<u64> {
        let end = self.flow()?.arrived().end()?;
        (!std::mem::replace(&mut self.end_told, true)).then_some(end)
    }

    /// Whether the peer was told that everything has arrived.
    pub fn is_end_told(&self) -> bool {
        self.end_told
    }

    /// The peer has everything before the number `next`.
    pub fn note_seen(&mut self, next: u64) {
        self.seen = self.seen.max(next);
    }

    /// The number that the peer has still to confirm, once everything was sent.
    pub fn unseen_end(&self) -> Option<u64> {
        self.flow()?.end_sent().filter(|&next| self.seen < next)
    }
}
