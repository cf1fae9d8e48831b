//! The carriers of a client: attempts by each kind, probes by QUIC beside TLS, and the climb back.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use quictun_flow::{ConnectionKey, Socket};
use quictun_wire::code::CloseCode;

use super::Client;
use super::bonds::route_of;
use super::slot::Slot;
use super::ways::{Candidate, Ways};
use crate::connection::Connection;
use crate::event::ClientEvent;
use crate::loss::LossReason;
use crate::report::{CarrierKind, QuicState, ServerId};
use crate::strangers::SourcePrefix;
use crate::traffic::Traffic;

impl Client {
    /// Returns the ways that a race to a server tries. The server has these addresses.
    pub(super) fn ways<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &Traffic<S>,
        server: ServerId,
        addresses: &[SocketAddr],
    ) -> Ways {
        let rtt = rtt_of(traffic, server);
        let network = addresses.first().and_then(|&address| self.network(address));
        if let (Some(network), Some(ladder)) = (network, self.servers.ladder(server)) {
            ladder.enter(now, network);
        }
        self.servers.ways(now, server, addresses, rtt)
    }

    /// Returns the network from which this machine would reach a server now.
    pub(super) fn network_to(&self, server: ServerId) -> Option<SourcePrefix> {
        self.network(*self.servers.addresses(server).first()?)
    }

    fn network(&self, remote: SocketAddr) -> Option<SourcePrefix> {
        let local = self.role.surroundings.local_address.as_ref()?;
        Some(SourcePrefix::of(local(remote)?))
    }

    /// Begins an attempt of a slot.
    pub(super) fn connect<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        index: usize,
        candidate: Candidate,
    ) -> Result<ConnectionKey, LossReason> {
        let slot = &self.slots[index];
        let (server, address) = (slot.server, candidate.address);
        let route = route_of(slot, traffic);
        let dial = self.servers.dial_config(server, slot.wants_fallback());
        let key = match candidate.carrier {
            CarrierKind::Quic => {
                let route = route.map(|route| (route, &mut self.rng));
                traffic.connect(now, address, dial.name, dial.quic, route)
            }
            CarrierKind::Tls => {
                let mut at = address;
                if !candidate.through_proxy {
                    at.set_port(dial.tls_port.unwrap_or(address.port()));
                }
                let dialled = traffic.connect_over_tcp(now, at, dial.name, dial.tls, route);
                dialled.map(|(key, connection)| {
                    traffic.events.push(ClientEvent::DialCarrier {
                        connection,
                        server,
                        remote: at,
                        through_proxy: candidate.through_proxy,
                    });
                    key
                })
            }
        }?;
        if let Some(connection) = traffic.connections.get_mut(key) {
            (connection.server, connection.resolved) = (server, address);
        }
        Ok(key)
    }

    /// Handles a rejection of datagrams to this address. It may be forged, so it only ends the head start of QUIC.
    pub(crate) fn handle_udp_rejected(&mut self, now: Instant, remote: SocketAddr) {
        for slot in &mut self.slots {
            slot.handle_udp_rejected(now, remote);
        }
    }

    /// Records that a connection carries. If it is by TLS, attempts by QUIC go on beside it, unless a climb has failed
    /// just now.
    pub(super) fn note_carrier<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        index: usize,
        key: ConnectionKey,
    ) {
        let kind_of = |key| kind_of(traffic, key);
        let kind = kind_of(key);
        let slot = &mut self.slots[index];
        let server = slot.server;
        let mut goes_on = false;
        if let (Some(kind), Some(ladder)) = (kind, self.servers.ladder(server)) {
            ladder.handle_carried(now, kind);
            goes_on = kind == CarrierKind::Tls && !ladder.is_held(now);
        }
        let probes = |other| goes_on && kind_of(other) == Some(CarrierKind::Quic);
        let (replaced, others) = slot.handle_connected(key, probes);
        let probing = slot.is_probing();
        for other in others {
            traffic.end_attempt(now, other);
        }
        if let Some(replaced) = replaced {
            let climbs = kind == Some(CarrierKind::Quic) && is_over_tls(traffic, replaced);
            if !(climbs && self.keep_for_transfers(now, traffic, index, replaced))
                && let Some(replaced) = traffic.connections.get_mut(replaced)
            {
                replaced.retire();
            }
            self.sweep_at.get_or_insert(now);
        }
        if kind == Some(CarrierKind::Tls) && !probing {
            self.note_quic_silent(now, traffic, server);
        }
    }

    /// Records that QUIC has not connected beside TLS. A probe follows later.
    pub(super) fn note_quic_silent<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &Traffic<S>,
        server: ServerId,
    ) {
        let (jitter, busy) = (self.jitter(), traffic.flows.count() > 0);
        if let Some(ladder) = self.servers.ladder(server) {
            ladder.handle_silent(now, jitter, busy);
        }
    }

    /// Tries QUIC beside the connections by TLS to servers for which that is due.
    pub(super) fn probe_if_due<S: Socket>(&mut self, now: Instant, traffic: &mut Traffic<S>) {
        for server in self.servers.ids() {
            let Some(ladder) = self.servers.ladder(server) else {
                continue;
            };
            let due = ladder.takes_probe(now);
            if !due && !ladder.lacks_probe() {
                continue;
            }
            let probes = ladder.probes();
            for index in 0..self.slots.len() {
                let slot = &self.slots[index];
                let over_tls = slot.up().filter(|&up| is_over_tls(traffic, up));
                if slot.server == server
                    && !slot.is_probing()
                    && let Some(up) = over_tls
                {
                    match self.quic_address(traffic, server, up, probes) {
                        Some(address) if due => self.probe(now, traffic, index, address),
                        Some(_) | None => self.plan_probe(now, traffic, server),
                    }
                }
            }
        }
    }

    /// Plans the next probe. The last one was due while its connection was silent, or was that of another slot.
    fn plan_probe<S: Socket>(&mut self, now: Instant, traffic: &Traffic<S>, server: ServerId) {
        let (jitter, busy) = (self.jitter(), traffic.flows.count() > 0);
        if let Some(ladder) = self.servers.ladder(server).filter(|it| it.lacks_probe()) {
            ladder.plan_probe(now, jitter, busy);
        }
    }

    /// Returns the address at which to try QUIC beside a connection by TLS, if it is known: first that of the connection,
    /// unless it is a proxy's, then the others of the server. QUIC may pass to another one than TLS does.
    fn quic_address<S: Socket>(
        &self,
        traffic: &Traffic<S>,
        server: ServerId,
        up: ConnectionKey,
        probes: usize,
    ) -> Option<SocketAddr> {
        let resolved = traffic.connections.get(up)?.resolved;
        let addresses = self.servers.addresses(server);
        let first = addresses.iter().position(|&address| address == resolved);
        let at = first.unwrap_or(0) + probes.saturating_sub(1);
        let next = addresses.get(at % addresses.len().max(1)).copied();
        next.or_else(|| Some(resolved).filter(|_| !self.servers.has_proxy(server)))
    }

    fn probe<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        index: usize,
        address: SocketAddr,
    ) {
        let candidate = Candidate::alone(address, CarrierKind::Quic);
        match self.connect(now, traffic, index, candidate) {
            Ok(key) => self.slots[index].add_probe(key),
            Err(_) => self.note_quic_silent(now, traffic, self.slots[index].server),
        }
    }

    /// Returns whether a connection whose handshake has ended waits for an answer to HELLO before it carries: a network
    /// may let a handshake pass, and no more. That is so for QUIC where it has been blocked, and beside TLS.
    pub(super) fn awaits_proof<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &Traffic<S>,
        index: usize,
        key: ConnectionKey,
    ) -> bool {
        let slot = &self.slots[index];
        let (probe, server) = (slot.has_probe(key), slot.server);
        let ladder = self.servers.ladder(server);
        let blocked = ladder.is_some_and(|it| it.chooses() && it.state(now) == QuicState::Blocked);
        kind_of(traffic, key) == Some(CarrierKind::Quic) && (probe || blocked)
    }

    /// Makes a connection that awaited its proof the one of its slot, once HELLO is answered on it.
    pub(super) fn climb<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        key: ConnectionKey,
    ) {
        let connection = traffic.connections.get(key);
        if let Some(index) = self.slot_of_attempt(key)
            && let Some(connection) = connection.filter(|it| it.is_admitted() && it.is_usable())
        {
            let up = self.slots[index].up();
            let up = up.and_then(|up| traffic.connections.get(up));
            if connection.bond.is_none() && up.is_some_and(|up| up.bond.is_some()) {
                // The server has begun another bond meanwhile, and this connection has no part in it.
                self.end_unproven(now, traffic, key);
                return;
            }
            self.slots[index].bond = connection.bond.or(self.slots[index].bond);
            self.note_carrier(now, traffic, index, key);
            self.redial.handle_success();
            traffic.move_flows(now, key);
            self.place_waiting(now, traffic);
        }
    }

    /// Ends an attempt whose handshake has ended, and that is not to carry. Returns false if the connection is no attempt.
    pub(super) fn end_unproven<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        key: ConnectionKey,
    ) -> bool {
        let Some(index) = self.slot_of_attempt(key) else {
            return false;
        };
        let reason = if self.slots[index].has_probe(key) {
            // The next probe is planned, and no event reports this one.
            LossReason::ClosedLocally
        } else {
            LossReason::TimedOut
        };
        traffic.close(now, key, CloseCode::Done, "", reason);
        traffic.suspects.retain(|&suspect| suspect != key);
        true
    }

    /// Returns the slot of a connection that is not the slot's own yet.
    pub(super) fn slot_of_attempt(&self, key: ConnectionKey) -> Option<usize> {
        let has = |slot: &Slot| slot.under_way().any(|attempt| attempt == key);
        self.slots.iter().position(has)
    }

    /// Handles the silence of the only connection of a slot, by QUIC, on which nothing has arrived but its handshake. The
    /// next race begins with TLS, and after a pause if this repeats.
    pub(super) fn leave_unproven<S: Socket>(
        &mut self,
        now: Instant,
        traffic: &mut Traffic<S>,
        index: usize,
    ) {
        let ladder = self.servers.ladder(self.slots[index].server);
        if ladder.is_some_and(|ladder| ladder.handle_unproven(now)) {
            self.race(now, traffic, index);
        } else {
            self.back_off(now, index, &LossReason::TimedOut);
        }
    }
}

fn is_over_tls<S: Socket>(traffic: &Traffic<S>, key: ConnectionKey) -> bool {
    kind_of(traffic, key) == Some(CarrierKind::Tls)
}

fn kind_of<S: Socket>(traffic: &Traffic<S>, key: ConnectionKey) -> Option<CarrierKind> {
    Some(traffic.connections.get(key)?.carrier.kind())
}

/// Returns the lowest round-trip time of the connections to a server.
fn rtt_of<S: Socket>(traffic: &Traffic<S>, server: ServerId) -> Option<Duration> {
    let connections = traffic.connections.iter().map(|(_, connection)| connection);
    let of_server =
        connections.filter(|connection| connection.server == server && connection.is_established());
    of_server.map(Connection::path).map(|path| path.rtt).min()
}
