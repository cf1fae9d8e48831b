//! The engine: inputs, outputs, and the order in which work is done between them.

#[cfg(feature = "check")]
#[path = "../tests/support/check.rs"]
pub(crate) mod check;
mod listeners;
mod questions;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use quictun_congestion::Verdict;
use quictun_flow::{Allowance, ConnectionId, ConnectionKey, FlowId, Socket};
use quictun_wire::code::{CloseCode, FlowCode};
use quictun_wire::join::Grant;
use quinn_proto::{Endpoint, EndpointConfig, Event as QuicEvent, StreamEvent};
use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};

use crate::cid::WorkerCids;
use crate::client::{Client, Resolved};
use crate::config::{ClientRole, EngineConfig, Prover, ServerRole};
use crate::datagrams::Datagrams;
use crate::event::Event;
use crate::loss::{LocalError, LossReason};
use crate::report::{ServerId, Side};
use crate::server::Server;
use crate::traffic::{DatagramOf, Heard, Traffic, Waits};

/// Largest UDP payload accepted: anything the interface can bring.
const UDP_PAYLOAD_MAX: u16 = 65_527;

/// One worker of the tunnel. See the crate documentation for the order of calls.
pub struct Engine<S> {
    traffic: Traffic<S>,
    role: Role,
}

enum Role {
    Client(Box<Client>),
    Server(Box<Server>),
}

/// Making one.
impl<S: Socket> Engine<S> {
    /// A client's engine. It asks for the server's addresses at once.
    ///
    /// # Errors
    ///
    /// [`LossReason::Local`] where the configuration has no cipher suite for QUIC's first packets.
    pub fn client(config: EngineConfig<ClientRole>) -> Result<Self, LossReason> {
        let (endpoint, rng) = endpoint(config.worker, config.seed, &config.reset_key, None);
        let waits = Waits {
            // Of what a server opens.
            open: config.transport.handshake_timeout,
            bond: config.role.bond_ttl,
        };
        let own = (config.worker, rng.clone());
        let client = Client::new(config.role, rng)?;
        Ok(Self {
            traffic: Traffic::new(endpoint, config.transport, Side::Client, waits, own),
            role: Role::Client(Box::new(client)),
        })
    }

    /// A server's engine.
    ///
    /// # Errors
    ///
    /// [`LossReason::Local`] where the configuration has no cipher suite for QUIC's first packets.
    pub fn server(config: EngineConfig<ServerRole>) -> Result<Self, LossReason> {
        let waits = Waits {
            open: config.role.open_timeout,
            bond: config.role.bond_ttl,
        };
        let server = Server::new(config.role)?;
        let tls = Some(server.config());
        let (endpoint, rng) = endpoint(config.worker, config.seed, &config.reset_key, tls);
        let own = (config.worker, rng);
        Ok(Self {
            traffic: Traffic::new(endpoint, config.transport, Side::Server, waits, own),
            role: Role::Server(Box::new(server)),
        })
    }
}

/// The library's endpoint, and a source of random numbers for what else an engine needs.
fn endpoint(
    worker: u8,
    seed: [u8; 32],
    reset_key: &[u8; 32],
    server: Option<Arc<quinn_proto::ServerConfig>>,
) -> (Endpoint, ChaCha20Rng) {
    let reset_key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, reset_key);
    let mut endpoint_config = EndpointConfig::new(Arc::new(reset_key));
    let mut rng = ChaCha20Rng::from_seed(seed);
    let (mut endpoint_seed, mut cid_seed) = ([0; 32], [0; 32]);
    rng.fill_bytes(&mut endpoint_seed);
    rng.fill_bytes(&mut cid_seed);
    endpoint_config
        .cid_generator(WorkerCids::factory(worker, cid_seed))
        .rng_seed(Some(endpoint_seed));
    endpoint_config
        .max_udp_payload_size(UDP_PAYLOAD_MAX)
        .expect("invariant: 65527 is the largest legal value");
    let endpoint = Endpoint::new(Arc::new(endpoint_config), server, true, None);
    (endpoint, rng)
}

/// Inputs.
impl<S: Socket> Engine<S> {
    /// Takes one UDP datagram; `ecn` is the two ECN bits, where known.
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
            (None, _) => {}
            (Some(DatagramOf::Connection(key, heard)), role) => {
                if let Role::Client(client) = role {
                    match heard {
                        Heard::Before => {}
                        Heard::First => client.handle_answered(now, &mut self.traffic, key),
                        Heard::Back => client.handle_back(now, &mut self.traffic, key),
                    }
                }
                self.traffic.connections.mark(key);
            }
            (Some(DatagramOf::Newcomer(incoming)), Role::Server(server)) => {
                server.handle_incoming(now, &mut self.traffic, *incoming);
            }
            (Some(DatagramOf::Newcomer(incoming)), Role::Client(_)) => {
                self.traffic.refuse(*incoming);
            }
        }
    }

    /// Tells the time, at or after [`Engine::next_timeout`].
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(key) = self.traffic.connections.pop_due(now) {
            self.handle_due_connection(now, key);
        }
        while let Some(key) = self.traffic.flows.pop_due(now) {
            let late = self.traffic.expire_flow(now, key);
            match &mut self.role {
                _ if !late => {}
                Role::Client(client) => client.handle_late_answer(now, &mut self.traffic, key),
                Role::Server(_) => self.traffic.give_up_incoming(now, key),
            }
        }
        if let Role::Client(client) = &mut self.role {
            client.drive(now, &mut self.traffic);
        }
    }

    /// Lets connections that have nothing in flight acknowledge now where they would by `soon`: their timers need no turn of
    /// their own.
    pub fn acknowledge_early(&mut self, soon: Instant) {
        while let Some(key) = self.traffic.connections.pop_deadline(soon) {
            if let Some(connection) = self.traffic.connections.get_mut(key) {
                connection.acknowledge_early(soon);
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
        if due.untold {
            self.traffic.tell_arrived(key);
        }
        if due.rate {
            self.traffic.serve_shaped(now, key);
        }
        let verdict = self.traffic.check_liveness(now, key);
        if let Role::Client(client) = &mut self.role {
            match verdict {
                Verdict::Lost => client.reopen_unanswered(now, &mut self.traffic, key, None),
                // It may not be the one that its slot watches.
                Verdict::Suspect => client.handle_suspect(now, &mut self.traffic, key),
                Verdict::Fine | Verdict::Ask => {}
            }
        }
        self.traffic.connections.mark(key);
    }

    /// The socket of a flow may have become readable or writable, or has failed.
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

    /// Server: the answer to [`Event::Open`]; the socket is dropped with a reset where the flow has
    /// gone meanwhile.
    pub fn handle_dialed(
        &mut self,
        now: Instant,
        id: FlowId,
        result: Result<(S, String), FlowCode>,
    ) {
        self.traffic.handle_dialed(now, id, result);
    }

    /// Client: this machine has other routes or addresses, or has slept. Asks every peer at once whether it is there, and
    /// dials at once where an attempt would have come later.
    pub fn handle_network_change(&mut self, now: Instant) {
        if let Role::Client(client) = &mut self.role {
            client.handle_network_change(now, &mut self.traffic);
        }
    }

    /// Client: packets leave from another local port from now on. Attempts to connect begin anew from there, beside those
    /// under way.
    pub fn handle_new_port(&mut self, now: Instant) {
        if let Role::Client(client) = &mut self.role {
            client.handle_new_port(now, &mut self.traffic);
        }
    }

    /// Client: the answer to [`Event::Resolve`] for `server`.
    pub fn handle_resolved(&mut self, now: Instant, server: ServerId, resolved: &Resolved) {
        if let Role::Client(client) = &mut self.role {
            client.handle_resolved(now, &mut self.traffic, server, resolved);
        }
    }
}

/// Outputs.
impl<S: Socket> Engine<S> {
    /// When [`Engine::handle_timeout`] wants to be called next.
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

    /// The next thing the caller should know or do.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.traffic.events.pop_front()
    }

    /// Gives the next batch to send, its bytes in `buffer` (cleared first).
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<Datagrams> {
        let datagrams = self.traffic.poll_transmit(now, buffer);
        self.note_ended(now);
        datagrams
    }

    /// Does the work that inputs and commands have made necessary: takes what has arrived to the
    /// applications, answers, opens connections. Needs no room in the UDP socket.
    pub fn drive(&mut self, now: Instant) {
        self.traffic.charge_kept();
        self.traffic.relieve(now);
        while let Some(key) = self.traffic.connections.next_marked() {
            self.drive_connection(now, key);
        }
        match &mut self.role {
            Role::Client(client) => client.drive(now, &mut self.traffic),
            Role::Server(server) => server.accept_newcomers(now, &mut self.traffic),
        }
    }

    fn drive_connection(&mut self, now: Instant, key: ConnectionKey) {
        let Some(drained) = self.traffic.exchange(key) else {
            return;
        };
        while let Some(event) = self.traffic.poll_quic(key) {
            self.handle_quic_event(now, key, event);
        }
        if drained {
            // The events have told why; this is only for a connection that was closed without a word.
            self.traffic.forget(now, key, LossReason::TimedOut);
            return self.note_ended(now);
        }
        self.traffic.deliver(now, key);
        if matches!(self.role, Role::Client(_)) {
            self.traffic.carry_on_elsewhere(now, key);
            self.traffic.close_left(now, key);
        }
        self.note_ended(now);
        self.traffic.follow_up(now, key);
    }

    fn handle_quic_event(&mut self, now: Instant, key: ConnectionKey, event: QuicEvent) {
        let traffic = &mut self.traffic;
        match event {
            QuicEvent::Connected => {
                if traffic.handle_connected(now, key) {
                    match &mut self.role {
                        Role::Client(client) => client.handle_connected(now, traffic, key),
                        Role::Server(server) => server.handle_connected(now, traffic, key),
                    }
                }
            }
            QuicEvent::ConnectionLost { reason } => {
                let reason = LossReason::from(&reason);
                if let Role::Client(client) = &mut self.role
                    && reason == LossReason::TimedOut
                {
                    // The time-out may come before the verdict that the peer does not answer: after a sleep it does.
                    client.reopen_unanswered(now, traffic, key, None);
                }
                if let Role::Client(client) = &mut self.role {
                    client.ask_elsewhere(now, traffic, key);
                }
                traffic.lose(now, key, reason);
                self.note_ended(now);
            }
            QuicEvent::Stream(StreamEvent::Opened { .. }) => traffic.accept_streams(now, key),
            QuicEvent::Stream(StreamEvent::Readable { id }) => traffic.note_readable(key, id),
            QuicEvent::Stream(StreamEvent::Writable { id }) => traffic.note_writable(key, id),
            QuicEvent::Stream(StreamEvent::Stopped { id, error_code }) => {
                traffic.handle_stopped(now, key, id, error_code.into_inner());
            }
            QuicEvent::Stream(StreamEvent::Available { .. }) => match &mut self.role {
                Role::Client(client) => {
                    traffic.move_flows(now, key);
                    client.place_waiting(now, traffic);
                }
                Role::Server(_) => traffic.tell_of_room(key),
            },
            QuicEvent::Stream(StreamEvent::Finished { .. })
            | QuicEvent::HandshakeDataReady
            | QuicEvent::DatagramReceived
            | QuicEvent::DatagramsUnblocked => {}
        }
    }

    /// Lets the role look after connections that have ended.
    fn note_ended(&mut self, now: Instant) {
        match &mut self.role {
            Role::Client(client) => client.note_ended(now, &mut self.traffic),
            Role::Server(server) => server.note_ended(&mut self.traffic),
        }
    }
}

/// Commands.
impl<S: Socket> Engine<S> {
    /// Client: carries `socket` to what `token` names. Bytes follow the request at once; until there is
    /// a connection the flow waits, and its socket is not read.
    pub fn open_flow(
        &mut self,
        now: Instant,
        mut socket: S,
        token: String,
        client_app: String,
    ) -> Option<FlowId> {
        let Role::Client(client) = &mut self.role else {
            socket.abort();
            return None;
        };
        client.open_flow(now, &mut self.traffic, socket, token, client_app)
    }

    /// Client: connections that are made to `server` from now on trust and prove this. Flows on open ones carry the new proof too,
    /// so that a server which learns of it later knows the client still.
    ///
    /// # Errors
    ///
    /// [`LossReason::Local`] where the configuration has no cipher suite for QUIC's first packets, or this is a server.
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

    /// Server: handshakes that begin from now on use this configuration. Open connections keep theirs.
    ///
    /// # Errors
    ///
    /// [`LossReason::Local`] where the configuration has no cipher suite for QUIC's first packets, or this is a client.
    pub fn set_server_crypto(
        &mut self,
        crypto: &Arc<rustls::ServerConfig>,
    ) -> Result<(), LossReason> {
        let Role::Server(server) = &mut self.role else {
            return Err(LocalError::NotAServer.into());
        };
        server.set_crypto(crypto)?;
        self.traffic.set_server_config(server.config());
        Ok(())
    }

    /// Server: the peer is known, or need not be: from now on it is served in full.
    pub fn admit(&mut self, now: Instant, id: ConnectionId) {
        if let Role::Server(server) = &mut self.role {
            server.admit(now, &mut self.traffic, id);
            self.note_ended(now);
        }
    }

    /// Server: what the answer to a client's JOIN says, once for each [`Event::Hello`] that has one. A client that is not
    /// known yet is to be admitted next.
    pub fn answer_join(&mut self, now: Instant, id: ConnectionId, grant: Option<Grant>) {
        if let Some(key) = self.traffic.connections.find(id) {
            self.traffic.answer_join(now, key, grant);
        }
    }

    /// Closes a connection: its flows are reset on both sides.
    pub fn close_connection(&mut self, now: Instant, id: ConnectionId, code: CloseCode) {
        self.traffic.close_connection(now, id, code);
        self.note_ended(now);
    }

    /// Server: ends a flow that is no longer allowed. Its application is reset, and its peer told
    /// [`FlowCode::Revoked`]. One that has ended already is left alone.
    pub fn revoke_flow(&mut self, now: Instant, id: FlowId) {
        self.end_flow(now, id, FlowCode::Revoked);
    }

    /// Server: the same for another reason, which its peer is told.
    pub fn end_flow(&mut self, now: Instant, id: FlowId, code: FlowCode) {
        if let Some(key) = self.traffic.flows.find(id) {
            self.traffic.revoke(now, key, code);
        }
    }

    /// Server: closes a connection whose client is no longer known, with [`CloseCode::Revoked`], or no longer served, with
    /// another code. All its flows end as by [`Engine::revoke_flow`], also those whose bytes have arrived whole. Returns how
    /// many these were.
    pub fn revoke_connection(&mut self, now: Instant, id: ConnectionId, code: CloseCode) -> usize {
        let Some(key) = self.traffic.connections.find(id) else {
            return 0;
        };
        let flows = self.traffic.revoke_flows_of(now, key);
        self.close_connection(now, id, code);
        flows
    }

    /// Server: what this client moves is counted, see [`Engine::client_reports`]. Beyond 256 clients all further ones are
    /// counted together.
    pub fn know_client(&mut self, name: &str) {
        self.traffic.clients.key(name);
    }

    /// Server: what this client may use, on connections that are named after it from now on.
    pub fn allow_client(&mut self, name: &str, allowance: Arc<Allowance>) {
        self.traffic.clients.allow(name, allowance);
    }

    /// Names the peer of a connection in reports, as [`Engine::know_client`] knows it, and holds it to what
    /// [`Engine::allow_client`] has said. To be called again where that has changed.
    pub fn name_peer(&mut self, now: Instant, id: ConnectionId, name: String) {
        let Traffic {
            connections,
            clients,
            ..
        } = &mut self.traffic;
        if let Some(key) = connections.find(id)
            && let Some(connection) = connections.get_mut(key)
        {
            let client = clients.key(&name);
            connection.name_peer(name, client);
            connection.shaping.obey(clients.allowance(client));
            // Whoever waits may wait for something else now.
            self.traffic.serve_shaped(now, key);
        }
    }

    /// Client: replaces every connection by a new one. Flows of bonds move to the new ones; others stay until they end.
    pub fn reconnect(&mut self, now: Instant) {
        if let Role::Client(client) = &mut self.role {
            client.reconnect(now, &mut self.traffic);
        }
    }

    /// Segments per send call from now on; 1 where the system does not segment.
    pub fn set_max_segments(&mut self, segments: usize) {
        self.traffic.transport.max_segments = segments.max(1);
    }

    /// How long the caller sleeps between turns, whatever happens: what pacing would have allowed then is made up for.
    pub fn set_sleeps(&mut self, sleeps: Duration) {
        self.traffic.sleeps = sleeps;
    }

    /// From now on no new flows; [`Engine::is_drained`] once the open ones are done.
    pub fn drain(&mut self) {
        self.traffic.draining = true;
    }

    /// Ends everything: open flows are reset, peers told. Poll for the last transmits afterwards.
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
