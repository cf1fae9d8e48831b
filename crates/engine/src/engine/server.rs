//! The functions of a server's engine.

use std::sync::Arc;
use std::time::Instant;

use quictun_flow::{Allowance, ConnectionId, FlowId, FlowPhase, LocalLimit, Socket};
use quictun_wire::code::{CloseCode, FlowCode};
use quictun_wire::control::Frame;
use quictun_wire::handover::HandedBond;
use quictun_wire::join::Grant;
use quictun_wire::listening::{Incoming, ListenAck};

use super::Engine;
use crate::bonds::{Bond, ClientProofs};
use crate::carrier::quic::Endpoint;
use crate::config::{EngineConfig, ServerRole};
use crate::loss::LossReason;
use crate::report::{ClientReport, ServerId, Side};
use crate::revoke::{ClientCredentials, RequestedFlow};
use crate::server::Server;
use crate::traffic::carrier_sockets::AcceptedTcp;
use crate::traffic::listeners::OpenOutcome;
use crate::traffic::{Timeouts, Traffic};

/// Construction of a server's engine.
impl<S: Socket> Engine<S, Server> {
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
            role: server,
        })
    }
}

/// The TCP connections of carriers.
impl<S: Socket> Engine<S, Server> {
    /// Takes a TCP connection that a listener for carriers has accepted. Returns its id, with which to report that the
    /// socket is ready. `None` if there is no room: the connection is closed then.
    pub fn handle_accepted(&mut self, now: Instant, tcp: AcceptedTcp<S>) -> Option<ConnectionId> {
        self.role.handle_accepted(now, &mut self.traffic, tcp)
    }

    /// Takes a TCP connection away: the answer to [`crate::ServerEvent::Misrouted`].
    pub fn take_carrier(&mut self, now: Instant, id: ConnectionId) -> Option<AcceptedTcp<S>> {
        let taken = self.traffic.take_carrier(now, id);
        self.note_ended(now);
        taken
    }
}

/// Commands of a server.
impl<S: Socket> Engine<S, Server> {
    /// Sets the TLS configuration of handshakes that start from now on. Open connections are not affected.
    ///
    /// # Errors
    ///
    /// Returns [`LossReason::Local`] if the configuration has no cipher suite for QUIC's Initial packets.
    pub fn set_server_crypto(
        &mut self,
        crypto: &Arc<rustls::ServerConfig>,
    ) -> Result<(), LossReason> {
        self.role.set_crypto(crypto)?;
        self.traffic.endpoint.set_server(self.role.settings());
        Ok(())
    }

    /// Sets the names of further protocols that a handshake over TCP may select, for programs without quictun. A client that
    /// offers quictun's own protocol always gets that.
    pub fn set_other_protocols(&mut self, names: Vec<Vec<u8>>) {
        self.role.tls.select_others(names);
    }

    /// Admits the client of a connection, which is known or need not be, and serves it in full from now on.
    pub fn admit(&mut self, now: Instant, id: ConnectionId) {
        self.role.admit(now, &mut self.traffic, id);
        self.note_ended(now);
    }

    /// Answers a client's JOIN with `grant`. Call it once for each [`crate::ServerEvent::Hello`] that contains a JOIN. If the
    /// client is not known yet, call [`Engine::admit`] next.
    pub fn answer_join(&mut self, now: Instant, id: ConnectionId, grant: Option<Grant>) {
        if let Some(key) = self.traffic.connections.find(id) {
            self.traffic.answer_join(now, key, grant);
        }
    }

    /// Sets the name of a connection's peer in reports, and applies the limits that [`Engine::allow_client`] has set
    /// for that name. Call it again after those limits, or the name, have changed. A bond belongs to the client that
    /// has one of the `proofs` of its owner, whatever its name (PROTOCOL BOND-4).
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

    /// Gives a client that has not identified itself less time for that. Returns false if it has no more time than that
    /// already.
    pub fn hurry_identity(&mut self, id: ConnectionId, by: Instant) -> bool {
        let connections = &mut self.traffic.connections;
        let Some((key, connection)) = connections.named_mut(id) else {
            return false;
        };
        let hurried = connection.admission.hurry(by);
        connections.mark(key);
        hurried
    }

    /// Ends a flow that is no longer allowed. The application's connection is reset, and the peer receives
    /// [`FlowCode::Revoked`]. Has no effect on a flow that has already ended.
    pub fn revoke_flow(&mut self, now: Instant, id: FlowId) {
        self.end_flow(now, id, FlowCode::Revoked);
    }

    /// Ends a flow as [`Engine::revoke_flow`] does, but with another code for the peer.
    pub fn end_flow(&mut self, now: Instant, id: FlowId, code: FlowCode) {
        if let Some(key) = self.traffic.flows.find(id) {
            self.traffic.revoke(now, key, code);
        }
    }

    /// Ends a flow of a client that does not answer ([`Engine::is_left`]), so that a new flow of the client gets its
    /// place.
    pub fn give_way(&mut self, now: Instant, id: FlowId) {
        if let Some(key) = self.traffic.flows.find(id) {
            self.traffic.revoke(now, key, LocalLimit::GaveWay);
        }
    }

    /// Closes a connection whose client is no longer known, with [`CloseCode::Revoked`], or no longer served, with
    /// another code. All its flows end as by [`Engine::revoke_flow`], including those whose bytes have all arrived.
    /// Returns the number of flows.
    pub fn revoke_connection(&mut self, now: Instant, id: ConnectionId, code: CloseCode) -> usize {
        let Some(key) = self.traffic.connections.find(id) else {
            return 0;
        };
        let flows = self.traffic.revoke_flows_of(now, key);
        self.close_connection(now, id, code);
        flows
    }

    /// Starts to count this client's traffic, see [`Engine::client_reports`]. Beyond 256 clients, all further ones are
    /// counted together.
    pub fn know_client(&mut self, name: &str) {
        self.traffic.clients.key(name);
    }

    /// Sets the allowance of this client, for connections that are named after it from now on.
    pub fn allow_client(&mut self, name: &str, allowance: Arc<Allowance>) {
        self.traffic.clients.allow(name, allowance);
    }
}

/// Listeners that a server opens for its clients (PROTOCOL section 5.9).
impl<S: Socket> Engine<S, Server> {
    /// Answers [`crate::ServerEvent::Listen`], or reports that it no longer listens. A client that has a listener is asked
    /// whether it is still there: see [`crate::Event::Unresponsive`].
    pub fn answer_listen(&mut self, connection: ConnectionId, answer: ListenAck) {
        if answer.result.is_ok() {
            self.traffic.watch_client(connection);
        }
        self.traffic
            .send_control_frame(connection, &Frame::ListenAck(answer));
    }

    /// Returns whether the client of a connection takes another flow of a listener now. If it does not,
    /// [`crate::ServerEvent::StreamsAvailable`] reports when it permits more.
    pub fn takes_incoming(&mut self, connection: ConnectionId) -> bool {
        self.traffic.takes_incoming(connection)
    }

    /// Carries `socket`, which has connected to the listener at the address `listener`, to the client. The
    /// application's bytes follow the request at once. If the client does not accept the flow by `until`, the flow is
    /// reset. The engine chooses the flow's number in the bond, whatever `incoming` has.
    pub fn open_incoming(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        incoming: Incoming,
        (socket, listener): (S, String),
        until: Instant,
    ) -> OpenOutcome<S> {
        self.traffic
            .open_incoming(now, connection, incoming, (socket, listener), until)
    }
}

/// Hand-over to another process on the same host: see `engine/hand_over.rs`.
impl<S: Socket> Engine<S, Server> {
    /// Returns the bonds with the flows that another process can continue, in a fixed order, and the ids of these flows.
    /// The state of the sockets and of visitors is the caller's. Call [`Engine::detach_all`] first.
    pub fn hand_over(&self, now: Instant) -> Vec<(HandedBond, Vec<FlowId>)> {
        let holder = |bond: &Bond| Some(bond.hand_over_holder());
        self.traffic.hand_over(now, holder)
    }

    /// Adds a bond that another process has handed over, with a socket for each of its flows. Returns the ids of the
    /// flows. No socket is used before the engine's first turn.
    pub fn take_over(
        &mut self,
        now: Instant,
        handed: &HandedBond,
        sockets: impl IntoIterator<Item = S>,
    ) -> Vec<FlowId> {
        let no_server = ServerId::default();
        self.traffic.take_over(now, handed, no_server, sockets).1
    }
}

/// Queries of a server.
impl<S: Socket> Engine<S, Server> {
    /// Returns whether the client of a connection has not identified itself yet.
    pub fn awaits_identity(&self, id: ConnectionId) -> bool {
        let connection = self.traffic.connections.named(id);
        connection.is_some_and(|connection| !connection.is_admitted() && !connection.is_lost())
    }

    /// Returns the credentials that the client of a connection has shown. `None` if the connection is gone.
    pub fn credentials(&self, id: ConnectionId) -> Option<ClientCredentials> {
        let connection = self.traffic.connections.named(id)?;
        Some(ClientCredentials {
            certificates: connection.carrier.certificates(),
            exporter: connection.exporter(),
            proofs: connection.admission.proofs(),
            opened: connection.opened(),
        })
    }

    /// Returns every flow that a client has asked for and whose request has been read, in no particular order.
    pub fn requested_flows(&self) -> Vec<RequestedFlow> {
        let flows = self.traffic.flows.iter().map(|(_, entry)| entry);
        let requested = flows
            .filter(|entry| !matches!(entry.phase, FlowPhase::Waiting(_) | FlowPhase::Reading(_)));
        let requested = requested.filter(|entry| !entry.is_incoming());
        requested
            .filter_map(|entry| {
                Some(RequestedFlow {
                    flow: entry.id(),
                    connection: self.traffic.leg_of(entry)?.connection,
                    token: entry.token().to_owned(),
                    server_app: entry.server_app().to_owned(),
                })
            })
            .collect()
    }

    /// Returns whether no connection on which the client answers carries the flow, or could carry it next.
    pub fn is_left(&self, id: FlowId) -> bool {
        let connections = &self.traffic.connections;
        let answers = |key| {
            let connection = connections.get(key);
            connection.is_some_and(|it| !it.is_suspect() && !it.is_lost())
        };
        let flows = &self.traffic.flows;
        let Some(entry) = flows.find(id).and_then(|key| flows.get(key)) else {
            return false;
        };
        let bond = entry.bonded.as_ref().and_then(|bonded| bonded.bond);
        let bond = bond.and_then(|bond| self.traffic.bonds.get(bond));
        let mut next = bond.into_iter().flat_map(|bond| &bond.connections);
        let carried = entry.stream_key();
        !carried.is_some_and(|on| answers(on.connection)) && !next.any(|&key| answers(key))
    }

    /// Returns all named clients that were ever known, in the order in which the engine learned of them.
    pub fn client_reports(&self) -> Vec<ClientReport> {
        self.traffic.clients.reports()
    }
}
