//! A look at connections and flows: for reports, leak checks, and rules that have changed.

use std::time::Duration;

use quictun_flow::{Flow, Socket};

use super::Traffic;
use crate::connection::Connection;
use crate::flow_entry::{FlowEntry, Phase};
use crate::grants::FLOW_COST;
use crate::ids::{ConnectionId, FlowId};
use crate::report::FlowReport;
use crate::residue::{Holdings, Residue};
use crate::revoke::{Asked, Credentials};

impl<S: Socket> Traffic<S> {
    /// Whether no flow is left and all they sent has been acknowledged, and confirmed by peers that can.
    pub(crate) fn is_drained(&mut self) -> bool {
        self.flows.len() == 0 && self.connections.iter_mut().all(Connection::is_settled)
    }

    /// Flows that have ended here and that their peers have not confirmed.
    pub(crate) fn unconfirmed(&self) -> usize {
        let connections = self.connections.iter();
        connections
            .map(|(_, connection)| connection.control.unconfirmed())
            .sum()
    }

    /// The least round-trip time that any connection has seen, of those that can take flows.
    pub(crate) fn shortest_round_trip(&self) -> Option<Duration> {
        let connections = self.connections.iter().map(|(_, connection)| connection);
        let usable = connections.filter(|connection| connection.is_usable());
        usable.map(Connection::min_rtt).min()
    }

    /// All flows, as they are now.
    pub(crate) fn flow_reports(&self) -> Vec<FlowReport> {
        let flows = self.flows.iter().filter_map(|(_, entry)| {
            let lane = entry.lane()?;
            let connection = self.connections.get(lane.connection)?;
            Some(entry.report(connection.carried(lane.stream)))
        });
        flows.collect()
    }

    /// The application's socket of a flow.
    pub(crate) fn socket(&self, id: FlowId) -> Option<&S> {
        self.flows.get(self.flows.find(id)?)?.socket()
    }

    /// Server: the credentials of the client of a connection; `None` where the connection has gone.
    pub(crate) fn credentials(&self, id: ConnectionId) -> Option<Credentials> {
        let connection = self.connections.named(id)?;
        Some(Credentials {
            certificates: connection.certificates(),
            exporter: connection.exporter(),
            proofs: connection.admission.proofs(),
            opened: connection.opened(),
        })
    }

    /// Server: every flow whose request has been read, in no particular order.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        let asked = |entry: &FlowEntry<S>| {
            if matches!(entry.phase(), Phase::Waiting(_) | Phase::Reading(_)) {
                return None;
            }
            Some(Asked {
                flow: entry.id(),
                connection: self.carried_by(entry)?.connection,
                token: entry.token().to_owned(),
                server_app: entry.server_app().to_owned(),
            })
        };
        let flows = self.flows.iter();
        flows.filter_map(|(_, entry)| asked(entry)).collect()
    }

    /// What is charged and what is held at this moment.
    pub(crate) fn holdings(&mut self) -> Holdings {
        let mut held = self.read_buffer.kept() as u64;
        for (_, entry) in self.flows.iter() {
            held += FLOW_COST + entry.held() as u64;
        }
        for connection in self.connections.iter_mut() {
            held += connection.held_for_itself();
        }
        let connections = self.connections.iter();
        Holdings {
            charged: self.lease.charged(),
            held,
            connections: connections
                .map(|(_, connection)| connection.charged())
                .sum(),
            flows: self.flows.len() as u64 * FLOW_COST,
            kept: self.kept,
        }
    }

    /// What is held for flows at this moment.
    pub(crate) fn residue(&mut self) -> Residue {
        let mut residue = Residue {
            flows: self.flows.len(),
            deadlines: self.flows.deadlines(),
            ..Residue::default()
        };
        for (_, entry) in self.flows.iter() {
            residue.buffered += entry.flow().map_or(0, Flow::buffered);
        }
        for connection in self.connections.iter_mut() {
            connection.add_residue(&mut residue);
        }
        residue
    }
}
