//! Queries about connections and flows: for reports and leak checks.

use std::net::SocketAddr;
use std::time::Instant;

use quictun_flow::{ConnectionId, Flow, FlowEntry, FlowId, Socket};

use super::Engine;
use crate::bonds::Bond;
use crate::connection::Connection;
use crate::path::PathSummary;
use crate::report::{BondReport, ConnectionReport, FlowReport, Totals};
use crate::role::Role;

impl<S: Socket, R: Role> Engine<S, R> {
    /// Returns the peer's address of a connection that exists.
    pub fn remote(&self, id: ConnectionId) -> Option<SocketAddr> {
        Some(self.traffic.connections.named(id)?.remote())
    }

    /// Returns when the peer of a connection was last heard.
    pub fn last_heard(&self, id: ConnectionId) -> Option<Instant> {
        Some(self.traffic.connections.named(id)?.heard())
    }

    /// Returns whether the peer of a connection does not answer: [`Event::Unresponsive`](crate::Event::Unresponsive) was
    /// the latest report about it.
    pub fn is_silent(&self, id: ConnectionId) -> bool {
        let connection = self.traffic.connections.named(id);
        connection.is_some_and(Connection::is_unresponsive)
    }

    /// Returns the application's socket of a flow.
    pub fn socket(&self, id: FlowId) -> Option<&S> {
        let flows = &self.traffic.flows;
        flows.get(flows.find(id)?)?.socket()
    }

    /// Returns the TLS exporter value that proofs of pre-shared secrets are computed from (PROTOCOL section 5.5).
    pub fn exporter(&self, id: ConnectionId) -> Option<[u8; 32]> {
        self.traffic.connections.named(id)?.exporter()
    }

    /// Returns the flows of a connection and of its bond, which may be on other connections.
    pub fn flows_of(&self, id: ConnectionId) -> Vec<FlowId> {
        let Some(connection) = self.traffic.connections.named(id) else {
            return Vec::new();
        };
        let bond = connection
            .bond
            .and_then(|bond| self.traffic.bonds.get(bond));
        let mut keys = connection.streams.flows();
        keys.extend(bond.into_iter().flat_map(Bond::flows));
        keys.sort_unstable();
        keys.dedup();
        let entries = keys.into_iter().map(|key| self.traffic.flows.get(key));
        entries.flatten().map(FlowEntry::id).collect()
    }

    /// Returns the properties of the path that decide whether packets may be gathered.
    pub fn path(&mut self) -> PathSummary {
        let connections = self.traffic.connections.iter();
        let usable = connections.map(|(_, connection)| connection);
        let mut path = PathSummary::default();
        for connection in usable.filter(|connection| connection.is_usable()) {
            let round_trip = connection.path().min_rtt;
            let least = path.round_trip.unwrap_or(round_trip);
            path.round_trip = Some(least.min(round_trip));
            path.send_at_once |= connection.is_delay_sensitive();
        }
        let round_trip = path.round_trip.unwrap_or_default();
        self.traffic.talk.set_round_trip(round_trip);
        path
    }

    /// Returns whether applications exchange messages: a connection or a flow opens, or a flow moves little data at a
    /// time. Packets should not be delayed then.
    pub fn is_talking(&self, now: Instant) -> bool {
        self.traffic.talk.expects_messages(now)
    }

    /// Returns whether no flow has opened or moved data for a while. A datagram that arrives then may be a keep-alive,
    /// and no other needs to follow it.
    pub fn is_quiet(&self, now: Instant) -> bool {
        self.traffic.talk.is_quiet(now)
    }

    /// Returns whether no flow is left on a connection, and peers have acknowledged, and if they can confirmed, all
    /// data. Flows that wait for another connection do not count, unless they only have to be delivered.
    pub fn is_drained(&mut self) -> bool {
        let traffic = &mut self.traffic;
        let mut flows = traffic.flows.iter();
        flows.all(|(_, entry)| entry.detached().is_some() && !entry.needs_no_peer())
            && traffic.connections.iter_mut().all(Connection::is_settled)
    }

    /// Returns the number of flows that have ended here and that their peers have not confirmed. Some of their data may
    /// be lost if this process, or the peer's, ends now.
    pub fn unconfirmed(&self) -> usize {
        let connections = self.traffic.connections.iter();
        connections
            .map(|(_, connection)| connection.control.unconfirmed())
            .sum()
    }

    /// Returns the counters since the engine's creation.
    pub fn totals(&self) -> Totals {
        // Carriers count the packets of open connections.
        let mut totals = self.traffic.totals;
        for (_, connection) in self.traffic.connections.iter() {
            connection.count_packets(&mut totals);
        }
        totals
    }

    /// Returns the state of all connections.
    pub fn connection_reports(&self) -> Vec<ConnectionReport> {
        let connections = self.traffic.connections.iter();
        connections
            .map(|(_, connection)| {
                let bond = connection
                    .bond
                    .and_then(|bond| self.traffic.bonds.get(bond));
                let bond = bond.filter(|bond| bond.granted).map(Bond::short_id);
                connection.report(bond)
            })
            .collect()
    }

    /// Returns the state of all bonds that both sides have agreed on.
    pub fn bond_reports(&self) -> Vec<BondReport> {
        let bonds = self.traffic.bonds.iter().filter(|bond| bond.granted);
        bonds
            .map(|bond| {
                let flows = || bond.flows().filter_map(|key| self.traffic.flows.get(key));
                let retained = |entry: &FlowEntry<S>| entry.flow().map_or(0, Flow::retained);
                BondReport {
                    id: bond.short_id(),
                    client: bond.client().map(str::to_owned),
                    connections: bond.connections.len(),
                    flows: bond.count(),
                    detached: flows().filter(|entry| entry.detached().is_some()).count(),
                    retained: flows().map(retained).sum(),
                    alone_since: bond.alone_since,
                }
            })
            .collect()
    }

    /// Returns the state of all flows that have a connection or wait for another one.
    pub fn flow_reports(&self) -> Vec<FlowReport> {
        let flows = self.traffic.flows.iter();
        flows
            .filter_map(|(key, entry)| {
                let leg = match entry.stream_key() {
                    Some(stream_key) => {
                        let connection = self.traffic.connections.get(stream_key.connection)?;
                        connection.leg(stream_key.stream)
                    }
                    None => entry.detached()?.leg(),
                };
                let mut report = entry.report(leg);
                let datagrams = self.traffic.datagram_flows.counters(key);
                report.bytes_to_tunnel += datagrams.to_tunnel;
                report.bytes_to_app += datagrams.to_app;
                Some(report)
            })
            .collect()
    }
}
