//! The engine: inputs, outputs, and the order in which work is done between them.

use std::collections::VecDeque;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use quictun_flow::{ReadBuffer, Socket};
use quictun_wire::alpn;
use quictun_wire::code::{CloseCode, FlowCode};
use quinn_proto::{
    ConnectionHandle, DatagramEvent, EcnCodepoint, Endpoint, EndpointConfig, Event as QuicEvent,
    StreamEvent, VarInt,
};
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use slab::Slab;

use crate::account::Lease;
use crate::cid::{LONG_HEADER, WorkerCids};
use crate::client::Client;
use crate::config::{ClientRole, EngineConfig, ServerRole, Transport};
use crate::connection::Connection;
use crate::deadlines::Deadlines;
use crate::event::{Event, LossReason};
use crate::flow_entry::FlowEntry;
use crate::liveness::Verdict;
use crate::pinned::Pinned;
use crate::report::{ConnectionReport, FlowReport, Protocol, Side, Totals};
use crate::server::Server;
use crate::transmit::Datagrams;
use crate::{ConnectionId, FlowId};

/// Largest UDP payload accepted: anything the interface can bring.
const UDP_PAYLOAD_MAX: u16 = 65_527;

/// Stateless answers (Retry, version negotiation, resets) kept while the socket is busy. More would be
/// a flood, which is not owed answers.
pub(crate) const RESPONSES_MAX: usize = 1024;

/// One worker of the tunnel. See the crate documentation for the order of calls.
pub struct Engine<S> {
    pub(crate) endpoint: Endpoint,
    pub(crate) transport: Transport,
    pub(crate) role: Role,
    /// By connection handle.
    pub(crate) connections: Vec<Option<Box<Connection>>>,
    pub(crate) flows: Slab<FlowEntry<S>>,
    pub(crate) read_buffer: ReadBuffer,
    pub(crate) timers: Deadlines<usize>,
    pub(crate) flow_timers: Deadlines<usize>,
    /// Connections with library events to be taken.
    pub(crate) dirty: Vec<usize>,
    /// Connections that may have something to send, in turn.
    pub(crate) sending: VecDeque<usize>,
    pub(crate) responses: VecDeque<(Datagrams, Vec<u8>)>,
    /// Memory that they take, bytes.
    pub(crate) response_bytes: usize,
    pub(crate) events: VecDeque<Event>,
    pub(crate) totals: Totals,
    pub(crate) lease: Lease,
    pub(crate) pinned: Pinned,
    /// What is kept for sending, as charged.
    pub(crate) kept: u64,
    pub(crate) rng: ChaCha20Rng,
    pub(crate) generation: u64,
    pub(crate) draining: bool,
}

/// What differs between the sides.
pub(crate) enum Role {
    Client(Client),
    Server(Box<Server>),
}

impl<S: Socket> Engine<S> {
    /// A client's engine. It asks for the server's addresses at once.
    pub fn client(config: EngineConfig<ClientRole>, now: Instant) -> Result<Self, LossReason> {
        let client = Client::new(config.role, now)?;
        Ok(Self::new(
            config.transport,
            Role::Client(client),
            config.worker,
            config.seed,
            config.reset_key,
        ))
    }

    /// A server's engine.
    pub fn server(config: EngineConfig<ServerRole>) -> Result<Self, LossReason> {
        let server = Server::new(config.role)?;
        Ok(Self::new(
            config.transport,
            Role::Server(Box::new(server)),
            config.worker,
            config.seed,
            config.reset_key,
        ))
    }

    fn new(
        transport: Transport,
        role: Role,
        worker: u8,
        seed: [u8; 32],
        reset_key: [u8; 32],
    ) -> Self {
        let reset_key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, &reset_key);
        let mut endpoint_config = EndpointConfig::new(Arc::new(reset_key));
        let mut rng = ChaCha20Rng::from_seed(seed);
        let (mut endpoint_seed, mut cid_seed) = ([0; 32], [0; 32]);
        rand_core::RngCore::fill_bytes(&mut rng, &mut endpoint_seed);
        rand_core::RngCore::fill_bytes(&mut rng, &mut cid_seed);
        endpoint_config
            .cid_generator(WorkerCids::factory(worker, cid_seed))
            .rng_seed(Some(endpoint_seed));
        endpoint_config
            .max_udp_payload_size(UDP_PAYLOAD_MAX)
            .expect("invariant: 65527 is the largest legal value");
        let server_config = match &role {
            Role::Server(server) => Some(server.config()),
            Role::Client(_) => None,
        };
        let lease = Lease::new(transport.account.clone());
        Self {
            pinned: Pinned::new(transport.account.budget()),
            lease,
            kept: 0,
            endpoint: Endpoint::new(Arc::new(endpoint_config), server_config, true, None),
            transport,
            role,
            connections: Vec::new(),
            flows: Slab::new(),
            read_buffer: ReadBuffer::default(),
            timers: Deadlines::new(),
            flow_timers: Deadlines::new(),
            dirty: Vec::new(),
            sending: VecDeque::new(),
            responses: VecDeque::new(),
            response_bytes: 0,
            events: VecDeque::new(),
            totals: Totals::default(),
            rng,
            generation: 0,
            draining: false,
        }
    }

    /// Which end this is.
    pub fn side(&self) -> Side {
        match self.role {
            Role::Client(_) => Side::Client,
            Role::Server(_) => Side::Server,
        }
    }

    /// Takes one UDP datagram; `ecn` is the two ECN bits, where known.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        local_ip: Option<IpAddr>,
        ecn: Option<u8>,
        data: BytesMut,
    ) {
        self.totals.datagrams_received += 1;
        let ecn = ecn.and_then(EcnCodepoint::from_bits);
        let mut response = Vec::new();
        let length = data.len();
        // The library keeps handshake packets for long. A copy releases the receive batch, of up to 64 KiB.
        let data = if data.first().is_some_and(|first| first & LONG_HEADER != 0) {
            BytesMut::from(&data[..])
        } else {
            data
        };
        let event = self
            .endpoint
            .handle(now, remote, local_ip, ecn, data, &mut response);
        match event {
            None => {}
            Some(DatagramEvent::ConnectionEvent(ConnectionHandle(handle), event)) => {
                if let Some(Some(connection)) = self.connections.get_mut(handle) {
                    connection.handle_datagram(event, length);
                    if connection.liveness.handle_heard(now) {
                        self.events.push_back(Event::Responsive {
                            connection: connection.id,
                            remote: connection.remote,
                        });
                        self.place_waiting(now);
                    }
                    self.mark(handle);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.handle_incoming(now, incoming),
            Some(DatagramEvent::Response(transmit)) => self.respond(&transmit, response),
        }
    }

    /// Tells the time, at or after [`Engine::next_timeout`].
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(handle) = self.timers.pop_due(now) {
            if let Some(Some(connection)) = self.connections.get_mut(handle) {
                connection.deadline = None;
                connection.pace_at = connection.pace_at.filter(|&at| at > now);
                if connection.quic.poll_timeout().is_some_and(|at| at <= now) {
                    connection.quic.handle_timeout(now);
                    connection.grace = connection.grace.max(2);
                }
                if connection.handshake_by.is_some_and(|at| at <= now) {
                    connection.handshake_by = None;
                    connection
                        .quic
                        .close(now, close_code(CloseCode::Done), Bytes::new());
                    self.forget(now, handle, LossReason::TimedOut);
                    continue;
                }
                if connection.prove_by.is_some_and(|at| at <= now) {
                    self.handle_unproven(now, handle);
                }
                self.check_liveness(now, handle);
                self.mark(handle);
            }
        }
        while let Some(key) = self.flow_timers.pop_due(now) {
            if let Some(entry) = self.flows.get_mut(key) {
                entry.deadline = None;
                self.expire_flow(now, key);
            }
        }
        if matches!(self.role, Role::Client(_)) {
            self.drive_client(now);
        }
    }

    /// When [`Engine::handle_timeout`] wants to be called next.
    pub fn next_timeout(&self) -> Option<Instant> {
        let role = match &self.role {
            Role::Client(client) => client.next_timeout(),
            Role::Server(server) => server.next_timeout(),
        };
        [self.timers.next(), self.flow_timers.next(), role]
            .into_iter()
            .flatten()
            .min()
    }

    /// The next thing the caller should know or do.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Closes a connection: its flows are reset on both sides.
    pub fn close_connection(&mut self, now: Instant, id: ConnectionId, code: CloseCode) {
        if let Some(handle) = self.handle_of(id)
            && let Some(Some(connection)) = self.connections.get_mut(handle)
        {
            let reason = Bytes::from(code.to_string());
            connection.quic.close(now, close_code(code), reason);
            self.mark(handle);
            self.lose(now, handle, LossReason::ClosedLocally);
        }
    }

    /// Names the peer of a connection in reports.
    pub fn name_peer(&mut self, id: ConnectionId, name: String) {
        if let Some(handle) = self.handle_of(id)
            && let Some(Some(connection)) = self.connections.get_mut(handle)
        {
            connection.peer = Some(name);
        }
    }

    /// The TLS exporter value that proofs of pre-shared secrets are made from (PROTOCOL section 5.5).
    pub fn exporter(&self, id: ConnectionId) -> Option<[u8; 32]> {
        let handle = self.handle_of(id)?;
        let connection = self.connections.get(handle)?.as_ref()?;
        export(&connection.quic)
    }

    /// From now on no new flows; [`Engine::is_drained`] once the open ones are done.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Whether no flow is left and all they sent has been acknowledged, and confirmed by peers that can.
    pub fn is_drained(&mut self) -> bool {
        self.flows.is_empty()
            && self
                .connections
                .iter_mut()
                .flatten()
                .all(|connection| connection.is_settled())
    }

    /// Flows that have ended here and that their peers have not confirmed: something of them may be lost if this
    /// process, or the peer's, ends now.
    pub fn unconfirmed(&self) -> usize {
        let connections = self.connections.iter().flatten();
        connections
            .map(|connection| connection.control.unconfirmed())
            .sum()
    }

    /// Ends everything: open flows are reset, peers told. Poll for the last transmits afterwards.
    pub fn close(&mut self, now: Instant) {
        self.draining = true;
        match &mut self.role {
            Role::Client(client) => client.stop(),
            Role::Server(_) => self.refuse_newcomers(),
        }
        for handle in 0..self.connections.len() {
            if let Some(connection) = &self.connections[handle] {
                let id = connection.id;
                self.close_connection(now, id, CloseCode::Shutdown);
            }
        }
        self.abandon_salvaged(now);
        self.refuse_waiting(now, FlowCode::ShuttingDown);
    }

    /// Whether at least one connection can take flows, and its server knows this client.
    pub fn is_connected(&self) -> bool {
        self.connections
            .iter()
            .flatten()
            .any(|connection| connection.usable() && connection.admitted)
    }

    /// The least round-trip time that any connection has seen, of those that can take flows.
    pub fn shortest_round_trip(&self) -> Option<Duration> {
        self.connections
            .iter()
            .flatten()
            .filter(|connection| connection.usable())
            .map(|connection| connection.quic.min_rtt())
            .min()
    }

    /// Segments per send call from now on; 1 where the system does not segment.
    pub fn set_max_segments(&mut self, segments: usize) {
        self.transport.max_segments = segments.max(1);
    }

    /// Counters since the engine was made.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// All connections, as they are now.
    pub fn connection_reports(&self) -> Vec<ConnectionReport> {
        self.connections
            .iter()
            .flatten()
            .map(|connection| connection.report())
            .collect()
    }

    /// All flows, as they are now.
    pub fn flow_reports(&self) -> Vec<FlowReport> {
        self.flows
            .iter()
            .filter_map(|(_, entry)| self.flow_report(entry))
            .collect()
    }

    /// Does the work that inputs and commands have made necessary: takes what has arrived to the
    /// applications, answers, opens connections. Needs no room in the UDP socket.
    pub fn drive(&mut self, now: Instant) {
        self.charge_kept();
        while let Some(handle) = self.dirty.pop() {
            self.drive_connection(now, handle);
        }
        match self.role {
            Role::Client(_) => self.drive_client(now),
            Role::Server(_) => self.accept_newcomers(now),
        }
    }

    fn drive_connection(&mut self, now: Instant, handle: usize) {
        let Some(Some(connection)) = self.connections.get_mut(handle) else {
            return;
        };
        connection.dirty = false;
        while let Some(event) = connection.quic.poll_endpoint_events() {
            let answer = self.endpoint.handle_event(ConnectionHandle(handle), event);
            if let Some(answer) = answer {
                connection.quic.handle_event(answer);
            }
        }
        let drained = connection.quic.is_drained();
        while let Some(event) = self.poll_quic(handle) {
            self.handle_quic_event(now, handle, event);
        }
        if drained {
            // The events have told why; this is only for a connection that was closed without a word.
            self.forget(now, handle, LossReason::TimedOut);
            return;
        }
        self.admit_arrivals(now, handle);
        self.pump_inbound(now, handle);
        let client = matches!(self.role, Role::Client(_));
        let Some(Some(connection)) = self.connections.get_mut(handle) else {
            return;
        };
        // A stranger gets no more than it had at first.
        if !connection.quic.is_closed() && (client || connection.admitted) {
            connection.update_windows(now, &self.lease);
        }
        let debt = connection.debt();
        self.lease.adjust(&mut connection.memory, debt);
        connection.watch_flight(now);
        self.events.extend(connection.news(now));
        connection.note_path(now, &self.transport.memory, false);
        let remote = connection.quic.remote_address();
        if remote != connection.remote {
            connection.migrations += 1;
            connection.repeat.forget();
            self.events.push_back(Event::Migrated {
                connection: connection.id,
                from: connection.remote,
                to: remote,
            });
            connection.remote = remote;
        }
        self.want_transmit(handle);
    }

    fn poll_quic(&mut self, handle: usize) -> Option<QuicEvent> {
        self.connections.get_mut(handle)?.as_mut()?.quic.poll()
    }

    fn handle_quic_event(&mut self, now: Instant, handle: usize, event: QuicEvent) {
        match event {
            QuicEvent::Connected => self.handle_connected(now, handle),
            QuicEvent::ConnectionLost { reason } => {
                self.lose(now, handle, LossReason::from(&reason));
            }
            QuicEvent::Stream(StreamEvent::Opened { .. }) => self.accept_streams(now, handle),
            QuicEvent::Stream(StreamEvent::Readable { id }) => self.note_readable(handle, id),
            QuicEvent::Stream(StreamEvent::Writable { id }) => self.note_writable(handle, id),
            QuicEvent::Stream(StreamEvent::Stopped { id, error_code }) => {
                self.handle_stopped(now, handle, id, error_code.into_inner());
            }
            QuicEvent::Stream(StreamEvent::Available { .. }) => self.place_waiting(now),
            QuicEvent::Stream(StreamEvent::Finished { .. })
            | QuicEvent::HandshakeDataReady
            | QuicEvent::DatagramReceived
            | QuicEvent::DatagramsUnblocked => {}
        }
    }

    fn handle_connected(&mut self, now: Instant, handle: usize) {
        let Some(Some(connection)) = self.connections.get_mut(handle) else {
            return;
        };
        // The engine has closed the connection since the library queued this event.
        if connection.lost {
            return;
        }
        let data = connection.quic.crypto_session().handshake_data();
        let data = data.and_then(|data| {
            data.downcast::<quinn_proto::crypto::rustls::HandshakeData>()
                .ok()
        });
        let chosen = data.and_then(|data| data.protocol);
        let protocol = match chosen.as_deref() {
            Some(alpn::NATIVE) => Protocol::Native,
            Some(alpn::PERF) => Protocol::Raw,
            _ => Protocol::Compat,
        };
        connection.protocol = Some(protocol);
        connection.handshake_by = None;
        connection.handshake_copies.end();
        connection.liveness.handle_heard(now);
        let identity = connection.quic.crypto_session().peer_identity();
        let certificates = identity
            .and_then(|identity| identity.downcast().ok())
            .map(|chain| *chain);
        self.events.push_back(Event::Connected {
            connection: connection.id,
            remote: connection.remote,
            protocol,
            certificates,
        });
        match &self.role {
            Role::Client(_) => self.client_connected(now, handle),
            Role::Server(_) => self.server_connected(now, handle),
        }
    }

    fn check_liveness(&mut self, now: Instant, handle: usize) {
        let server = matches!(self.role, Role::Server(_));
        let Some(Some(connection)) = self.connections.get_mut(handle) else {
            return;
        };
        if connection.protocol.is_none() || connection.quic.is_closed() {
            return;
        }
        match connection.liveness.handle_timeout(now) {
            Verdict::Fine => {}
            // A client asks by itself; a server only needs to know while flows depend on the answer.
            _ if server && connection.streams.is_empty() => connection.liveness.excuse(),
            Verdict::Ask => connection.ask(),
            Verdict::Lost => {
                connection.ask();
                self.events.push_back(Event::Unresponsive {
                    connection: connection.id,
                    remote: connection.remote,
                });
                self.reopen_unanswered(now, handle, None);
            }
        }
    }

    /// The connection has failed or been closed: its flows end now, the rest when the library is done.
    pub(crate) fn lose(&mut self, now: Instant, handle: usize, reason: LossReason) {
        let Some(Some(connection)) = self.connections.get_mut(handle) else {
            return;
        };
        if std::mem::replace(&mut connection.lost, true) {
            return;
        }
        connection.note_path(now, &self.transport.memory, true);
        let established = connection.protocol.take().is_some();
        let (id, remote) = (connection.id, connection.remote);
        connection.handshake_by = None;
        connection.handshake_copies.end();
        connection.arrivals.clear();
        // What its flows hold is charged to them where they go on without it.
        let debt = connection.debt();
        self.lease.adjust(&mut connection.memory, debt);
        let mut keys: Vec<usize> = connection.streams.drain().map(|(_, key)| key).collect();
        keys.sort_unstable();
        let (mut flows, mut salvaged) = (0, 0);
        for key in keys {
            if self.lose_flow(now, key) {
                salvaged += 1;
            } else {
                flows += 1;
            }
        }
        if established {
            if reason != LossReason::ClosedLocally {
                self.totals.connections_lost += 1;
            }
            self.events.push_back(Event::Disconnected {
                connection: id,
                remote,
                reason: reason.clone(),
                flows,
                salvaged,
            });
        } else if reason != LossReason::ClosedLocally {
            self.totals.handshakes_failed += 1;
        }
        match &self.role {
            Role::Client(_) => self.client_lost(now, handle, &reason),
            Role::Server(_) => self.server_lost(handle, remote, established, reason),
        }
    }

    /// The library has no more use for the connection.
    pub(crate) fn forget(&mut self, now: Instant, handle: usize, reason: LossReason) {
        self.lose(now, handle, reason);
        if let Some(slot) = self.connections.get_mut(handle)
            && let Some(mut connection) = slot.take()
        {
            self.timers.set(handle, &mut connection.deadline, None);
            self.lease.adjust(&mut connection.memory, 0);
            self.totals.connections_closed += 1;
            if !connection.quic.is_drained() {
                let drained = quinn_proto::EndpointEvent::drained();
                let answer = self
                    .endpoint
                    .handle_event(ConnectionHandle(handle), drained);
                debug_assert!(answer.is_none(), "a drained connection wants nothing");
            }
        }
    }

    /// Adds a connection of the library's.
    pub(crate) fn adopt(&mut self, handle: usize, mut connection: Connection) {
        let debt = connection.debt();
        self.lease.adjust(&mut connection.memory, debt);
        if self.connections.len() <= handle {
            self.connections.resize_with(handle + 1, || None);
        }
        self.connections[handle] = Some(Box::new(connection));
        self.totals.connections_opened += 1;
        self.mark(handle);
    }

    /// A number never used before, with the slab key in its low half.
    pub(crate) fn next_id(&mut self, key: usize) -> u64 {
        self.generation += 1;
        (self.generation << 32) | (key as u64 & 0xffff_ffff)
    }

    /// The slab key of a flow, if it is still there.
    pub(crate) fn key_of(&self, id: FlowId) -> Option<usize> {
        let key = usize::try_from(id.0 & 0xffff_ffff).ok()?;
        (self.flows.get(key)?.id == id).then_some(key)
    }

    pub(crate) fn handle_of(&self, id: ConnectionId) -> Option<usize> {
        let handle = usize::try_from(id.0 & 0xffff_ffff).ok()?;
        let connection = self.connections.get(handle)?.as_ref()?;
        (connection.id == id).then_some(handle)
    }

    /// Marks a connection as having library events to be taken.
    pub(crate) fn mark(&mut self, handle: usize) {
        if let Some(Some(connection)) = self.connections.get_mut(handle)
            && !connection.dirty
        {
            connection.dirty = true;
            self.dirty.push(handle);
        }
    }
}

/// The TLS exporter value of a connection.
pub(crate) fn export(quic: &quinn_proto::Connection) -> Option<[u8; 32]> {
    const LABEL: &[u8] = b"EXPORTER-quictun-psk";
    let mut value = [0; 32];
    let session = quic.crypto_session();
    session
        .export_keying_material(&mut value, LABEL, b"")
        .ok()?;
    Some(value)
}

pub(crate) fn close_code(code: CloseCode) -> VarInt {
    VarInt::from_u64(code.to_u64()).unwrap_or(VarInt::MAX)
}

impl<S> fmt::Debug for Engine<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("connections", &self.connections.iter().flatten().count())
            .field("flows", &self.flows.len())
            .field("totals", &self.totals)
            .finish_non_exhaustive()
    }
}
