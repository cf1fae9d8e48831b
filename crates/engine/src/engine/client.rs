//! The functions of a client's engine.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use quictun_flow::{ConnectionId, FlowId, FlowRequest, Socket};
use quictun_wire::control::Frame;
use quictun_wire::handover::{HandedBond, HandedHolder};
use quictun_wire::listening::{Listen, ListenId};

use super::Engine;
use crate::carrier::quic::Endpoint;
use crate::client::{Client, ResolveResult};
use crate::config::{ClientRole, EngineConfig, Prover, ServerPlace, ServerToDial};
use crate::connection::Connection;
use crate::loss::LossReason;
use crate::report::{CarrierKind, ServerId, ServerReport, Side};
use crate::traffic::{Timeouts, Traffic};

/// Construction of a client's engine.
impl<S: Socket> Engine<S, Client> {
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
        Ok(Self {
            traffic: Traffic::new(endpoint, config.transport, Side::Client, timeouts, own),
            role: Client::new(config.role, rng)?,
        })
    }
}

/// Inputs of a client.
impl<S: Socket> Engine<S, Client> {
    /// Takes the answer to [`crate::ClientEvent::Resolve`] for `server` and `tenant`. If another tenant is in the place
    /// already, the answer is dropped.
    pub fn handle_resolved(
        &mut self,
        now: Instant,
        server: ServerId,
        tenant: u32,
        resolved: &ResolveResult,
    ) {
        self.role
            .handle_resolved(now, &mut self.traffic, server, tenant, resolved);
    }

    /// Sets the addresses of the outbound proxy through which TLS over TCP leads to `server`, or the reason why its
    /// name does not resolve. `None` means that TLS leads to the server itself. Call it before
    /// [`handle_resolved`](Self::handle_resolved): races that begin later use it.
    pub fn set_proxy(&mut self, now: Instant, server: ServerId, proxy: Option<ResolveResult>) {
        self.role.set_proxy(now, server, proxy);
    }

    /// Handles a pause of the process, which has done nothing since `since` although work was due. Call it after
    /// everything that has arrived meanwhile was handled. Asks servers that were not heard at once, because the machine
    /// may be on another network.
    pub fn handle_pause(&mut self, now: Instant, since: Instant) {
        self.role.handle_pause(now, &mut self.traffic, since);
    }

    /// Handles a change of routes or addresses, or the end of a sleep. Sends a keep-alive to every peer at once, and
    /// dials at once instead of waiting for the next attempt.
    pub fn handle_network_change(&mut self, now: Instant) {
        self.role.handle_network_change(now, &mut self.traffic);
    }

    /// Takes the result of dialling for a carrier: the answer to [`crate::ClientEvent::DialCarrier`].
    pub fn handle_carrier_dialed(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        result: Result<S, LossReason>,
    ) {
        self.traffic.handle_carrier_dialed(now, connection, result);
    }

    /// Handles an ICMP error for a datagram to this address, which a host or this machine rejects: an attempt by TLS that
    /// waits for QUIC begins at once. Hosts can forge such errors, so nothing else changes.
    pub fn handle_udp_rejected(&mut self, now: Instant, remote: SocketAddr) {
        self.role.handle_udp_rejected(now, remote);
    }

    /// Handles a change of the local port. Attempts to connect start again from the new port, beside those in progress.
    pub fn handle_new_port(&mut self, now: Instant) {
        self.role.handle_new_port(now, &mut self.traffic);
    }
}

/// Commands of a client.
impl<S: Socket> Engine<S, Client> {
    /// Carries `socket` to the target that the request names. The application's bytes follow the request at once. Until
    /// there is a connection, the flow waits, and its socket is not read.
    ///
    /// Returns `None` if the flow is refused. The socket is then reset, and [`crate::Event::FlowClosed`] gives the reason.
    pub fn open_flow(&mut self, now: Instant, socket: S, request: FlowRequest) -> Option<FlowId> {
        self.role.open_flow(now, &mut self.traffic, socket, request)
    }

    /// Sets the TLS configuration and the proof for new connections to `server`. New flows on open connections carry
    /// the new proof too, so that a server that learns the new secret later still recognizes the client.
    ///
    /// # Errors
    ///
    /// Returns [`LossReason::Local`] if the configuration has no cipher suite for QUIC's Initial packets.
    pub fn set_client_identity(
        &mut self,
        server: ServerId,
        crypto: &Arc<rustls::ClientConfig>,
        fallback: Option<&Arc<rustls::ClientConfig>>,
        prover: Option<Prover>,
    ) -> Result<(), LossReason> {
        let servers = &mut self.role.servers;
        servers.set_identity(server, crypto, fallback, prover)
    }

    /// Adds a server at the end of its list.
    ///
    /// # Errors
    ///
    /// Returns [`LossReason::Local`] if the configuration has no cipher suite for QUIC's Initial packets.
    pub fn add_server(&mut self, server: &ServerToDial) -> Result<(), LossReason> {
        self.role.servers.add(server)
    }

    /// Changes the server at one place of its list.
    pub fn set_place(&mut self, now: Instant, server: ServerId, place: ServerPlace) {
        self.role.set_place(now, &mut self.traffic, server, place);
    }

    /// Replaces every connection by a new one. Flows of bonds move to the new connections; other flows stay until they
    /// end.
    pub fn reconnect(&mut self, now: Instant) {
        self.role.reconnect(now, &mut self.traffic);
    }

    /// Ends the datagram flow that would be idle next, unless it has had a datagram a moment ago. Call it if the caller has
    /// nearly as many as it may.
    pub fn end_spare_datagram_flow(&mut self, now: Instant) {
        self.traffic.end_spare_datagram_flow(now);
    }

    /// Asks the server to listen, and lets it open flows for connections to that listener. The answer is
    /// [`crate::ClientEvent::ListenAnswered`]. Returns false if the connection is gone, or if its server does not listen for
    /// clients.
    pub fn listen(&mut self, connection: ConnectionId, listen: Listen) -> bool {
        self.traffic.listen(connection, listen)
    }

    /// Asks the server to stop listening for these reverse forwards, at most 64 in one call.
    pub fn unlisten(&mut self, connection: ConnectionId, ids: Vec<ListenId>) {
        if !ids.is_empty() {
            self.traffic
                .send_control_frame(connection, &Frame::Unlisten(ids));
        }
    }

    /// Sets the target of a flow that the server has opened, for reports.
    pub fn name_target(&mut self, flow: FlowId, target: String) {
        let flows = &mut self.traffic.flows;
        if let Some(entry) = flows.find(flow).and_then(|key| flows.get_mut(key)) {
            entry.set_token(target);
        }
    }
}

/// Hand-over to another process on the same host: see `engine/hand_over.rs`.
impl<S: Socket> Engine<S, Client> {
    /// Returns the bonds with the flows that another process can continue, in a fixed order, and the ids of these flows.
    /// `name` returns the address of a server, or `None` if its bonds stay here. The state of the sockets is the
    /// caller's. Call [`Engine::detach_all`] first.
    pub fn hand_over(
        &self,
        now: Instant,
        name: impl Fn(ServerId) -> Option<String>,
    ) -> Vec<(HandedBond, Vec<FlowId>)> {
        self.traffic.hand_over(now, |bond| {
            let address = name(bond.server).filter(|_| bond.granted)?;
            let route = bond.route;
            Some(HandedHolder::Server { address, route })
        })
    }

    /// Adds a bond with `server` that another process has handed over, with a socket for each of its flows. Returns the
    /// ids of the flows. No socket is used before the engine's first turn, in which a connection for the bond is dialled.
    pub fn take_over(
        &mut self,
        now: Instant,
        handed: &HandedBond,
        server: ServerId,
        sockets: impl IntoIterator<Item = S>,
    ) -> Vec<FlowId> {
        let (bond, flows) = self.traffic.take_over(now, handed, server, sockets);
        self.role.adopt(now, server, bond);
        flows
    }
}

/// Queries of a client.
impl<S: Socket> Engine<S, Client> {
    /// Returns whether at least one connection can take flows, and its server has admitted this client.
    pub fn is_connected(&self) -> bool {
        let mut connections = self.traffic.connections.iter();
        connections.any(|(_, connection)| connection.is_usable() && connection.is_admitted())
    }

    /// Returns whether a connection that can take flows has heard its server since other connections to that server
    /// fell silent.
    pub fn hears_server(&self) -> bool {
        let all = || self.traffic.connections.iter().map(|(_, each)| each);
        all().any(|each| {
            let beside = all().filter(|other| other.server == each.server);
            let silent_since = beside.filter_map(Connection::silent_since).max();
            let heard = silent_since.is_none_or(|since| each.heard_since(since));
            each.is_usable() && each.is_admitted() && heard
        })
    }

    /// Returns the state of all servers, in the order of the configuration.
    pub fn server_reports(&self, now: Instant) -> Vec<ServerReport> {
        self.role.server_reports(now, &self.traffic)
    }

    /// Returns the kind of a connection's carrier.
    pub fn carrier_of(&self, id: ConnectionId) -> Option<CarrierKind> {
        let connection = self.traffic.connections.named(id)?;
        Some(connection.carrier.kind())
    }

    /// Returns the server that carries a flow, if a connection carries it.
    pub fn server_of(&self, id: FlowId) -> Option<ServerId> {
        let entry = self.traffic.flows.get(self.traffic.flows.find(id)?)?;
        let connection = self
            .traffic
            .connections
            .get(entry.stream_key()?.connection)?;
        Some(connection.server)
    }
}
