//! What an engine still holds: nothing, once all flows have ended.

use quictun_flow::{Flow, Socket};
use quinn_proto::Dir;

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
    /// Streams with bytes, or an end, that the peer has not acknowledged.
    pub unacknowledged: usize,
    /// Ended flows that peers have not confirmed.
    pub unconfirmed: usize,
    /// Streams that peers have opened and that have not ended in both directions.
    pub peer_streams: usize,
}

impl<S: Socket> Engine<S> {
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
            residue.parked += connection.parked;
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
