//! The engine: its inputs and outputs, and the order of the work between them.

#[cfg(feature = "check")]
pub(crate) mod check;
mod listeners;
mod queries;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use quictun_congestion::{Algorithm, TimeoutAction};
use quictun_flow::{
    Allowance, ConnectionId, ConnectionKey, FlowId, FlowRequest, LocalLimit, Socket,
};
use quictun_wire::code::{CloseCode, FlowCode};
use quictun_wire::join::Grant;

use crate::bonds::ClientProofs;
use crate::carrier::CarrierEvent;
use crate::carrier::quic::Endpoint;
use crate::client::{Client, ResolveResult};
use crate::config::{ClientRole, EngineConfig, Prover, ServerPlace, ServerRole, ServerToDial};
use crate::datagrams::Datagrams;
use crate::event::Event;
use crate::loss::{LocalError, LossReason};
use crate::report::{ServerId, Side};
use crate::server::Server;
use crate::traffic::{Contact, DatagramRecipient, Timeouts, Traffic};

/// One worker of the tunnel. See the crate documentation for the order of calls.
pub struct Engine<S> {
    traffic: Traffic<S>,
    role: Role,
}

enum Role {
    Client(Box<Client>),
    Server(Box<Server>),
}

/// Construction of an engine.
impl<S: Socket> Engine<S> {
    /// Creates a client's engine. It asks for the servers' addresses when it is first driven.
    ///
    /// # Errors
    ///
    /// Returns [`LossReason::Local`] if the configuration has no cipher suite for QUIC's Initial packets.
    pub fn client(config: EngineConfig<ClientRole>) -> Result<Self, LossReason> {
        let (endpoint, rng) = Endpoint::new(config.worker, config.seed, &config.reset_key, None);
        let timeouts = Timeouts {
            // For streams that a server opens.
            open: config.transport.handshake_timeout,
            bond: config.role.bond_ttl,
        };
        let own = (config.worker, rng.clone());
        let client = Client::new(config.role, rng)?;
        Ok(Self {
            traffic: Traffic::new(endpoint, config.transport, Side::Client, timeouts, own),
            role: Role::Client(Box::new(client)),
        })
    }

    /// Creates a server's engine.
    ///
    /// # Errors
    ///
    /// Returns [`LossReason::Local`] if the configuration has no cipher suite for QUIC's Initial packets.
    pub fn server(config: EngineConfig<ServerRole>) -> Result<Self, LossReason> {
        let timeouts = Timeouts {
            open: config.role.open_timeout,
            bond: config.role.bond_ttl,
        };
        let server = Server::new(config.role)?;
        let settings = Some(server.settings());
        let (endpoint, rng) =
            Endpoint::new(config.worker, config.seed, &config.reset_key, settings);
        let own = (config.worker, rng);
        Ok(Self {
            traffic: Traffic::new(endpoint, config.transport, Side::Server, timeouts, own),
            role: Role::Server(Box::new(server)),
        })
    }
}

/// Inputs: events that the caller passes to the engine.
impl<S: Socket> Engine<S> {
    /// Handles one received UDP datagram. `ecn` holds the two ECN bits, if known.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        local_ip: Option<IpAddr>,
        ecn: Option<u8>,
        data: BytesMut,
    ) {
        let of = self
            .traffic
            .handle_datagram(now, remote, local_ip, ecn, data);
        match (of, &mut self.role) {
            // A client has no connection of this kind.
            (None, _) | (Some(DatagramRecipient::Unfinished(_)), Role::Client(_)) => {}
            (Some(DatagramRecipient::Connection(key, contact)), role) => {
                if let Role::Client(client) = role {
                    match contact {
                        Contact::Ongoing => {}
                        Contact::First => client.handle_answered(now, &mut self.traffic, key),
                        Contact::Resumed => client.handle_back(now, &mut self.traffic, key),
                    }
                }
                self.traffic.connections.mark(key);
            }
            (Some(DatagramRecipient::Newcomer(newcomer)), Role::Server(server)) => {
                server.handle_newcomer(now, &mut self.traffic, *newcomer);
            }
            (Some(DatagramRecipient::Newcomer(newcomer)), Role::Client(_)) => {
                self.traffic.refuse(*newcomer);
            }
            (Some(DatagramRecipient::Unfinished(datagram)), Role::Server(server)) => {
                server.handle_unread(now, &mut self.traffic, *datagram);
            }
        }
    }

    /// Handles everything that is due. Call it at or after [`Engine::next_timeout`].
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(key) = self.traffic.connections.pop_due(now) {
            self.handle_due_connection(now, key);
        }
        while let Some((key, due)) = self.traffic.flows.pop_due(now) {
            let late = self.traffic.expire_flow(now, key, due);
            match &mut self.role {
                _ if !late => {}
                Role::Client(client) => client.handle_late_answer(now, &mut self.traffic, key),
                Role::Server(_) => self.traffic.give_up_incoming(now, key),
            }
        }
        self.traffic.serve_unattached(now);
        if let Role::Client(client) = &mut self.role {
            client.drive(now, &mut self.traffic);
        }
    }

    /// Sends acknowledgements that are due by `soon` immediately, on connections with nothing in flight. Their timers
    /// then cause no wake-up of their own.
    pub fn acknowledge_early(&mut self, soon: Instant) {
        while let Some(key) = self.traffic.connections.pop_deadline(soon) {
            if let Some(connection) = self.traffic.connections.get_mut(key) {
                connection.carrier.acknowledge_early(soon);
            }
            self.traffic.connections.mark(key);
        }
    }

    fn handle_due_connection(&mut self, now: Instant, key: ConnectionKey) {
        let Some(connection) = self.traffic.connections.get_mut(key) else {
            return;
        };
        let due = connection.handle_timeout(now);
        if due.handshake {
            connection.close(now, CloseCode::Done, Bytes::new());
            self.traffic.forget(now, key, LossReason::TimedOut);
            return self.note_ended(now);
        }
        if due.admission {
            match &self.role {
                Role::Client(_) => self.traffic.end_admission(now, key),
                Role::Server(_) => self.traffic.refuse_unproven(now, key),
            }
            self.note_ended(now);
        }
        if due.pending_seen {
            self.traffic.send_pending_seen(key);
        }
        if due.rate {
            self.traffic.serve_shaped(now, key);
        }
        let verdict = self.traffic.check_liveness(now, key);
        if let Role::Client(client) = &mut self.role {
            match verdict {
                TimeoutAction::Lost => client.reopen_unanswered(now, &mut self.traffic, key, None),
                // `key` may be another connection than the one that its slot watches.
                TimeoutAction::Suspect => client.handle_suspect(now, &mut self.traffic, key),
                TimeoutAction::Fine | TimeoutAction::Ask => {}
            }
        }
        self.traffic.connections.mark(key);
    }

    /// Handles a flow's socket that may have become readable or writable, or has failed.
    pub fn handle_socket(
        &mut self,
        now: Instant,
        id: FlowId,
        readable: bool,
        writable: bool,
        failed: bool,
    ) {
        self.traffic
            .handle_socket(now, id, readable, writable, failed);
    }

    /// Takes the result of a dial: the answer to [`Event::Open`] (server) or [`Event::Incoming`] (client). If the flow
    /// has ended meanwhile, the socket is reset and dropped.
    pub fn handle_dialed(
        &mut self,
        now: Instant,
        id: FlowId,
        result: Result<(S, String), FlowCode>,
    ) {
        self.traffic.handle_dialed(now, id, result);
    }

    /// Client: handles a pause of the process, which has done nothing since `since` although work was due. Call it after
    /// everything that has arrived meanwhile was handled. Asks servers that were not heard at once, because the machine
    /// may be on another network.
    pub fn handle_pause(&mut self, now: Instant, since: Instant) {
        if let Role::Client(client) = &mut self.role {
            client.handle_pause(now, &mut self.traffic, since);
        }
    }

    /// Client: handles a change of routes or addresses, or the end of a sleep. Sends a keep-alive to every peer at
    /// once, and dials at once instead of waiting for the next attempt.
    pub fn handle_network_change(&mut self, now: Instant) {
        if let Role::Client(client) = &mut self.role {
            client.handle_network_change(now, &mut self.traffic);
        }
    }

    /// Client: handles a change of the local port. Attempts to connect start again from the new port, beside those in
    /// progress.
    pub fn handle_new_port(&mut self, now: Instant) {
        if let Role::Client(client) = &mut self.role {
            client.handle_new_port(now, &mut self.traffic);
        }
    }

    /// Client: takes the answer to [`Event::Resolve`] for `server` and `tenant`. If another tenant is in the place
    /// already, the answer is dropped.
    pub fn handle_resolved(
        &mut self,
        now: Instant,
        server: ServerId,
        tenant: u32,
        resolved: &ResolveResult,
    ) {
        if let Role::Client(client) = &mut self.role {
            client.handle_resolved(now, &mut self.traffic, server, tenant, resolved);
        }
    }
}

/// Outputs: what the caller polls for.
impl<S: Socket> Engine<S> {
    /// Returns the time of the next call of [`Engine::handle_timeout`].
    pub fn next_timeout(&self) -> Option<Instant> {
        let role = match &self.role {
            Role::Client(client) => client.next_timeout(),
            Role::Server(server) => server.next_timeout(),
        };
        [self.traffic.next_timeout(), role]
            .into_iter()
            .flatten()
            .min()
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.traffic.events.pop_front()
    }

    /// Returns the next batch to send. Clears `buffer` and writes the batch's bytes to it.
    ///
    /// A server makes a step of a handshake, once in each turn, when it has nothing else to send. Established
    /// connections then never wait for more than one.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<Datagrams> {
        let mut datagrams = self.traffic.poll_transmit(now, buffer);
        self.note_ended(now);
        if datagrams.is_none()
            && let Role::Server(server) = &mut self.role
            && server.make_step(now, &mut self.traffic)
        {
            self.drive_marked(now);
            datagrams = self.traffic.poll_transmit(now, buffer);
            self.note_ended(now);
        }
        datagrams
    }

    /// Does the work that results from inputs and commands: delivers received data to applications, answers requests,
    /// opens connections. Needs no room in the UDP socket.
    pub fn drive(&mut self, now: Instant) {
        self.traffic.charge_kept();
        self.traffic.free_memory(now);
        self.traffic.connections.begin_turn();
        if let Role::Server(server) = &mut self.role {
            server.begin_turn(now, &mut self.traffic);
        }
        self.drive_marked(now);
        if let Role::Client(client) = &mut self.role {
            client.drive(now, &mut self.traffic);
        }
    }

    fn drive_marked(&mut self, now: Instant) {
        while let Some(key) = self.traffic.connections.next_marked() {
            self.drive_connection(now, key);
        }
    }

    fn drive_connection(&mut self, now: Instant, key: ConnectionKey) {
        let Some(drained) = self.traffic.exchange(key) else {
            return;
        };
        while let Some(event) = self.traffic.poll_carrier(key) {
            self.handle_carrier_event(now, key, event);
        }
        if drained {
            // The events have reported the reason. `TimedOut` applies only to a connection that was closed silently.
            self.traffic.forget(now, key, LossReason::TimedOut);
            return self.note_ended(now);
        }
        self.traffic.deliver(now, key);
        self.traffic.poll_resets(now, key);
        if matches!(self.role, Role::Client(_)) {
            self.traffic.move_flows_away(now, key);
            self.traffic.close_left(now, key);
        }
        self.note_ended(now);
        self.traffic.follow_up(now, key);
    }

    fn handle_carrier_event(&mut self, now: Instant, key: ConnectionKey, event: CarrierEvent) {
        let traffic = &mut self.traffic;
        match event {
            CarrierEvent::Connected => {
                if traffic.handle_connected(now, key) {
                    match &mut self.role {
                        Role::Client(client) => client.handle_connected(now, traffic, key),
                        Role::Server(server) => server.handle_connected(now, traffic, key),
                    }
                }
            }
            CarrierEvent::Lost(reason) => {
                if let Role::Client(client) = &mut self.role
                    && reason == LossReason::TimedOut
                {
                    // After a sleep, the timeout comes before the verdict that the peer is unresponsive.
                    client.reopen_unanswered(now, traffic, key, None);
                }
                if let Role::Client(client) = &mut self.role {
                    client.ask_elsewhere(now, traffic, key);
                }
                traffic.lose(now, key, reason);
                self.note_ended(now);
            }
            CarrierEvent::Opened => traffic.accept_streams(now, key),
            CarrierEvent::Readable(stream) => traffic.note_readable(key, stream),
            CarrierEvent::Writable(stream) => traffic.note_writable(key, stream),
            CarrierEvent::Stopped(stream, code) => traffic.handle_stopped(now, key, stream, code),
            CarrierEvent::Available => match &mut self.role {
                Role::Client(client) => {
                    traffic.move_flows(now, key);
                    client.place_waiting(now, traffic);
                }
                Role::Server(_) => traffic.report_streams_available(key),
            },
        }
    }

    /// Lets the role handle connections that have ended.
    fn note_ended(&mut self, now: Instant) {
        match &mut self.role {
            Role::Client(client) => client.note_ended(now, &mut self.traffic),
            Role::Server(server) => server.note_ended(&mut self.traffic),
        }
    }
}

/// Commands: operations that the caller requests.
impl<S: Socket> Engine<S> {
    /// Client: carries `socket` to the target that the request names. The application's bytes follow the request at
    /// once. Until there is a connection, the flow waits, and its socket is not read.
    ///
    /// Returns `None` if the flow is refused. The socket is then reset, and [`Event::FlowClosed`] gives the reason.
    pub fn open_flow(
        &mut self,
        now: Instant,
        mut socket: S,
        request: FlowRequest,
    ) -> Option<FlowId> {
        let Role::Client(client) = &mut self.role else {
            socket.abort();
            return None;
        };
        client.open_flow(now, &mut self.traffic, socket, request)
    }

    /// Client: sets the TLS configuration and the proof for new connections to `server`. New flows on open connections
    /// carry the new proof too, so that a server that learns the new secret later still recognizes the client.
    ///
    /// # Errors
    ///
    /// Returns [`LossReason::Local`] if the configuration has no cipher suite for QUIC's Initial packets, or if this is
    /// a server.
    pub fn set_client_identity(
        &mut self,
        server: ServerId,
        crypto: &Arc<rustls::ClientConfig>,
        fallback: Option<&Arc<rustls::ClientConfig>>,
        prover: Option<Prover>,
    ) -> Result<(), LossReason> {
        match &mut self.role {
            Role::Client(client) => client.set_identity(server, crypto, fallback, prover),
            Role::Server(_) => Err(LocalError::NotAClient.into()),
        }
    }

    /// Sets the transport of connections that begin from now on, as far as it may change while the engine runs: the
    /// congestion controller, the idle timeout, and the silence before a keep-alive.
    pub fn set_transport(
        &mut self,
        congestion: Algorithm,
        idle_timeout: Duration,
        keep_alive: Duration,
    ) {
        let transport = &mut self.traffic.transport;
        transport.congestion = congestion;
        (transport.idle_timeout, transport.keep_alive) = (idle_timeout, keep_alive);
    }

    /// Client: adds a server at the end of its list.
    ///
    /// # Errors
    ///
    /// Returns [`LossReason::Local`] if the configuration has no cipher suite for QUIC's Initial packets, or if this is
    /// a server.
    pub fn add_server(&mut self, server: &ServerToDial) -> Result<(), LossReason> {
        match &mut self.role {
            Role::Client(client) => client.add_server(server),
            Role::Server(_) => Err(LocalError::NotAClient.into()),
        }
    }

    /// Client: changes the server at one place of its list.
    pub fn set_place(&mut self, now: Instant, server: ServerId, place: ServerPlace) {
        if let Role::Client(client) = &mut self.role {
            client.set_place(now, &mut self.traffic, server, place);
        }
    }

    /// Server: sets the TLS configuration of handshakes that start from now on. Open connections are not affected.
    ///
    /// # Errors
    ///
    /// Returns [`LossReason::Local`] if the configuration has no cipher suite for QUIC's Initial packets, or if this is
    /// a client.
    pub fn set_server_crypto(
        &mut self,
        crypto: &Arc<rustls::ServerConfig>,
    ) -> Result<(), LossReason> {
        let Role::Server(server) = &mut self.role else {
            return Err(LocalError::NotAServer.into());
        };
        server.set_crypto(crypto)?;
        self.traffic.endpoint.set_server(server.settings());
        Ok(())
    }

    /// Server: admits the client of a connection, which is known or need not be, and serves it in full from now on.
    pub fn admit(&mut self, now: Instant, id: ConnectionId) {
        if let Role::Server(server) = &mut self.role {
            server.admit(now, &mut self.traffic, id);
            self.note_ended(now);
        }
    }

    /// Server: answers a client's JOIN with `grant`. Call it once for each [`Event::Hello`] that contains a JOIN. If
    /// the client is not known yet, call [`Engine::admit`] next.
    pub fn answer_join(&mut self, now: Instant, id: ConnectionId, grant: Option<Grant>) {
        if let Some(key) = self.traffic.connections.find(id) {
            self.traffic.answer_join(now, key, grant);
        }
    }

    /// Closes a connection and resets its flows on both sides.
    pub fn close_connection(&mut self, now: Instant, id: ConnectionId, code: CloseCode) {
        self.traffic.close_connection(now, id, code);
        self.note_ended(now);
    }

    /// Server: ends a flow that is no longer allowed. The application's connection is reset, and the peer receives
    /// [`FlowCode::Revoked`]. Has no effect on a flow that has already ended.
    pub fn revoke_flow(&mut self, now: Instant, id: FlowId) {
        self.end_flow(now, id, FlowCode::Revoked);
    }

    /// Server: ends a flow as [`Engine::revoke_flow`] does, but with another code for the peer.
    pub fn end_flow(&mut self, now: Instant, id: FlowId, code: FlowCode) {
        if let Some(key) = self.traffic.flows.find(id) {
            self.traffic.revoke(now, key, code);
        }
    }

    /// Server: gives a client that has not identified itself less time for that. Returns false if it has no more time
    /// than that already.
    pub fn hurry_identity(&mut self, id: ConnectionId, by: Instant) -> bool {
        let connections = &mut self.traffic.connections;
        let Some((key, connection)) = connections.named_mut(id) else {
            return false;
        };
        let hurried = connection.admission.hurry(by);
        connections.mark(key);
        hurried
    }

    /// Server: ends a flow of a client that does not answer ([`Engine::is_left`]), so that a new flow of the client gets
    /// its place.
    pub fn give_way(&mut self, now: Instant, id: FlowId) {
        if let Some(key) = self.traffic.flows.find(id) {
            self.traffic.revoke(now, key, LocalLimit::GaveWay);
        }
    }

    /// Server: closes a connection whose client is no longer known, with [`CloseCode::Revoked`], or no longer served,
    /// with another code. All its flows end as by [`Engine::revoke_flow`], including those whose bytes have all
    /// arrived. Returns the number of flows.
    pub fn revoke_connection(&mut self, now: Instant, id: ConnectionId, code: CloseCode) -> usize {
        let Some(key) = self.traffic.connections.find(id) else {
            return 0;
        };
        let flows = self.traffic.revoke_flows_of(now, key);
        self.close_connection(now, id, code);
        flows
    }

    /// Server: starts to count this client's traffic, see [`Engine::client_reports`]. Beyond 256 clients, all further
    /// ones are counted together.
    pub fn know_client(&mut self, name: &str) {
        self.traffic.clients.key(name);
    }

    /// Server: sets the allowance of this client, for connections that are named after it from now on.
    pub fn allow_client(&mut self, name: &str, allowance: Arc<Allowance>) {
        self.traffic.clients.allow(name, allowance);
    }

    /// Sets the name of a connection's peer in reports, and applies the limits that [`Engine::allow_client`] has set
    /// for that name. Call it again after those limits, or the name, have changed. A bond belongs to the client that has
    /// one of the `proofs` of its owner, whatever its name (PROTOCOL BOND-4).
    pub fn name_peer(
        &mut self,
        now: Instant,
        id: ConnectionId,
        name: String,
        proofs: ClientProofs,
    ) {
        let Traffic {
            connections,
            clients,
            bonds,
            ..
        } = &mut self.traffic;
        if let Some((key, connection)) = connections.named_mut(id) {
            let client = clients.key(&name);
            if let Some(bond) = connection.bond {
                bonds.set_owner(bond, &name, &proofs);
            }
            connection.name_peer(name, client, proofs);
            connection.shaping.set_allowance(clients.allowance(client));
            // The new limits may change when the waiting flows may continue.
            self.traffic.serve_shaped(now, key);
        }
    }

    /// Client: replaces every connection by a new one. Flows of bonds move to the new connections; other flows stay
    /// until they end.
    pub fn reconnect(&mut self, now: Instant) {
        if let Role::Client(client) = &mut self.role {
            client.reconnect(now, &mut self.traffic);
        }
    }

    /// Sets the number of segments per send call. Use 1 if the system cannot segment.
    pub fn set_max_segments(&mut self, segments: usize) {
        self.traffic.transport.max_segments = segments.max(1);
    }

    /// Sets how long the caller sleeps between turns, regardless of events. The pacers make up for that time.
    pub fn set_sleeps(&mut self, sleeps: Duration) {
        self.traffic.sleeps = sleeps;
    }

    /// Stops taking new flows. [`Engine::is_drained`] returns true once the open ones are done.
    pub fn drain(&mut self) {
        self.traffic.draining = true;
    }

    /// Ends everything: resets open flows and closes all connections. Poll for the last transmits afterwards.
    pub fn close(&mut self, now: Instant) {
        self.traffic.draining = true;
        match &mut self.role {
            Role::Client(client) => client.stop(),
            Role::Server(server) => server.refuse_newcomers(&mut self.traffic),
        }
        let connections = self.traffic.connections.iter();
        let ids: Vec<ConnectionId> = connections.map(|(_, connection)| connection.id()).collect();
        for id in ids {
            self.close_connection(now, id, CloseCode::Shutdown);
        }
        self.traffic.abandon_all_salvaged(now);
        self.traffic.abandon_all_detached(now);
        if let Role::Client(client) = &mut self.role {
            client.refuse_waiting(now, &mut self.traffic, FlowCode::ShuttingDown);
        }
    }
}

impl<S> fmt::Debug for Engine<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let traffic = &self.traffic;
        f.debug_struct("Engine")
            .field("connections", &traffic.connections.iter().count())
            .field("flows", &traffic.flows.count())
            .field("totals", &traffic.totals)
            .finish_non_exhaustive()
    }
}
