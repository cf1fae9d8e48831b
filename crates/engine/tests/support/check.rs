//! What an engine holds: for leak checks, and to compare with what it has charged. Only tests ask.

use quictun_flow::Socket;

use super::Engine;
use crate::connection::Connection;
use crate::grants::FLOW_COST;

/// What an engine holds for flows. Leak checks compare it with its default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Residue {
    /// Flows in any phase.
    pub flows: usize,
    /// Deadlines of flows.
    pub deadlines: usize,
    /// Streams that connections know a flow for.
    pub streams: usize,
    /// Flows whose application does not read.
    pub parked: usize,
    /// Places in queues of flows that want to send or to receive.
    pub queued: usize,
    /// Bytes received and not yet written to applications.
    pub buffered: usize,
    /// Bytes that connections count as held by their flows.
    pub received: usize,
    /// Streams with bytes, or an end, that the peer has not acknowledged.
    pub unacknowledged: usize,
    /// Ended flows that peers have not confirmed.
    pub unconfirmed: usize,
    /// Streams that peers have opened and that have not ended in both directions.
    pub peer_streams: usize,
}

/// Memory of an engine, bytes. Tests compare the two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Charged to the account of the process.
    pub charged: u64,
    /// Held, as far as the engine can count it: flows, received and unsent bytes, control frames,
    /// and streams that have ended here and not at the peer. Never more than `charged`.
    pub held: u64,
    /// The part of what is charged that connections and the credit of their peers take.
    pub connections: u64,
    /// The part that flows take besides the bytes that they hold.
    pub flows: u64,
    /// The part that is kept for sending.
    pub kept: u64,
}

impl<S: Socket> Engine<S> {
    /// What is charged and what is held at this moment.
    pub fn holdings(&mut self) -> Holdings {
        let traffic = &mut self.traffic;
        let (connections, flows) = (&mut traffic.connections, &traffic.flows);
        let for_flows = flows
            .iter()
            .map(|(_, entry)| FLOW_COST + entry.held() as u64);
        let for_flows: u64 = for_flows.sum();
        let for_connections = connections.iter_mut().map(Connection::held_for_itself);
        let for_connections: u64 = for_connections.sum();
        Holdings {
            charged: traffic.lease.charged(),
            held: traffic.read_buffer.kept() as u64 + for_flows + for_connections,
            connections: connections
                .iter()
                .map(|(_, connection)| connection.charged())
                .sum(),
            flows: flows.count() as u64 * FLOW_COST,
            kept: traffic.kept,
        }
    }

    /// What is held for flows at this moment.
    pub fn residue(&mut self) -> Residue {
        let traffic = &mut self.traffic;
        let (connections, flows) = (&mut traffic.connections, &traffic.flows);
        let bridged = flows.iter().filter_map(|(_, entry)| entry.flow());
        let mut residue = Residue {
            flows: flows.count(),
            deadlines: flows.deadlines(),
            buffered: bridged.map(|flow| flow.arrived().buffered()).sum(),
            ..Residue::default()
        };
        for connection in connections.iter_mut() {
            connection.add_residue(&mut residue);
        }
        residue
    }
}
