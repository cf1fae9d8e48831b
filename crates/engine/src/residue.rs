//! What an engine holds: for leak checks, and to compare with what it has charged.

use quictun_flow::{Flow, Socket};
use quinn_proto::Dir;

use crate::charges::FLOW_COST;
use crate::engine::Engine;

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
        let mut held = self.read_buffer.kept() as u64;
        for (_, entry) in &self.flows {
            held += FLOW_COST + entry.held() as u64;
        }
        for connection in self.connections.iter_mut().flatten() {
            held += connection.held_for_itself();
        }
        let connections = self.connections.iter().flatten();
        Holdings {
            charged: self.lease.charged(),
            held,
            connections: connections.map(|connection| connection.memory).sum(),
            flows: self.flows.len() as u64 * FLOW_COST,
            kept: self.kept,
        }
    }

    /// What is held for flows at this moment.
    pub fn residue(&mut self) -> Residue {
        let mut residue = Residue {
            flows: self.flows.len(),
            deadlines: self.flow_timers.len(),
            ..Residue::default()
        };
        for (_, entry) in &self.flows {
            residue.buffered += entry.flow().map_or(0, Flow::buffered);
        }
        for connection in self.connections.iter_mut().flatten() {
            residue.streams += connection.streams.len();
            residue.parked += connection.holding.parked;
            residue.received += connection.holding.held;
            residue.queued += connection.outbound.len() + connection.inbound.len();
            if !connection.quic.is_closed() {
                let control = connection.control.streams();
                let server = connection.quic.side().is_server();
                let streams = connection.quic.streams();
                residue.unacknowledged += streams.send_streams().saturating_sub(control);
                let open = streams.remote_open_streams(Dir::Bi);
                let open = usize::try_from(open).unwrap_or(usize::MAX);
                residue.peer_streams += open.saturating_sub(if server { control } else { 0 });
                residue.unconfirmed += connection.control.unconfirmed();
            }
        }
        residue
    }
}
