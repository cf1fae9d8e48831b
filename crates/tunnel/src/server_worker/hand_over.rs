//! Hands the flows of a worker over to another process, and takes them over there.

use std::time::Instant;

use quictun_engine::{FlowId, ServerEngine};
use quictun_wire::code::FlowCode;
use quictun_wire::handover::{HandedBond, HandedFlow, HandedVisitor};
use tracing::warn;

use super::listeners::ListenerFlow;
use super::{ServerWorker, holder_of};
use crate::app_socket::AppSocket;
use crate::flow_records::Opener;
use crate::handover::{TakenBond, watch};
use crate::reload::change::RevokedCounts;
use crate::role::ServerContext;
use quictun_trust::access::Peer;

/// The flows that a worker has taken over, until it runs.
#[derive(Debug, Default)]
pub(crate) struct TakenOver {
    flows: Vec<FlowId>,
    /// The part of `flows` whose client the configuration no longer names.
    disowned: Vec<FlowId>,
}

impl ServerWorker {
    /// Returns the application of a flow that has connected to a listener.
    pub(super) fn visitor(&self, flow: FlowId) -> Option<HandedVisitor> {
        let listener = self.listeners.flows.get(&flow)?;
        Some(HandedVisitor {
            peer: self.flows.visitor_of(flow)?,
            asked: listener.asked.clone(),
        })
    }

    /// Continues the flows of bonds that another process has handed over. Their sockets are not used before the worker
    /// runs.
    pub(crate) fn take_over(
        &mut self,
        engine: &mut ServerEngine<AppSocket>,
        now: Instant,
        bonds: Vec<TakenBond>,
    ) {
        for (bond, sockets) in bonds.into_iter().map(TakenBond::into_parts) {
            let ids = engine.take_over(now, &bond, sockets);
            for (flow, &id) in bond.flows.iter().zip(&ids) {
                self.record_taken(&bond, flow, id);
            }
            self.taken.flows.extend(ids);
        }
    }

    fn record_taken(&mut self, bond: &HandedBond, flow: &HandedFlow, id: FlowId) {
        let peer = self.peer_of_taken(bond, flow);
        if peer == Peer::Unknown {
            self.taken.disowned.push(id);
        }
        let holder = holder_of(&peer, flow.remote);
        // No limit refuses a flow that is open.
        if !self.descriptors.open(id, &holder) {
            self.descriptors.open_in_exchange(id, &holder);
        }
        if let Peer::Named(client) = &peer {
            let allowance = self.allowances.of(client.name());
            let place = allowance.enter().unwrap_or_else(|| allowance.enter_above());
            self.limit_state.places.insert(id, place);
        }
        if let quictun_wire::handover::HandedSocket::Datagrams(_) = flow.socket {
            self.datagram_places.take(id, &holder);
        }
        let opener = match &flow.visitor {
            None => Opener::Application(flow.source),
            Some(visitor) => {
                if let Peer::Named(client) = &peer {
                    let listener_flow = ListenerFlow {
                        client: client.shared_name(),
                        asked: visitor.asked.clone(),
                        pending: None,
                    };
                    self.listeners.flows.insert(id, listener_flow);
                }
                Opener::Visitor(visitor.peer)
            }
        };
        self.flows.add(id, peer, flow.remote, opener);
    }

    /// Returns the client of a flow as this configuration knows it.
    fn peer_of_taken(&self, bond: &HandedBond, flow: &HandedFlow) -> Peer {
        if !self.policy.identifies_clients() {
            return Peer::Anyone;
        }
        let owner = flow.client.as_deref();
        let owner = owner.and_then(|name| self.policy.owner_of(name, &bond.proofs));
        owner.map_or(Peer::Unknown, Peer::Named)
    }

    /// Watches the sockets of the flows that were taken over, and judges the flows by the present configuration.
    pub(super) fn start_taken(&mut self, cx: &mut ServerContext<'_>) {
        let TakenOver { flows, disowned } = std::mem::take(&mut self.taken);
        for flow in disowned {
            warn!(target: "quictun", flow = self.flows.log.id(flow), "flow revoked: the configuration no longer names its client");
            cx.engine.end_flow(cx.now, flow, FlowCode::Revoked);
        }
        watch(cx, &flows);
        if !flows.is_empty() {
            let mut ended = RevokedCounts::default();
            self.watch_unconnected(cx.now);
            self.judge_flows(cx, &mut ended);
        }
    }
}
