//! A look at connections and flows: for reports, leak checks, and rules that have changed.

use quictun_flow::{Phase, Socket};

use super::Traffic;
use crate::entries::FlowEntry;
use crate::grants::FLOW_COST;
use crate::residue::{Holdings, Residue};
use crate::revoke::Asked;

impl<S: Socket> Traffic<S> {
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
            flows: self.flows.count() as u64 * FLOW_COST,
            kept: self.kept,
        }
    }

    /// What is held for flows at this moment.
    pub(crate) fn residue(&mut self) -> Residue {
        let mut residue = Residue {
            flows: self.flows.count(),
            deadlines: self.flows.deadlines(),
            ..Residue::default()
        };
        for (_, entry) in self.flows.iter() {
            residue.buffered += entry.flow().map_or(0, |flow| flow.arrived().buffered());
        }
        for connection in self.connections.iter_mut() {
            connection.add_residue(&mut residue);
        }
        residue
    }
}
