//! Hands the flows of bonds over to another process on this host, and takes them over there.
//!
//! ```text
//! old process   detach_all ─► hand_over ─┬─► the other process has taken over: the sockets are dropped as they are ─┬─► close_detached
//!                                        └─► it has not: this engine goes on, and clients come back to it ──────────┘
//! new process   take_over, for each bond, before the first turn
//! ```
//!
//! Nothing distinguishes a flow that was handed over from one that has lost its connection: its client moves it by MOVE.
//! The client itself hands its flows over in the same way.

use std::time::Instant;

use quictun_flow::{
    BondKey, ConnectionKey, Flow, FlowEntry, FlowId, FlowKey, FlowPhase, Leg, NEVER_A_CONNECTION,
    Socket,
};
use quictun_wire::code::{CloseCode, FlowCode};
use quictun_wire::control::FINISHED;
use quictun_wire::handover::{HandedBond, HandedFlow, HandedHolder};

use super::Traffic;
use crate::bonds::Bond;
use crate::grants::FLOW_COST;
use crate::loss::LossReason;
use crate::report::{RestartCost, ServerId, Side};

impl<S: Socket> Traffic<S> {
    /// Takes the flows of bonds off their connections, which are left open. Other connections stay, also those whose bond
    /// the server has not granted yet: nothing would bring their flows back if this process went on.
    pub(crate) fn detach_all(&mut self, now: Instant) {
        let connections = self.connections.iter();
        let bonded = connections.filter(|(_, connection)| {
            let bond = connection.bond.and_then(|bond| self.bonds.get(bond));
            bond.is_some_and(|bond| bond.granted)
        });
        let bonded: Vec<ConnectionKey> = bonded.map(|(key, _)| key).collect();
        self.handing_over = true;
        for key in bonded {
            self.lose(now, key, LossReason::HandedOver);
        }
        self.handing_over = false;
    }

    /// Closes the connections that [`Traffic::detach_all`] has left open, so that a client dials again at once, and a server
    /// detaches what is left on them.
    pub(crate) fn close_detached(&mut self, now: Instant) {
        let connections = self.connections.iter();
        let left = connections.filter(|(_, it)| it.is_lost() && !it.is_closed());
        let left: Vec<ConnectionKey> = left.map(|(key, _)| key).collect();
        for key in left {
            if let Some(connection) = self.connections.get_mut(key) {
                let code = CloseCode::Done;
                connection.close(now, code, code.to_string());
                self.connections.mark(key);
            }
        }
    }

    /// Returns the bonds with the flows that another process can continue, and the ids of these flows. `holder` returns the
    /// other side of a bond, or `None` if the bond stays here.
    pub(crate) fn hand_over(
        &self,
        now: Instant,
        holder: impl Fn(&Bond) -> Option<HandedHolder>,
    ) -> Vec<(HandedBond, Vec<FlowId>)> {
        let bonds = self.bonds.hand_over(holder).map(|(mut handed, bond)| {
            let mut ids = Vec::new();
            for (key, entry) in bond
                .flows()
                .filter_map(|key| Some((key, self.flows.get(key)?)))
            {
                let Some(mut flow) = entry.hand_over(now) else {
                    // A server learns of its end on the next connection. A client asks, and is refused.
                    if let Some(bonded) = entry.bonded.filter(|_| self.side == Side::Client) {
                        handed.end(bonded.number, FlowCode::ShuttingDown);
                    }
                    continue;
                };
                (flow.answered, flow.asked) = self.datagram_flows.heard(key);
                let client = entry.detached().and_then(|it| it.leg().client);
                flow.client = client.and_then(|key| self.clients.name(key));
                handed.flows.push(flow);
                ids.push(entry.id());
            }
            (handed, ids)
        });
        // The next connection of a client's bond tells the server of the flows that have been reset, such as those that were
        // not answered yet. Without it, their targets wait for the client until the time of the bond is over.
        let tells = |bond: &HandedBond| {
            let mut codes = bond.ended.iter().map(|(_, code)| *code);
            self.side == Side::Client && codes.any(|code| code != FINISHED)
        };
        bonds
            .filter(|(bond, ids)| !ids.is_empty() || tells(bond))
            .collect()
    }

    /// Drops flows that another process has taken over. Nothing is written to their sockets, or set on them.
    pub(crate) fn let_go_of(&mut self, taken: &[FlowId]) {
        for &id in taken {
            if let Some(key) = self.flows.find(id) {
                drop(self.take_flow(key));
            }
        }
    }

    /// Adds a bond and its flows, each with its socket, that another process has handed over. Returns the bond and the ids
    /// of the flows. `server` is the server of a client's bond.
    pub(crate) fn take_over(
        &mut self,
        now: Instant,
        handed: &HandedBond,
        server: ServerId,
        sockets: impl IntoIterator<Item = S>,
    ) -> (BondKey, Vec<FlowId>) {
        let bond = self.bonds.take_over(handed, server);
        self.handing_over = true;
        let each = handed.flows.iter().zip(sockets);
        let keys: Vec<FlowKey> = each
            .map(|(flow, socket)| self.take_over_flow(now, bond, flow, socket))
            .collect();
        self.handing_over = false;
        self.charge_kept();
        let entries = keys.into_iter().filter_map(|key| self.flows.get(key));
        (bond, entries.map(FlowEntry::id).collect())
    }

    fn take_over_flow(
        &mut self,
        now: Instant,
        bond: BondKey,
        handed: &HandedFlow,
        socket: S,
    ) -> FlowKey {
        let client = handed.client.as_deref();
        let leg = Leg {
            connection: self.ids.connection(NEVER_A_CONNECTION),
            stream_id: 0,
            remote: handed.remote,
            client: client.map(|name| self.clients.key(name)),
        };
        self.memory.lease.charge(FLOW_COST);
        let (buffer, flows) = (&self.memory.read_buffer, &mut self.flows);
        let key = flows.insert(&mut self.ids, now, |id| {
            FlowEntry::take_over(id, (socket, handed), (bond, leg), buffer, now)
        });
        let until = flows
            .get(key)
            .and_then(|entry| Some(entry.detached()?.until()));
        flows.set_deadline(key, until);
        self.totals.flows_opened += 1;
        self.bonds.insert(bond, handed.number, key);
        let most = self.transport.max_flows as usize;
        // No limit ends flows that have got here.
        let _excess = self.bonds.note_detached(bond, handed.number, most);
        self.note_kept(key);
        self.hold_taken_over(now, key, bond, handed);
        key
    }

    /// Charges the data that a new flow holds for its application, and enters it into the table of datagram flows if it
    /// is one. The socket is not used: until the old process has confirmed its end, the flow is its.
    fn hold_taken_over(&mut self, now: Instant, key: FlowKey, bond: BondKey, handed: &HandedFlow) {
        let Some(entry) = self.flows.get_mut(key) else {
            return;
        };
        if let Some((flow, detached)) = entry.detached_mut() {
            let held = flow.arrived().held();
            detached.charge(held, &mut self.memory.lease);
            self.bonds.note_held(bond, handed.number, held as u64);
        }
        if entry.socket().is_some_and(Socket::carries_datagrams) {
            let is_source = self.side == Side::Server && entry.is_incoming();
            let flow = self.datagram_flows.enter(now, key, entry.token());
            flow.readable = true;
            flow.is_source = is_source;
            flow.take_over(handed.answered, handed.asked);
            flow.begin(now);
        }
    }

    /// Counts the flows by what a hand-over, or a restart, would do to each.
    pub(crate) fn restart_cost(&self) -> RestartCost {
        let mut cost = RestartCost::default();
        for (_, entry) in self.flows.iter() {
            let bond = entry.bonded.and_then(|bonded| bonded.bond);
            let bond = bond.and_then(|bond| self.bonds.get(bond));
            let moves = entry.can_move() || entry.detached().is_some();
            let continues = |flow: &Flow<S>| moves && !flow.has_failed() && !flow.is_stopped();
            let count = match &entry.phase {
                FlowPhase::Bridged { answered: true, .. } if bond.is_none() => {
                    &mut cost.without_bond
                }
                FlowPhase::Bridged { .. } if bond.is_some_and(|bond| !bond.granted) => {
                    &mut cost.unanswered
                }
                FlowPhase::Bridged { answered: true, .. }
                    if entry.socket().is_some_and(Socket::stays_with_process) =>
                {
                    &mut cost.own_socket
                }
                FlowPhase::Bridged { flow, .. } if continues(flow) => &mut cost.continuing,
                FlowPhase::Bridged { answered: true, .. } => &mut cost.half_reset,
                _ => &mut cost.unanswered,
            };
            *count += 1;
        }
        cost
    }
}
