//! The server's part: it decides which clients are admitted.

use std::collections::VecDeque;
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quictun_flow::{ConnectionId, ConnectionKey, FlowKey, Socket};
use quictun_wire::code::CloseCode;

use crate::bonds::Holder;
use crate::carrier::quic::{Newcomer, ServerSettings};
use crate::carrier::tls::TlsServer;
use crate::config::ServerRole;
use crate::event::{EngineEvent, ServerEvent};
use crate::grants::{FirstGrants, InitialGrants};
use crate::handshake_queue::HandshakeQueue;
use crate::loss::LossReason;
use crate::places::{PlaceSource, Places, Shortage};
use crate::role::{Moment, Role, RoleSteps};
use crate::strangers::{SourcePrefix, Stranger, Strangers};
use crate::traffic::carrier_sockets::AcceptedTcp;
use crate::traffic::{DatagramRecipient, Traffic, UnreadDatagram};

/// Minimum number of places for one source, so that the connections of one client fit even if there are few places.
const OF_ONE_MIN: usize = 8;

/// Number of handshakes in progress from which on the server validates the addresses of clients that name this worker.
/// Anyone can name it, while the kernel spreads other packets over all workers. With validation, a flood from spoofed
/// addresses gets no further.
const ROUTED_RETRY_ABOVE: usize = 16;

/// An idle connection that was not heard for this time may give way to another one of its client: the client may have
/// crashed. A client sends keep-alives every 2 s.
const STALE: Duration = Duration::from_secs(5);

/// Connections of strangers over TCP that may be about to end, as a part of the places for strangers.
const LEAVING_PART: usize = 4;

/// Limit for the datagrams that follow the first one of a waiting connection, in bytes. A handshake with ML-KEM begins
/// with two datagrams, and each is sent twice.
const FOLLOWING_MAX: u64 = 8 * 1024;

/// Memory of a waiting step, in bytes: the first packet of a connection with the keys to read it, and the datagrams
/// that follow.
const STEP_COST: u64 = 4 * 1024 + FOLLOWING_MAX;

/// A part of a handshake that takes long.
#[derive(Debug)]
enum HandshakeStep {
    /// The first packet of a connection. If it contains the whole `ClientHello`, the server answers it.
    Begin(Newcomer),
    /// A further packet of the `ClientHello`. The last one makes the server answer.
    Continue(UnreadDatagram),
    /// The whole `ClientHello` of a connection over TCP.
    Answer(ConnectionId),
}

/// The role of a server: an engine that accepts clients.
#[derive(Debug)]
pub struct Server {
    role: ServerRole,
    settings: ServerSettings,
    pub(crate) tls: TlsServer,
    /// Handshakes in progress, and connections whose clients have not identified themselves yet.
    strangers: Strangers,
    steps: HandshakeQueue<HandshakeStep>,
    newest_at: Option<Instant>,
    /// True from the beginning of a turn until its step has been made.
    step_due: bool,
    /// The connections that are served in full.
    places: Places,
    /// Connections over TCP that were closed before their clients were admitted, oldest first. Their last bytes may not
    /// have left.
    leaving: VecDeque<Stranger>,
}

impl Server {
    pub(crate) fn new(role: ServerRole) -> Result<Self, LossReason> {
        let steps = HandshakeQueue::new(role.max_handshakes);
        let settings = ServerSettings::new(&role.crypto, FOLLOWING_MAX, steps.most())?;
        Ok(Self {
            tls: TlsServer::new(&role.crypto, role.https_proxy),
            role,
            settings,
            strangers: Strangers::default(),
            steps,
            newest_at: None,
            step_due: false,
            places: Places::default(),
            leaving: VecDeque::new(),
        })
    }

    /// Sets the TLS configuration of handshakes that start from now on.
    pub(crate) fn set_crypto(
        &mut self,
        crypto: &Arc<rustls::ServerConfig>,
    ) -> Result<(), LossReason> {
        self.settings.set_crypto(crypto)?;
        self.tls.replace(crypto);
        self.role.crypto = crypto.clone();
        Ok(())
    }

    pub(crate) fn settings(&self) -> &ServerSettings {
        &self.settings
    }

    /// Returns the number of places for strangers. If the server requires no identity, every completed handshake admits
    /// a stranger, so established connections leave less room, but always some for clients with few connections.
    fn strangers_max(&self) -> usize {
        let room = self.role.max_connections.saturating_sub(self.places.len());
        if self.role.identify {
            self.role.max_handshakes
        } else {
            self.role.max_handshakes.min(room.max(OF_ONE_MIN))
        }
    }

    /// Returns the number of these places that one source may have. Half of them leaves room for others before any
    /// stranger has to yield. Many clients may be behind one address, and each has several connections.
    fn strangers_of_one_max(&self) -> usize {
        if self.role.identify {
            (self.role.max_handshakes / 2).max(OF_ONE_MIN)
        } else {
            usize::MAX
        }
    }

    /// Notes the end of a connection. Over TCP it keeps its socket until its last bytes have left and the client has ended
    /// its side, or for some seconds. Of strangers that do not end it, only a few may do so.
    fn note_leaving<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        key: ConnectionKey,
    ) {
        let Some(connection) = traffic.connections.get_mut(key) else {
            return;
        };
        if connection.is_admitted() || connection.carrier.as_tls().is_none() {
            return;
        }
        self.leaving.push_back((key, connection.id()));
        let most = (self.role.max_handshakes / LEAVING_PART).max(1);
        while self.leaving.len() > most
            && let Some((oldest, id)) = self.leaving.pop_front()
        {
            if traffic.connections.find(id) == Some(oldest) {
                traffic.forget(now, oldest, LossReason::ClosedLocally);
            }
        }
    }

    fn kept(&self) -> u64 {
        self.steps.len() as u64 * STEP_COST
    }

    /// Returns the resource that another connection lacks. Some memory is left for handshakes, so that other clients can
    /// make themselves known.
    fn shortage<S: Socket>(&self, traffic: &Traffic<S>) -> Shortage {
        let handshakes = OF_ONE_MIN as u64 * InitialGrants::for_stranger(0).committed_memory();
        if self.places.len() >= self.role.max_connections {
            Shortage::Places
        } else if traffic.memory.lease.free_for_newcomers() < handshakes {
            Shortage::Memory
        } else {
            Shortage::None
        }
    }

    /// Handles a client that wants to connect: validates its address if there are many, and queues its handshake.
    fn handle_newcomer<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        newcomer: Newcomer,
    ) {
        if self.is_closed_to(traffic, newcomer.remote()) {
            return traffic.refuse(newcomer);
        }
        let begun = self.strangers.len() + self.steps.len();
        let above = self.role.retry_above.min(self.strangers_max());
        let above = if newcomer.is_routed() {
            above.min(ROUTED_RETRY_ABOVE)
        } else {
            above
        };
        let validate = self.role.always_retry || begun >= above;
        if validate && !newcomer.is_validated() {
            return traffic.endpoint.validate(newcomer);
        }
        let source = SourcePrefix::of(newcomer.remote().ip());
        self.queue(now, traffic, source, HandshakeStep::Begin(newcomer));
    }

    /// Handles a further packet of a `ClientHello`: queues it.
    fn handle_unread<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        datagram: UnreadDatagram,
    ) {
        let source = SourcePrefix::of(datagram.remote.ip());
        self.queue(now, traffic, source, HandshakeStep::Continue(datagram));
    }

    fn queue<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        source: SourcePrefix,
        step: HandshakeStep,
    ) {
        self.newest_at = Some(now);
        match self.steps.push(source, step) {
            Some(HandshakeStep::Begin(lost)) => {
                traffic.totals.handshakes_failed += 1;
                traffic.endpoint.ignore(lost);
            }
            // The client sends it again, as if the network had lost it.
            Some(HandshakeStep::Continue(_)) | None => {}
            Some(HandshakeStep::Answer(lost)) => traffic.drop_stranger(now, lost),
        }
        traffic.memory.kept_by_role = self.kept();
    }

    /// Returns whether the server does not take this newcomer for now. If there is no memory for another connection,
    /// those that are served continue, and strangers yield. If there is no place for one, it depends on the client, which
    /// the server knows only by its address before the handshake, if at all.
    fn is_closed_to<S: Socket>(&self, traffic: &Traffic<S>, remote: SocketAddr) -> bool {
        let no_memory = self.strangers.len() == 0 && has_no_memory_for_strangers(traffic);
        if no_memory || traffic.draining {
            return true;
        }
        let source = SourcePrefix::of(remote.ip());
        !self.role.identify
            && self.places.len() >= self.role.max_connections
            && self
                .places
                .next(&Holder::Anonymous(source), Shortage::Places)
                == PlaceSource::Own
    }

    fn accept<S: Socket>(&mut self, now: Instant, traffic: &mut Traffic<S>, newcomer: Newcomer) {
        let remote = newcomer.remote();
        self.begin(now, traffic, remote, false, |server, traffic, first| {
            traffic.accept(now, newcomer, &server.settings, first)
        });
    }

    /// Takes a TCP connection, if there is a place for a stranger.
    pub(crate) fn handle_accepted<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        accepted: AcceptedTcp<S>,
    ) -> Option<ConnectionId> {
        let remote = accepted.remote;
        if self.is_closed_to(traffic, remote) {
            return None;
        }
        // Another worker has found the connection to belong here.
        let is_routed = !accepted.received.is_empty();
        let (key, id) = self.begin(
            now,
            traffic,
            remote,
            !is_routed,
            |server, traffic, first| traffic.accept_over_tcp(now, accepted, &server.tls, first),
        )?;
        if is_routed {
            self.queue_hello(now, traffic, key, is_routed);
        }
        Some(id)
    }

    /// Queues the first message of a client over TCP, if it has arrived. If it names another worker, the caller takes the
    /// connection there, unless it `is_routed`.
    fn queue_hello<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        key: ConnectionKey,
        is_routed: bool,
    ) {
        let Some(connection) = traffic.connections.get_mut(key) else {
            return;
        };
        let (connection, tls) = (connection.id(), connection.carrier.as_tls());
        let Some(tls) = tls.filter(|tls| tls.is_queued()) else {
            return;
        };
        let other = tls
            .worker()
            .filter(|&worker| worker != traffic.bonds.worker);
        if let Some(worker) = other.filter(|_| !is_routed) {
            traffic
                .events
                .push(ServerEvent::Misrouted { connection, worker });
            return;
        }
        let source = SourcePrefix::of(tls.remote().ip());
        self.strangers.note_message(source, (key, connection));
        self.queue(now, traffic, source, HandshakeStep::Answer(connection));
    }

    /// Begins the handshake of a newcomer by `accept`, to which it passes the computation of the initial grants. Another
    /// stranger may have to give way. `is_silent` tells that nothing has arrived on a TCP connection.
    fn begin<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        remote: SocketAddr,
        is_silent: bool,
        accept: impl FnOnce(
            &Self,
            &mut Traffic<S>,
            FirstGrants,
        ) -> Option<(ConnectionKey, ConnectionId)>,
    ) -> Option<(ConnectionKey, ConnectionId)> {
        let flows = traffic.first_flows();
        let source = SourcePrefix::of(remote.ip());
        let mut most = self.strangers_max();
        if has_no_memory_for_strangers(traffic) {
            most = most.min(self.strangers.len());
        }
        let most_of_one = self.strangers_of_one_max();
        let gives_way = self.strangers.make_room(source, most, most_of_one);
        let flows = (!self.role.identify).then_some(flows);
        let begun = accept(self, traffic, FirstGrants { flows });
        if let Some((key, id)) = begun {
            if is_silent {
                self.strangers.insert_silent(source, (key, id));
            } else {
                self.strangers.insert(source, (key, id));
            }
            if let Some(connection) = traffic.connections.get_mut(key) {
                connection.admission.place = Some(source);
            }
        }
        if let Some((key, id)) = gives_way {
            evict_stranger(now, traffic, key, id);
            self.note_ended(now, traffic);
        }
        begun
    }

    fn handle_connected<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        key: ConnectionKey,
    ) {
        let deadline = now + traffic.transport.handshake_timeout;
        let Some(connection) = traffic.connections.get_mut(key) else {
            return;
        };
        if self.role.identify {
            // The client has to identify itself within the time for a handshake.
            connection.admission.deadline = Some(deadline);
        } else if self.take_place(now, traffic, key)
            && let Some(connection) = traffic.connections.get_mut(key)
        {
            connection.admission.admit();
        }
    }

    /// Admits a client and serves it in full from now on, if there is a place for it.
    pub(crate) fn admit<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        id: ConnectionId,
    ) {
        let connections = &mut traffic.connections;
        let Some((key, connection)) = connections.named_mut(id) else {
            return;
        };
        if connection.is_admitted() || connection.is_lost() {
            return;
        }
        if self.take_place(now, traffic, key) {
            traffic.admit(now, key);
        }
    }

    /// Takes a place for a connection, from now on served in full. If there is none for its client, closes the
    /// connection and returns false.
    fn take_place<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        key: ConnectionKey,
    ) -> bool {
        let Some(connection) = traffic.connections.get_mut(key) else {
            return false;
        };
        let id = connection.id();
        let source = SourcePrefix::of(connection.remote().ip());
        let holder = Holder::new(connection.proven_identity(), source);
        let shortage = self.shortage(traffic);
        let gives_way = match self.places.next(&holder, shortage) {
            PlaceSource::Free => None,
            place => {
                let found = least_used(now, traffic, &self.places, &holder, &place);
                if found.is_none() {
                    traffic.close_connection(now, id, CloseCode::TooManyConnections);
                    return false;
                }
                found
            }
        };
        let place = traffic
            .connections
            .get_mut(key)
            .and_then(|connection| connection.admission.place.take());
        if let Some(source) = place {
            self.strangers.remove(source, key);
        }
        self.places.insert(holder, id, key);
        if let Some(other) = gives_way {
            let code = CloseCode::TooManyConnections;
            traffic.close(now, other, code, code.to_string(), LossReason::GaveWay);
            self.note_ended(now, traffic);
        }
        true
    }
}

impl Role for Server {
    type Event = ServerEvent;

    fn event(event: EngineEvent) -> Option<ServerEvent> {
        match event {
            EngineEvent::Shared(event) => Some(ServerEvent::Shared(event)),
            EngineEvent::Server(event) => Some(event),
            EngineEvent::Client(_) => None,
        }
    }
}

impl RoleSteps for Server {
    /// Returns when to make the next step of a handshake. The time is in the past while steps wait.
    fn next_timeout(&self) -> Option<Instant> {
        self.newest_at.filter(|_| self.steps.len() > 0)
    }

    fn handle_datagram<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        recipient: DatagramRecipient,
    ) {
        match recipient {
            DatagramRecipient::Connection(key, _) => {
                self.queue_hello(now, traffic, key, false);
                traffic.connections.mark(key);
            }
            DatagramRecipient::Newcomer(newcomer) => self.handle_newcomer(now, traffic, *newcomer),
            DatagramRecipient::Unfinished(datagram) => self.handle_unread(now, traffic, *datagram),
        }
    }

    fn handle_moment<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        key: ConnectionKey,
        moment: Moment<'_>,
    ) {
        match moment {
            Moment::Connected => self.handle_connected(now, traffic, key),
            Moment::AdmissionLate => traffic.refuse_unproven(now, key),
            Moment::StreamsAvailable => traffic.report_streams_available(key),
            Moment::Silent(_) | Moment::Losing(_) | Moment::Delivered => {}
        }
    }

    fn handle_unanswered<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        key: FlowKey,
    ) {
        traffic.give_up_incoming(now, key);
    }

    /// Frees the places of connections that have ended.
    fn note_ended<S: Socket>(&mut self, now: Instant, traffic: &mut Traffic<S>) {
        while let Some(ended) = traffic.ended.pop_front() {
            self.places.remove(ended.key);
            self.note_leaving(now, traffic, ended.key);
            let place = ended.place;
            let had_place = place.is_some_and(|source| self.strangers.remove(source, ended.key));
            let (remote, reason) = (ended.remote, ended.reason);
            if !ended.established && had_place && reason != LossReason::ClosedLocally {
                traffic
                    .events
                    .push(ServerEvent::HandshakeFailed { remote, reason });
            }
        }
    }

    fn stop<S: Socket>(&mut self, traffic: &mut Traffic<S>) {
        while let Some(step) = self.steps.pop() {
            if let HandshakeStep::Begin(newcomer) = step {
                traffic.refuse(newcomer);
            }
        }
        traffic.memory.kept_by_role = 0;
    }

    /// Begins a turn. A step that the last turn had no time for is made now, because senders of much data may leave no
    /// turn any time.
    fn begin_turn<S: Socket>(&mut self, now: Instant, traffic: &mut Traffic<S>) {
        self.make_step(now, traffic);
        self.step_due = self.steps.len() > 0;
    }

    /// Makes the step of this turn, if one waits and has not been made. Returns whether it was made.
    fn make_step<S: Socket>(&mut self, now: Instant, traffic: &mut Traffic<S>) -> bool {
        if !mem::take(&mut self.step_due) {
            return false;
        }
        let made = match self.steps.pop() {
            Some(HandshakeStep::Begin(newcomer))
                if self.is_closed_to(traffic, newcomer.remote()) =>
            {
                traffic.refuse(newcomer);
                true
            }
            Some(HandshakeStep::Begin(newcomer)) => {
                self.accept(now, traffic, newcomer);
                true
            }
            Some(HandshakeStep::Continue(datagram)) => traffic.read(now, datagram),
            Some(HandshakeStep::Answer(connection)) => traffic.answer_client_hello(now, connection),
            None => false,
        };
        traffic.memory.kept_by_role = self.kept();
        made
    }
}

fn has_no_memory_for_strangers<S: Socket>(traffic: &Traffic<S>) -> bool {
    InitialGrants::for_stranger(0).committed_memory() > traffic.memory.lease.free_for_newcomers()
}

/// Returns the connection that gives way to another one of `holder`: of the client that `place` names, the one with the
/// fewest flows, and of these the oldest. The holder's own connections give way only if the client seems to have left
/// them behind.
fn least_used<S: Socket>(
    now: Instant,
    traffic: &Traffic<S>,
    places: &Places,
    holder: &Holder,
    place: &PlaceSource<'_>,
) -> Option<ConnectionKey> {
    let (of, own) = match place {
        PlaceSource::Free => return None,
        PlaceSource::Of(other) => (*other, false),
        PlaceSource::Own => (holder, true),
    };
    let connections = places.of(of).filter_map(|key| {
        let connection = traffic.connections.get(key)?;
        let heard = now
            .checked_sub(STALE)
            .is_none_or(|since| connection.heard_since(since));
        let stale = connection.is_suspect() || connection.streams.is_empty() && !heard;
        (!own || stale).then_some((!stale, connection.streams.len(), key))
    });
    let least = connections.min_by_key(|&(alive, flows, _)| (alive, flows));
    least.map(|(.., key)| key)
}

fn evict_stranger<S: Socket>(
    now: Instant,
    traffic: &mut Traffic<S>,
    key: ConnectionKey,
    id: ConnectionId,
) {
    let connection = traffic.connections.get_mut(key);
    let Some(connection) = connection.filter(|connection| connection.id() == id) else {
        return;
    };
    connection.admission.place.take();
    if connection.is_established() {
        // The client may be an honest one that is slow. It will try again.
        traffic.close_connection(now, id, CloseCode::TooManyConnections);
    } else {
        // Forget it silently. A client that retransmits its first packet gets a new place, and one that is further in
        // its handshake times out. A CONNECTION_CLOSE would also let a flood return sooner.
        traffic.forget(now, key, LossReason::TimedOut);
    }
}
