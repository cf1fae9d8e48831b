//! Queries of what an engine holds, for leak checks and for comparison with the memory charged; and faults that end
//! connections abnormally. Only tests use them.

use std::time::Instant;

use quictun_flow::{ConnectionId, Flow, ResumeError, Socket};
use quictun_wire::bond::BOND_ID_LEN;

use super::Engine;
use crate::carrier::Carrier;
use crate::connection::Connection;
use crate::grants::FLOW_COST;
use crate::loss::{LossReason, ProtocolError};
use crate::role::Role;

/// Resources that an engine holds for flows. Leak checks compare it with its default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowResources {
    /// Number of flows in any phase.
    pub flows: usize,
    /// Number of deadlines of flows.
    pub deadlines: usize,
    /// Number of streams for which connections know a flow.
    pub streams: usize,
    /// Bytes that connections hold outside their windows, for flows whose application does not read.
    pub parked: usize,
    /// Number of entries in the queues of flows that want to send or receive.
    pub queued: usize,
    /// Bytes received and not yet written to applications.
    pub buffered: usize,
    /// Bytes that connections count as held by their flows.
    pub received: usize,
    /// Number of streams with bytes, or an end, that the peer has not acknowledged.
    pub unacknowledged: usize,
    /// Number of ended flows that peers have not confirmed.
    pub unconfirmed: usize,
    /// Number of streams that peers have opened and that have not ended in both directions.
    pub peer_streams: usize,
}

/// Memory of an engine, in bytes. Tests compare what is charged with what is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUsage {
    /// Memory charged to the account of the process.
    pub charged: u64,
    /// Memory held, as far as the engine can count it: flows, received and unsent bytes, control frames, and streams
    /// that have ended here and not at the peer. Never more than `charged`.
    pub held: u64,
    /// The part of the charged memory that connections and the credit of their peers take.
    pub connections: u64,
    /// The part of the charged memory that flows take in addition to the bytes that they hold.
    pub flows: u64,
    /// The part of the charged memory that is kept for sending.
    pub kept: u64,
}

/// The state of a bonded flow on one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BondedFlow {
    /// Id of the bond.
    pub bond: [u8; BOND_ID_LEN],
    /// The flow's number in the bond.
    pub number: u64,
    /// Number of moves of the flow.
    pub leg: u64,
    /// True if the flow waits for a connection.
    pub detached: bool,
    /// The first number that has not arrived in order.
    pub next: u64,
    /// The number after all data that was sent.
    pub sent: u64,
}

impl<S: Socket, R: Role> Engine<S, R> {
    /// Returns the memory that is charged and held at this moment.
    pub fn memory_usage(&mut self) -> MemoryUsage {
        let traffic = &mut self.traffic;
        let (connections, flows) = (&mut traffic.connections, &traffic.flows);
        let for_flows = flows
            .iter()
            .map(|(_, entry)| FLOW_COST + entry.held() as u64);
        let for_flows: u64 = for_flows.sum();
        let for_connections = connections.iter_mut().map(Connection::held_for_itself);
        let for_connections: u64 = for_connections.sum();
        MemoryUsage {
            charged: traffic.memory.lease.charged(),
            held: traffic.memory.read_buffer.kept() as u64 + for_flows + for_connections,
            connections: connections
                .iter()
                .map(|(_, connection)| connection.charged())
                .sum(),
            flows: flows.count() as u64 * FLOW_COST,
            kept: traffic.memory.kept,
        }
    }

    /// Returns the flows of all bonds that the peers have agreed to.
    pub fn bonded_flows(&self) -> Vec<BondedFlow> {
        let bonds = self
            .traffic
            .bonds
            .by_key
            .values()
            .filter(|bond| bond.granted);
        let flows = bonds.flat_map(|bond| bond.flows().map(|key| (bond.id, key)));
        let flows = flows.map(|(bond, key)| {
            let entry = self.traffic.flows.get(key);
            let entry = entry.expect("invariant: a bond lists only existing flows");
            let bonded = entry.bonded.as_ref().expect("invariant: flow has a number");
            BondedFlow {
                bond,
                number: bonded.number,
                leg: bonded.leg,
                detached: entry.detached().is_some(),
                next: entry.flow().map_or(0, Flow::next),
                sent: entry.flow().map_or(0, Flow::sent),
            }
        });
        flows.collect()
    }

    /// Returns whether a flow of a bond could continue if its peer had everything before the number `next`. `None` if
    /// there is no such flow, or it cannot move.
    pub fn check_number(
        &self,
        bond: [u8; BOND_ID_LEN],
        number: u64,
        next: u64,
    ) -> Option<Result<(), ResumeError>> {
        let bonds = self
            .traffic
            .bonds
            .by_key
            .values()
            .filter(|found| found.granted);
        let key = bonds
            .filter(|found| found.id == bond)
            .find_map(|found| found.flow(number))?;
        let entry = self
            .traffic
            .flows
            .get(key)
            .filter(|entry| entry.can_move())?;
        Some(entry.flow()?.check_next(next))
    }

    /// Returns the resources that are held for flows at this moment.
    pub fn flow_resources(&mut self) -> FlowResources {
        let traffic = &mut self.traffic;
        let (connections, flows) = (&mut traffic.connections, &traffic.flows);
        let bridged = flows.iter().filter_map(|(_, entry)| entry.flow());
        let mut flow_resources = FlowResources {
            flows: flows.count(),
            deadlines: flows.deadlines(),
            buffered: bridged.map(|flow| flow.arrived().buffered()).sum(),
            ..FlowResources::default()
        };
        for connection in connections.iter_mut() {
            connection.add_resources(&mut flow_resources);
        }
        flow_resources
    }
}

/// Faults that tests inject.
impl<S: Socket, R: Role> Engine<S, R> {
    /// Server: refuses every later request for the current bonds. Their connections continue.
    pub fn forget_bond_ids(&mut self) {
        self.traffic.bonds.forget_ids();
    }

    /// Ends a connection as by an internal error of the library. The peer is told that it is closed, without a reason.
    pub fn break_connection(&mut self, now: Instant, id: ConnectionId) {
        let traffic = &mut self.traffic;
        let Some(key) = traffic.connections.find(id) else {
            return;
        };
        if let Some(connection) = traffic.connections.get_mut(key) {
            connection.break_off(now);
        }
        traffic.connections.mark(key);
        let error = ProtocolError::here("the QUIC implementation has failed".to_owned());
        traffic.lose(now, key, error.into());
        self.note_ended(now);
    }

    /// Forgets a connection without a notice to the peer. The peer's next packet is answered by a stateless reset, or
    /// not at all if this side is `mute`.
    pub fn forget_connection(&mut self, now: Instant, id: ConnectionId, mute: bool) {
        let traffic = &mut self.traffic;
        let Some(key) = traffic.connections.find(id) else {
            return;
        };
        if mute {
            traffic.lose(now, key, LossReason::Reset);
            if let Some(mut connection) = traffic.connections.remove(key) {
                match &connection.carrier {
                    Carrier::Quic(quic) => traffic.endpoint.mute(quic),
                    // The system resets the TCP connection: no end of it is mute.
                    Carrier::Tls(_) => traffic.carrier_sockets.remove(key),
                }
                connection.release(&mut traffic.memory.lease);
                traffic.totals.connections_closed += 1;
                connection.count_packets(&mut traffic.totals);
            }
        } else {
            traffic.forget(now, key, LossReason::Reset);
        }
        self.note_ended(now);
    }
}
