//! Flows that outlive their connection: they wait, and continue on the next connection of their bond (PROTOCOL section
//! 5.8).
//!
//! ```text
//!                 connection lost, or left            client: MOVE ─► MOVE_ACK
//!   attached ───────────────────────────► detached ─────────────────────────────► attached
//!                                            │ TTL, or the peer no longer has it
//!                                            └─► as a flow whose connection is lost for good
//! ```
//!
//! This module connects connections and flows with bonds. `detached.rs` handles the time without a connection,
//! `moving.rs` the move, and `seen.rs` the confirmation of data that the peer need not retain.

use std::net::SocketAddr;
use std::time::Instant;

use quictun_flow::{
    BondKey, BondMembership, ConnectionId, ConnectionKey, Ending, FlowEntry, FlowKey, LocalLimit,
    Socket,
};
use quictun_wire::bond::{BondGrant, BondRequest};
use quictun_wire::code::{CloseCode, FlowCode};
use quictun_wire::control::{FINISHED, FlowEnd};

use super::Traffic;
use crate::bonds::Holder;
use crate::connection::Connection;
use crate::event::{Event, LeaveReason};
use crate::loss::{LossReason, ProtocolError};
use crate::report::Side;
use crate::strangers::SourcePrefix;

/// Number of streams for new flows, in addition to those for the flows that may move.
const STREAMS_MORE: usize = 16;

/// The bond of a connection.
impl<S: Socket> Traffic<S> {
    /// Client: adds a new connection to a bond. Returns the request for HELLO.
    pub(crate) fn join_bond(&mut self, key: ConnectionKey, bond: BondKey) -> Option<BondRequest> {
        let connection = self.connections.get_mut(key)?;
        let exporter = connection.bond_exporter()?;
        let request = self.bonds.get(bond)?.request(&exporter);
        connection.bond = Some(bond);
        self.bonds.add_connection(bond, key);
        Some(request)
    }

    /// Client: handles the server's answer to the request for a bond. `grant` is `None` if the server keeps no bond.
    pub(super) fn handle_bond_answer(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        grant: Option<BondGrant>,
    ) {
        let Some(connection) = self.connections.get(key) else {
            return;
        };
        let Some(bond) = connection.bond else { return };
        let (id, remote) = (connection.id(), connection.remote());
        let (for_transfers, beside) = (connection.for_transfers, connection.beside);
        let known = self.bonds.get(bond);
        let holds = known.is_some_and(|it| it.granted && it.count() > 0);
        let continues = |grant: &BondGrant| known.is_some_and(|it| it.granted && it.id == grant.id);
        if (for_transfers || beside && holds) && !grant.as_ref().is_some_and(continues) {
            // The flows stay where they are, with the server that knows them.
            let reason = ProtocolError::here("another server answers there".to_owned());
            let text = "it does not continue the bond";
            return self.close(now, key, CloseCode::Done, text, reason.into());
        }
        let Some(grant) = grant else {
            return self.dissolve_bond(now, key);
        };
        let most = self.bonds.ttl;
        let Some(found) = self.bonds.get_mut(bond) else {
            return;
        };
        let first = !found.granted;
        let same = found.handle_granted(&grant, most);
        if first {
            return;
        }
        let flows: Vec<FlowKey> = found.flows().collect();
        if !same {
            // The server was restarted, or has given up the bond.
            for flow in flows {
                match self.connection_of(flow) {
                    Some((on, _)) if on == key => {}
                    // The flow was opened on the previous connection, which had been silent only for a while.
                    Some((_, true)) => self.leave_bond_alive(now, flow, bond),
                    _ => self.give_up(now, flow, Ending::PeerRefused(FlowCode::NoBond)),
                }
            }
            // The server's flow numbers begin again in the new bond.
            self.bonds.forget_ended(bond);
            return self.leave_others(now, key, bond);
        }
        let ended: Vec<FlowEnd> = found.ended().collect();
        if !for_transfers {
            self.report_rejoined(key, bond, (id, remote));
        }
        if let Some(connection) = self.connections.get_mut(key) {
            for gone in ended {
                connection.control.note_ended(gone);
            }
        }
        self.move_flows(now, key);
    }

    /// Server: answers the client's request for a bond. Returns the grant, or `None` if flows end with this connection.
    pub(super) fn answer_bond(&mut self, now: Instant, key: ConnectionKey) -> Option<BondGrant> {
        let connection = self.connections.get_mut(key)?;
        let request = connection.bond_request.take()?;
        if self.bonds.ttl.is_zero() || connection.bond.is_some() {
            return None;
        }
        let (identity, exporter) = (connection.proven_identity(), connection.bond_exporter()?);
        let owner = connection.owner();
        let (id, remote) = (connection.id(), connection.remote());
        let found = match &request {
            BondRequest::New => None,
            BondRequest::Resume { id, ticket } => {
                let proofs = owner.as_ref().map_or(&[][..], |(_, proofs)| proofs);
                let found = self.bonds.find(id, ticket, &exporter, (&identity, proofs));
                self.totals.bonds_refused += u64::from(found.is_none());
                found
            }
        };
        let again = found.is_some();
        let bond = found.or_else(|| {
            let holder = Holder::new(identity, SourcePrefix::of(remote.ip()));
            let granted = self.grant_bond(now, holder);
            self.totals.bonds_refused +=
                u64::from(granted.is_none() && request == BondRequest::New);
            granted
        })?;
        if let Some((name, proofs)) = &owner {
            self.bonds.set_owner(bond, name, proofs);
        }
        self.bonds.add_connection(bond, key);
        let found = self.bonds.get(bond)?;
        let grant = found.to_grant(self.bonds.worker);
        let flows: Vec<FlowKey> = found.flows().collect();
        if let Some(connection) = self.connections.get_mut(key) {
            connection.bond = Some(bond);
            let most = self.transport.max_flows;
            let wanted = u32::try_from(flows.len() + STREAMS_MORE).unwrap_or(u32::MAX);
            connection.grant_flows(wanted.min(most));
            connection.update_memory_charge(&mut self.memory.lease);
        }
        if again {
            self.report_rejoined(key, bond, (id, remote));
        }
        self.adopt_flows(now, key, bond);
        Some(grant)
    }

    /// Server: grants a bond. If the client has as many as it may have, its oldest one without a connection gives way.
    fn grant_bond(&mut self, now: Instant, holder: Holder) -> Option<BondKey> {
        let granted = self.bonds.grant(holder.clone());
        if granted.is_some() {
            return granted;
        }
        let oldest = self.bonds.oldest_unconnected(&holder)?;
        let flows: Vec<FlowKey> = self.bonds.get(oldest)?.flows().collect();
        for flow in flows {
            self.give_up(now, flow, LocalLimit::GaveWay);
        }
        self.bonds.remove_unused(oldest);
        self.bonds.grant(holder)
    }

    /// Reports that a bond has a new connection.
    fn report_rejoined(
        &mut self,
        key: ConnectionKey,
        bond: BondKey,
        (connection, remote): (ConnectionId, SocketAddr),
    ) {
        let Some(found) = self.bonds.get_mut(bond) else {
            return;
        };
        let reason = found.leave_reason.take();
        let elsewhere = |&flow: &FlowKey| {
            let entry = self.flows.get(flow);
            entry.is_some_and(|entry| entry.can_move() && !entry.is_on(key))
        };
        let flows = found.flows().filter(elsewhere).count();
        let before = found.connections.iter().filter(|&&other| other != key);
        let mut before = before.filter_map(|&other| self.connections.get(other));
        let reason = reason.unwrap_or_else(|| match self.side {
            _ if before.any(Connection::is_suspect) => LeaveReason::Silent,
            Side::Client => LeaveReason::Replaced,
            Side::Server => LeaveReason::ByClient,
        });
        self.events.push(Event::Rejoined {
            connection,
            remote,
            flows,
            reason,
        });
    }

    /// Server: adds the flows whose streams arrived before HELLO to the bond.
    fn adopt_flows(&mut self, now: Instant, key: ConnectionKey, bond: BondKey) {
        for flow in self.early_flows(key) {
            self.enter_bond(now, key, flow, bond);
        }
    }

    /// Server: ends the retention of flows whose streams arrived before a HELLO that got no bond.
    pub(super) fn stop_retaining_flows(&mut self, key: ConnectionKey) {
        for flow in self.early_flows(key) {
            self.unbonded.note(flow, 0);
            if let Some(entry) = self.flows.get_mut(flow) {
                entry.bonded = None;
                if let Some(flow) = entry.flow_mut() {
                    flow.stop_retaining();
                }
            }
        }
    }

    /// Server: returns the flows of a connection that have a number, but no bond yet.
    fn early_flows(&self, key: ConnectionKey) -> Vec<FlowKey> {
        let connection = self.connections.get(key);
        let flows = connection.map_or_else(Vec::new, |connection| connection.streams.flows());
        let early = flows.into_iter().filter(|&flow| {
            let entry = self.flows.get(flow);
            let bonded = entry.and_then(|entry| entry.bonded.as_ref());
            bonded.is_some_and(|bonded| bonded.bond.is_none())
        });
        early.collect()
    }

    /// Adds a flow to a bond, if the peer has given it a number.
    pub(super) fn enter_bond(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        flow: FlowKey,
        bond: BondKey,
    ) {
        let entry = self.flows.get_mut(flow);
        let Some(bonded) = entry.and_then(|entry| entry.bonded.as_mut()) else {
            return;
        };
        if self.bonds.insert(bond, bonded.number, flow) {
            bonded.bond = Some(bond);
            self.note_kept(flow);
        } else {
            self.violate(now, key, "flow number used twice in a bond");
        }
    }

    /// Dissolves a connection's bond, because the peer keeps no bonds or can no longer confirm what it has received.
    /// Flows then end with their connection.
    pub(super) fn dissolve_bond(&mut self, now: Instant, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let Some(bond) = connection.bond.take() else {
            return;
        };
        self.bonds.lose_connection(now, bond, key);
        let flows: Vec<FlowKey> = self
            .bonds
            .get(bond)
            .map_or_else(Vec::new, |found| found.flows().collect());
        for flow in flows {
            let Some(entry) = self.flows.get(flow) else {
                continue;
            };
            let answers = self.connection_of(flow).is_some_and(|(_, answers)| answers);
            if entry.is_on(key) || (answers && self.side == Side::Client) {
                self.leave_bond_alive(now, flow, bond);
            } else if self.side == Side::Client {
                self.give_up(now, flow, Ending::PeerRefused(FlowCode::NoBond));
            }
        }
        if self.side == Side::Client {
            // The next connection asks for a new bond.
            self.leave_others(now, key, bond);
            self.bonds.request_new(bond);
        } else {
            self.bonds.remove_unused(bond);
        }
    }

    /// Client: removes other connections from a bond that the server has given up. The server counts them to the old
    /// bond, so they take no part in the new one. Connections older than `key` take no more flows.
    fn leave_others(&mut self, now: Instant, key: ConnectionKey, bond: BondKey) {
        let Some(found) = self.bonds.get(bond) else {
            return;
        };
        let id = self.connections.get(key).map(Connection::id);
        for other in found.connections.clone() {
            if other != key {
                self.bonds.lose_connection(now, bond, other);
                if let Some(connection) = self.connections.get_mut(other) {
                    connection.bond = None;
                    if Some(connection.id()) < id {
                        connection.retire();
                    }
                }
            }
        }
    }

    /// Returns the connection that carries a flow, and whether it answers.
    fn connection_of(&self, flow: FlowKey) -> Option<(ConnectionKey, bool)> {
        let on = self.flows.get(flow)?.stream_key()?.connection;
        let connection = self.connections.get(on)?;
        Some((on, !connection.is_suspect()))
    }

    /// Takes a flow out of its bond. It continues where it is, and ends with its connection.
    pub(super) fn leave_bond_alive(&mut self, now: Instant, key: FlowKey, bond: BondKey) {
        let Some(entry) = self.flows.get_mut(key) else {
            return;
        };
        let number = entry.bonded.take().map(|bonded| bonded.number);
        if let Some(number) = number {
            self.bonds.end(bond, number, None);
        }
        if let Some(flow) = entry.flow_mut() {
            flow.stop_retaining();
        }
        self.settle_flow(now, key);
    }

    /// Takes a lost connection out of its bond. Its flows have been detached, or have ended.
    pub(super) fn leave_bond(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        bond: BondKey,
        reason: &LossReason,
    ) {
        self.bonds.lose_connection(now, bond, key);
        let Some(found) = self.bonds.get_mut(bond) else {
            return;
        };
        if found.has_waiting() {
            found.leave_reason = Some(LeaveReason::Lost(reason.clone()));
        }
        match self.side {
            Side::Server => self.bonds.remove_unused(bond),
            // The other connections of the bond are closed next.
            Side::Client if self.handing_over => {}
            Side::Client => self.move_bond_flows(now, bond),
        }
    }

    /// Client: tells the server at once that a flow has ended, because the server may never read the end of the flow's
    /// stream, nor that this side has read its own. If the stream is on the connection `left`, another connection tells
    /// it. `code` is `None` if both FINs have ended the flow.
    pub(super) fn report_end(
        &mut self,
        bond: BondKey,
        flow: u64,
        code: Option<FlowCode>,
        left: Option<ConnectionKey>,
    ) {
        if let Some(on) = self.usable_connection(bond, None)
            && Some(on) != left
            && let Some(connection) = self.connections.get_mut(on)
        {
            let code = code.map_or(FINISHED, FlowCode::to_peer);
            connection.control.note_ended(FlowEnd { flow, code });
            self.connections.want_transmit(on);
        }
    }

    /// Removes a flow that has ended from its bond. `code` is `None` if both FINs have ended it.
    pub(super) fn leave_bond_of(&mut self, entry: &FlowEntry<S>, code: Option<FlowCode>) {
        let Some(bonded) = &entry.bonded else { return };
        let Some(bond) = bonded.bond else { return };
        self.bonds.end(bond, bonded.number, code);
        if self.side == Side::Server {
            self.bonds.remove_unused(bond);
        } else if code != Some(FlowCode::NoBond) {
            // A server that has dropped the bond does not know its flows.
            let on = entry.stream_key().map(|it| it.connection);
            if on.is_none() || entry.has_unread_move() {
                self.report_end(bond, bonded.number, code, None);
            } else if code.is_some() && entry.phase.is_unanswered() {
                self.report_end(bond, bonded.number, code, on);
            }
        }
    }
}

/// The numbers of flows.
impl<S: Socket> Traffic<S> {
    /// Returns the number for a new flow's OPEN or INCOMING on this connection, if the connection has a bond.
    pub(super) fn number_flow(&mut self, key: ConnectionKey, flow: FlowKey) -> Option<u64> {
        let bond = self.connections.get(key)?.bond?;
        let found = self.bonds.get_mut(bond)?;
        let number = found.next_number();
        self.bonds.insert(bond, number, flow);
        let entry = self.flows.get_mut(flow)?;
        entry.bonded = Some(BondMembership::new(Some(bond), number));
        Some(number)
    }
}

/// Returns whether flows wait for another connection after one has ended for this reason.
pub(super) fn keeps_flows(reason: &LossReason) -> bool {
    match reason {
        LossReason::TimedOut
        | LossReason::Reset
        | LossReason::Tcp(_)
        | LossReason::Protocol(_)
        | LossReason::HandedOver => true,
        LossReason::ClosedByPeer(code) => {
            matches!(CloseCode::from_u64(*code), None | Some(CloseCode::Done))
        }
        _ => false,
    }
}
