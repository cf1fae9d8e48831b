//! Flows that outlive their connection: they wait, and go on on the next one of their bond (PROTOCOL section 5.8).
//!
//! ```text
//!                 connection lost, or left            client: MOVE ─► MOVE_ACK
//!   attached ───────────────────────────► detached ─────────────────────────────► attached
//!                                            │ TTL, or the peer no longer has it
//!                                            └─► as a flow whose connection is lost for good
//! ```

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use quictun_flow::{
    BadNumber, BondKey, Bonded, ClientKey, ConnectionId, ConnectionKey, Flow, FlowKey, Inlet,
    LostStream, NoStream, ReadEnd, Socket, Tell,
};
use quictun_wire::bond::{Ask, BondGrant};
use quictun_wire::code::{CloseCode, FlowCode};
use quictun_wire::control::{FINISHED, Gone};
use quictun_wire::moving::{MAX_MOVE_ACK_FRAME, Move, MoveAck};
use quictun_wire::open::Decoded;

use super::moved::Moved;
use super::{Traffic, carried};
use crate::bonds::DETACHED_MAX;
use crate::connection::Connection;
use crate::entries::{FlowEntry, Lane};
use crate::event::{Event, Left};
use crate::loss::LossReason;
use crate::quic_stream::stream_number;
use crate::report::Side;

/// A move that is not answered for so long on a connection that lives is given up.
const MOVE_TIMEOUT: Duration = Duration::from_secs(30);

/// Time between two flows that end because memory is short: each is searched for among all.
const RELIEVE_EVERY: Duration = Duration::from_millis(10);

/// Streams beside those of the flows that may move, for new ones.
const STREAMS_MORE: usize = 16;

/// Part of the budget that may be kept for peers. Beyond it flows keep nothing of what they have sent.
const RETAINED_PART: u64 = 4;

/// A connection's bond.
impl<S: Socket> Traffic<S> {
    /// Client: the bond of a new connection. Returns what HELLO asks for.
    pub(crate) fn join_bond(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        bond: BondKey,
    ) -> Option<Ask> {
        let connection = self.connections.get_mut(key)?;
        let exporter = connection.bond_exporter()?;
        let found = self.bonds.get_mut(bond)?;
        connection.bond = Some(bond);
        let ask = found.ask(&exporter);
        found.add_connection(now);
        Some(ask)
    }

    /// Client: the server's answer about the bond, if it has given one.
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
        let remote = connection.remote();
        let id = connection.id();
        let Some(grant) = grant else {
            return self.dissolve_bond(now, key);
        };
        let most = self.bond_ttl;
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
            // The server was restarted, or has given it up.
            found.forget_ended();
            for flow in flows {
                match self.carrier_of(flow) {
                    Some((on, _)) if on == key => {}
                    // Opened on the connection before, which had fallen silent only for a while.
                    Some((_, true)) => self.leave_bond_alive(now, flow, bond),
                    _ => self.give_up(now, flow, FlowCode::NoBond),
                }
            }
            return;
        }
        let ended: Vec<Gone> = found.ended().collect();
        self.tell_of_return(key, bond, (id, remote));
        if let Some(connection) = self.connections.get_mut(key) {
            for gone in ended {
                connection.control.note_ended(gone);
            }
        }
        self.move_flows(now, key);
    }

    /// Server: whether flows of this connection's client are to outlive it, as the client has asked.
    pub(super) fn answer_bond(&mut self, now: Instant, key: ConnectionKey) -> Option<BondGrant> {
        let connection = self.connections.get_mut(key)?;
        let ask = connection.bond_ask.take()?;
        if self.bond_ttl.is_zero() || connection.bond.is_some() {
            return None;
        }
        let (owner, exporter) = (connection.owner(), connection.bond_exporter()?);
        let (id, remote) = (connection.id(), connection.remote());
        let found = match &ask {
            Ask::New => None,
            Ask::Again { id, ticket } => {
                let found = self.bonds.find(id, ticket, &exporter, &owner);
                self.totals.bonds_refused += u64::from(found.is_none());
                found
            }
        };
        let again = found.is_some();
        let bond = match found {
            Some(bond) => bond,
            None => self.bonds.grant(owner, self.bond_ttl)?,
        };
        let found = self.bonds.get_mut(bond)?;
        found.add_connection(now);
        let grant = found.to_grant(self.worker);
        let flows: Vec<FlowKey> = found.flows().collect();
        if let Some(connection) = self.connections.get_mut(key) {
            connection.bond = Some(bond);
            let most = self.transport.max_flows;
            let wanted = u32::try_from(flows.len() + STREAMS_MORE).unwrap_or(u32::MAX);
            connection.grant_flows(wanted.min(most));
            connection.settle_debt(&mut self.lease);
        }
        if again {
            self.tell_of_return(key, bond, (id, remote));
        }
        self.adopt_flows(now, key, bond);
        Some(grant)
    }

    /// A bond has its next connection.
    fn tell_of_return(
        &mut self,
        key: ConnectionKey,
        bond: BondKey,
        (connection, remote): (ConnectionId, SocketAddr),
    ) {
        let Some(found) = self.bonds.get_mut(bond) else {
            return;
        };
        let left = found.left.take();
        let elsewhere = |&flow: &FlowKey| {
            let entry = self.flows.get(flow);
            entry.is_some_and(|entry| entry.can_move() && !entry.is_on(key))
        };
        let flows = found.flows().filter(elsewhere).count();
        let mut before = self.connections.iter().filter(|(other, connection)| {
            *other != key && connection.bond == Some(bond) && !connection.is_lost()
        });
        let left = left.unwrap_or_else(|| match self.side {
            _ if before.any(|(_, connection)| connection.is_suspect()) => Left::Silent,
            Side::Client => Left::Replaced,
            Side::Server => Left::ByClient,
        });
        self.events.push_back(Event::Rejoined {
            connection,
            remote,
            flows,
            left,
        });
    }

    /// Server: flows that overtook HELLO belong to the bond, too.
    fn adopt_flows(&mut self, now: Instant, key: ConnectionKey, bond: BondKey) {
        let flows = self.flows.iter();
        let early = flows.filter(|(_, entry)| entry.is_on(key) && entry.bonded.is_some());
        let early: Vec<FlowKey> = early.map(|(flow, _)| flow).collect();
        for flow in early {
            self.enter_bond(now, key, flow, bond);
        }
    }

    /// Server: flows that overtook a HELLO which asks for no bond, or gets none.
    pub(super) fn forgo_bonds(&mut self, key: ConnectionKey) {
        let flows = self.flows.iter();
        let early = flows.filter(|(_, entry)| entry.is_on(key) && entry.bonded.is_some());
        let early: Vec<FlowKey> = early.map(|(flow, _)| flow).collect();
        for flow in early {
            if let Some(entry) = self.flows.get_mut(flow) {
                entry.bonded = None;
                if let Some(flow) = entry.flow_mut() {
                    flow.forgo();
                }
            }
        }
    }

    /// Server: a flow that its client has given a number.
    pub(super) fn enter_bond(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        flow: FlowKey,
        bond: BondKey,
    ) {
        let entry = self.flows.get_mut(flow);
        let bonded = entry.and_then(|entry| entry.bonded.as_mut());
        let (Some(bonded), Some(found)) = (bonded, self.bonds.get_mut(bond)) else {
            return;
        };
        bonded.bond = Some(bond);
        if !found.insert(bonded.number, flow) {
            bonded.bond = None;
            self.violate(now, key, "two flows of a bond with one number");
        }
    }

    /// The peer keeps no bonds, or can no longer say what it has seen: flows end with their connection.
    pub(super) fn dissolve_bond(&mut self, now: Instant, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let Some(bond) = connection.bond.take() else {
            return;
        };
        if let Some(found) = self.bonds.get_mut(bond) {
            found.lose_connection(now);
        }
        let flows: Vec<FlowKey> = self
            .bonds
            .get(bond)
            .map_or_else(Vec::new, |found| found.flows().collect());
        for flow in flows {
            let Some(entry) = self.flows.get(flow) else {
                continue;
            };
            if entry.is_on(key) {
                self.leave_bond_alive(now, flow, bond);
            } else if self.side == Side::Client {
                self.give_up(now, flow, FlowCode::NoBond);
            }
        }
        if self.side == Side::Client {
            // What the next connection is asked for is a new one.
            self.bonds.renew(bond);
        } else {
            self.bonds.remove_unused(bond);
        }
    }

    /// The connection that carries a flow, and whether it answers.
    fn carrier_of(&self, flow: FlowKey) -> Option<(ConnectionKey, bool)> {
        let on = self.flows.get(flow)?.lane()?.connection;
        let connection = self.connections.get(on)?;
        Some((on, !connection.is_suspect()))
    }

    /// A flow goes on where it is, and ends with its connection.
    fn leave_bond_alive(&mut self, now: Instant, key: FlowKey, bond: BondKey) {
        let Some(entry) = self.flows.get_mut(key) else {
            return;
        };
        let number = entry.bonded.take().map(|bonded| bonded.number);
        if let (Some(number), Some(found)) = (number, self.bonds.get_mut(bond)) {
            found.end(number, None);
        }
        if let Some(flow) = entry.flow_mut() {
            flow.forgo();
        }
        self.settle_flow(now, key);
    }

    /// A connection is lost. Its flows have been detached, or have ended.
    pub(super) fn leave_bond(&mut self, now: Instant, bond: BondKey, reason: &LossReason) {
        let Some(found) = self.bonds.get_mut(bond) else {
            return;
        };
        found.lose_connection(now);
        let flows: Vec<FlowKey> = found.flows().collect();
        let waiting: Vec<FlowKey> = flows
            .into_iter()
            .filter(|&flow| self.is_detached(flow))
            .collect();
        if !waiting.is_empty()
            && let Some(found) = self.bonds.get_mut(bond)
        {
            found.left = Some(Left::Lost(reason.clone()));
        }
        let excess = waiting.len().saturating_sub(DETACHED_MAX);
        for &flow in &waiting[..excess] {
            self.give_up(now, flow, FlowCode::Limit);
        }
        match self.side {
            Side::Server => self.bonds.remove_unused(bond),
            Side::Client => self.carry_on(now, bond),
        }
    }

    /// A flow has ended: its bond forgets it. `code`: otherwise than by both FINs.
    pub(super) fn leave_bond_of(&mut self, entry: &FlowEntry<S>, code: Option<FlowCode>) {
        let Some(bonded) = &entry.bonded else { return };
        let Some(bond) = bonded.bond else { return };
        if let Some(found) = self.bonds.get_mut(bond) {
            found.end(bonded.number, code);
            if self.side == Side::Server {
                self.bonds.remove_unused(bond);
            }
        }
    }
}

/// Flows without a connection.
impl<S: Socket> Traffic<S> {
    fn is_detached(&self, key: FlowKey) -> bool {
        let entry = self.flows.get(key);
        entry.is_some_and(|entry| entry.detached().is_some())
    }

    /// The flow's bond, if the peer has agreed to it and the flow can wait for another connection.
    pub(super) fn bond_to_wait_in(&self, key: FlowKey) -> Option<BondKey> {
        let entry = self.flows.get(key).filter(|entry| entry.can_move())?;
        let bond = entry.bonded.as_ref()?.bond?;
        let found = self.bonds.get(bond)?;
        (found.granted && !found.ttl.is_zero()).then_some(bond)
    }

    /// Takes a flow off its connection, to wait for another one.
    pub(super) fn detach_flow(&mut self, now: Instant, key: FlowKey, bond: BondKey) {
        let ttl = self.bonds.get(bond).map_or(Duration::ZERO, |bond| bond.ttl);
        let Some((entry, connection, stream)) =
            carried(&mut self.flows, &mut self.connections, key)
        else {
            return;
        };
        let moving = entry.is_moving();
        let Some(flow) = entry.flow_mut() else { return };
        if moving {
            // Its bytes cannot be placed without the answer to MOVE.
            flow.detach(&mut NoStream);
        } else {
            flow.detach(&mut connection.stream(stream));
        }
        flow.inlet().pack();
        let taken = entry.stand().taken;
        entry.backlog.note_taken(taken);
        connection.credit.holding -= std::mem::take(&mut entry.backlog.holding);
        connection.streams.remove(now, stream);
        let (carried, until) = (connection.carried(stream), now + ttl);
        connection.settle_debt(&mut self.lease);
        if let Some(bonded) = &mut entry.bonded {
            bonded.stall(connection.stalled_since(now));
        }
        entry.detach(carried, until);
        self.flows.set_deadline(key, Some(until));
        self.note_pinned(key);
        self.pump_detached(now, key);
    }

    pub(super) fn handle_detached_socket(
        &mut self,
        now: Instant,
        key: FlowKey,
        readable: bool,
        writable: bool,
        failed: bool,
    ) {
        let Some(flow) = self.flows.get_mut(key).and_then(FlowEntry::flow_mut) else {
            return;
        };
        flow.handle_socket_ready(readable, writable);
        if failed {
            flow.handle_socket_error(&mut NoStream);
        }
        self.pump_detached(now, key);
    }

    /// Writes what the application takes of what is here.
    fn pump_detached(&mut self, now: Instant, key: FlowKey) {
        let Some(entry) = self.flows.get_mut(key) else {
            return;
        };
        let age = entry.age(now);
        let Some((flow, detached)) = entry.detached_mut() else {
            return;
        };
        let before = flow.bytes_to_app();
        flow.pump_to_app(&mut NoStream);
        let delivered = flow.bytes_to_app();
        detached.charge(flow.arrived().held(), &mut self.lease);
        let client = detached.carried().client;
        self.count_to_app(Moved::new((before, delivered), client, age));
        self.settle_flow(now, key);
    }

    /// Goes on without hope for another connection, as a flow does whose connection is lost for good.
    pub(super) fn give_up(&mut self, now: Instant, key: FlowKey, code: FlowCode) {
        if let Some((entry, connection, stream)) =
            carried(&mut self.flows, &mut self.connections, key)
        {
            connection.credit.holding -= std::mem::take(&mut entry.backlog.holding);
            connection.streams.remove(now, stream);
            connection.reset_stream(stream, code);
            if !entry.is_end_told() {
                // The peer waits for a word about what it has sent.
                connection.control.note_gone(stream_number(stream), code);
            }
            let carried = connection.carried(stream);
            connection.settle_debt(&mut self.lease);
            entry.detach(carried, now);
        }
        let Some(entry) = self.flows.get_mut(key) else {
            return;
        };
        if let Some(ending) = entry.ending() {
            return self.remove_flow(now, key, ending);
        }
        let Some(flow) = entry.flow_mut() else { return };
        flow.handle_connection_lost(&mut LostStream, code);
        if flow.ending().is_some() {
            return self.settle_flow(now, key);
        }
        if let Some(bonded) = &entry.bonded
            && let Some(bond) = bonded.bond
            && let Some(found) = self.bonds.get_mut(bond)
        {
            found.end(bonded.number, Some(code));
        }
        if let Some(mut detached) = entry.abandon_move(now) {
            detached.release(&mut self.lease);
        }
        self.pump_salvaged(now, key);
    }

    /// The time of a flow has come that waits for another connection, or for the answer to MOVE. `false`: it does neither.
    pub(super) fn expire_move(&mut self, now: Instant, key: FlowKey) -> bool {
        let Some(entry) = self.flows.get(key) else {
            return false;
        };
        if !entry.is_moving() && entry.detached().is_none() {
            return false;
        }
        let carrier = entry
            .lane()
            .and_then(|lane| self.connections.get(lane.connection));
        if carrier.is_some_and(Connection::is_to_leave) {
            // The path is silent, not the server: the connection comes back, or its end detaches the flow.
            self.flows.set_deadline(key, Some(now + MOVE_TIMEOUT));
        } else {
            self.give_up(now, key, FlowCode::ConnectionLost);
        }
        true
    }

    /// Where memory is short, ends the flow that has waited for longest.
    pub(crate) fn relieve(&mut self, now: Instant) {
        let soon = self.relieve_at.is_some_and(|at| now < at);
        if soon || self.lease.free() > self.lease.reserve() / 2 {
            return;
        }
        self.relieve_at = Some(now + RELIEVE_EVERY);
        let flows = self.flows.iter();
        let waiting = flows.filter_map(|(key, entry)| Some((entry.detached()?.until(), key)));
        if let Some((_, key)) = waiting.min() {
            self.give_up(now, key, FlowCode::Limit);
        }
    }

    /// Ends all flows that wait for another connection.
    pub(crate) fn abandon_all_detached(&mut self, now: Instant) {
        let flows = self.flows.iter();
        let waiting = flows.filter(|(_, entry)| entry.detached().is_some());
        let keys: Vec<FlowKey> = waiting.map(|(key, _)| key).collect();
        for key in keys {
            if let Some(flow) = self.flows.get_mut(key).and_then(FlowEntry::flow_mut) {
                flow.abandon(&mut NoStream, FlowCode::ShuttingDown);
            }
            let ending = self.flows.get(key).and_then(FlowEntry::ending);
            if let Some(ending) = ending {
                self.remove_flow(now, key, ending);
            }
        }
    }
}

/// Client: flows move.
impl<S: Socket> Traffic<S> {
    /// Moves flows of the bond that have no connection, or a bad one, to one that there is already.
    fn carry_on(&mut self, now: Instant, bond: BondKey) {
        let on = self.connections.iter().find_map(|(key, connection)| {
            let usable = connection.is_admitted() && connection.is_usable();
            (connection.bond == Some(bond) && usable).then_some(key)
        });
        if let Some(on) = on {
            self.move_flows(now, on);
        }
    }

    /// The same for the bond of a connection that is to be left.
    pub(crate) fn carry_on_elsewhere(&mut self, now: Instant, left: ConnectionKey) {
        let connection = self.connections.get(left);
        let left = connection.filter(|connection| connection.is_to_leave());
        if let Some(bond) = left.and_then(|connection| connection.bond) {
            self.carry_on(now, bond);
        }
    }

    /// Moves flows of the bond that wait, or whose connection is to be left, to `on`.
    pub(crate) fn move_flows(&mut self, now: Instant, on: ConnectionKey) {
        let Some(connection) = self.connections.get(on) else {
            return;
        };
        if !connection.is_admitted() || !connection.is_usable() {
            return;
        }
        let Some(bond) = connection.bond.and_then(|bond| self.bonds.get(bond)) else {
            return;
        };
        let to_move = |&flow: &FlowKey| {
            let entry = self.flows.get(flow);
            entry.is_some_and(|entry| match entry.lane() {
                None => entry.detached().is_some(),
                Some(lane) => {
                    let carrier = self.connections.get(lane.connection);
                    entry.can_move()
                        && lane.connection != on
                        && carrier.is_none_or(Connection::is_to_leave)
                }
            })
        };
        let flows: Vec<FlowKey> = bond.flows().filter(to_move).collect();
        for flow in flows {
            if !self.move_flow(now, flow, on) {
                // The server lets more of them come soon.
                break;
            }
        }
    }

    /// Asks for a flow to go on on `on`. `false`: there is no stream for it.
    fn move_flow(&mut self, now: Instant, key: FlowKey, on: ConnectionKey) -> bool {
        let stream = self
            .connections
            .get_mut(on)
            .and_then(Connection::open_stream);
        let Some(stream) = stream else { return false };
        let old = self.flows.get(key).and_then(FlowEntry::lane);
        if let Some(old) = old
            && let Some(bond) = self.bond_to_wait_in(key)
        {
            self.detach_flow(now, key, bond);
            if let Some(connection) = self.connections.get_mut(old.connection) {
                connection.reset_stream(old.stream, FlowCode::Moved);
            }
            self.connections.want_transmit(old.connection);
        }
        let waits = self.is_detached(key);
        let (entry, connection) = (self.flows.get_mut(key), self.connections.get_mut(on));
        let (Some(entry), Some(connection)) = (entry, connection) else {
            return true;
        };
        let next = entry.flow().map_or(0, Flow::next);
        let Some(bonded) = entry.bonded.as_mut().filter(|_| waits) else {
            // Its old stream has ended it.
            connection.reset_stream(stream, FlowCode::AppReset);
            return true;
        };
        bonded.leg += 1;
        bonded.begin_leg(next);
        let mut header = Vec::new();
        let request = Move {
            flow: bonded.number,
            leg: bonded.leg,
            next,
        };
        request.encode(&mut header);
        if let Some(flow) = entry.flow_mut() {
            flow.attach(header.into());
        }
        entry.begin_moving();
        let lane = Lane {
            connection: on,
            stream,
        };
        if let Some(mut detached) = entry.attach(now, lane) {
            detached.release(&mut self.lease);
            bonded_from(entry, detached.carried().connection);
        }
        connection.streams.insert(stream, key);
        self.flows.set_deadline(key, Some(now + MOVE_TIMEOUT));
        self.talk.note_opening(now);
        // What it holds for its application is charged to its connection again.
        self.charge_flow(now, key);
        self.want_outbound(key);
        self.connections.want_transmit(on);
        true
    }

    /// Reads the server's answer to MOVE, then what follows it.
    pub(super) fn read_move_answer(&mut self, now: Instant, key: FlowKey) {
        let Some((entry, connection, stream)) = self.carried(key) else {
            return;
        };
        let Some(inlet) = entry.inlet_mut() else {
            return;
        };
        let end = inlet.take_in(&mut connection.stream(stream), usize::MAX);
        inlet.compact();
        let read = inlet.header(MAX_MOVE_ACK_FRAME);
        let answer = match (MoveAck::decode(&read), end) {
            (Ok(Decoded::Need), ReadEnd::Reset(code)) => {
                Err(FlowCode::from_u64(code).unwrap_or(FlowCode::NoFlow))
            }
            (Ok(Decoded::Need), ReadEnd::Blocked) if read.len() < MAX_MOVE_ACK_FRAME => {
                return self.charge_flow(now, key);
            }
            (Ok(Decoded::Done { frame, consumed }), _) => Ok((frame, consumed)),
            (Err(code), _) => Err(code),
            _ => Err(FlowCode::Internal),
        };
        let resumed = answer.and_then(|(frame, consumed)| {
            let mut leg = entry.end_moving().ok_or(FlowCode::Internal)?;
            leg.skip_header(consumed);
            let flow = entry.flow_mut().ok_or(FlowCode::Internal)?;
            flow.resume(frame.next, leg).map_err(code_of)?;
            entry.note_seen(frame.next);
            Ok(())
        });
        if let Err(code) = resumed {
            return self.give_up(now, key, code);
        }
        let (id, to) = (entry.id(), connection.id());
        let from = entry.bonded.as_ref().and_then(|bonded| bonded.from);
        let without = without(entry, now);
        let client = connection.carried(stream).client;
        self.events.push_back(Event::Moved {
            flow: id,
            from: from.unwrap_or(to),
            connection: to,
            stream_id: stream_number(stream),
            without,
        });
        self.count_move(client, without);
        self.flows.set_deadline(key, None);
        self.want_outbound(key);
        self.pump_to_app(now, key);
        self.settle_flow(now, key);
    }

    fn count_move(&mut self, client: Option<ClientKey>, without: Duration) {
        self.totals.flows_moved += 1;
        self.totals.times.moves.note(without);
        if let Some(totals) = self.clients.totals(client) {
            totals.flows_moved += 1;
        }
    }

    /// Closes connections of a bond that all flows have left for `on`.
    pub(crate) fn close_left(&mut self, now: Instant, on: ConnectionKey) {
        let Some(bond) = self.connections.get(on).and_then(|on| on.bond) else {
            return;
        };
        let left = self.connections.iter().filter(|(key, connection)| {
            let empty = connection.streams.is_empty() && connection.is_established();
            *key != on && connection.bond == Some(bond) && empty && connection.is_to_leave()
        });
        let left: Vec<_> = left.map(|(_, connection)| connection.id()).collect();
        for id in left {
            self.close_connection(now, id, CloseCode::Done);
        }
    }
}

/// Server: flows move.
impl<S: Socket> Traffic<S> {
    /// A stream begins with MOVE. `end`: how far the stream has come.
    pub(super) fn read_move(&mut self, now: Instant, key: FlowKey, read: &[u8], complete: bool) {
        let request = match Move::decode(read) {
            Ok(Decoded::Need) if complete => Err(FlowCode::BadOpen),
            Ok(Decoded::Need) => return self.charge_flow(now, key),
            Ok(Decoded::Done { frame, consumed }) => Ok((frame, consumed)),
            Err(code) => Err(code),
        };
        // The stream is that of another flow.
        let inlet = self.flows.get_mut(key).and_then(FlowEntry::inlet_mut);
        let mut inlet = inlet.map(std::mem::take).unwrap_or_default();
        let Some(lane) = self.take_flow(key).and_then(|entry| {
            self.release_stream(now, &entry);
            entry.lane()
        }) else {
            return;
        };
        let moved = request.and_then(|(request, consumed)| {
            inlet.skip_header(consumed);
            self.handle_move(now, lane, &request, inlet)
        });
        if let Err(code) = moved {
            self.totals.moves_refused += 1;
            if let Some(connection) = self.connections.get_mut(lane.connection) {
                connection.reset_stream(lane.stream, code);
            }
        }
        self.connections.want_transmit(lane.connection);
    }

    fn handle_move(
        &mut self,
        now: Instant,
        lane: Lane,
        request: &Move,
        inlet: Inlet,
    ) -> Result<(), FlowCode> {
        let connection = self.connections.get(lane.connection);
        let bond = connection.and_then(|connection| connection.bond);
        let bond = bond.ok_or(FlowCode::NoBond)?;
        let found = self.bonds.get(bond).ok_or(FlowCode::NoBond)?;
        let key = found
            .flow(request.flow)
            .ok_or_else(|| found.ending(request.flow).unwrap_or(FlowCode::NoFlow))?;
        let entry = self.flows.get(key).ok_or(FlowCode::NoFlow)?;
        let leg = entry.bonded.as_ref().map_or(0, |bonded| bonded.leg);
        if !entry.can_move() {
            return Err(FlowCode::NoFlow);
        }
        if request.leg <= leg {
            return Err(FlowCode::Moved);
        }
        if let Some(old) = entry.lane() {
            // Nothing of the old stream counts any more once `next` is told.
            self.detach_flow(now, key, bond);
            if let Some(connection) = self.connections.get_mut(old.connection) {
                connection.reset_stream(old.stream, FlowCode::Moved);
            }
            self.connections.want_transmit(old.connection);
        }
        let (entry, connection) = (
            self.flows.get_mut(key),
            self.connections.get_mut(lane.connection),
        );
        let (Some(entry), Some(connection)) = (entry, connection) else {
            let found = self.bonds.get(bond);
            let ending = found.and_then(|found| found.ending(request.flow));
            return Err(ending.unwrap_or(FlowCode::NoFlow));
        };
        let flow = entry.flow_mut().ok_or(FlowCode::NoFlow)?;
        let next = flow.next();
        match flow.resume(request.next, inlet) {
            Ok(()) => {}
            Err(BadNumber::TooOld) => {
                self.give_up(now, key, FlowCode::TooOld);
                return Err(FlowCode::TooOld);
            }
            Err(BadNumber::NeverSent) => {
                self.violate(now, lane.connection, "MOVE beyond what was sent");
                return Err(FlowCode::Internal);
            }
        }
        let mut header = Vec::new();
        MoveAck { next }.encode(&mut header);
        flow.attach(header.into());
        // What SEEN has said on the old connection may not have arrived.
        entry.note_seen(request.next);
        if let Some(bonded) = &mut entry.bonded {
            bonded.leg = request.leg;
            bonded.begin_leg(next);
        }
        let mut from = connection.id();
        if let Some(mut detached) = entry.attach(now, lane) {
            detached.release(&mut self.lease);
            from = detached.carried().connection;
        }
        connection.streams.insert(lane.stream, key);
        connection.settle_debt(&mut self.lease);
        let without = without(entry, now);
        let client = connection.carried(lane.stream).client;
        self.events.push_back(Event::Moved {
            flow: entry.id(),
            from,
            connection: connection.id(),
            stream_id: stream_number(lane.stream),
            without,
        });
        self.count_move(client, without);
        self.flows.set_deadline(key, None);
        self.talk.note_opening(now);
        self.pump_to_app(now, key);
        self.want_outbound(key);
        self.settle_flow(now, key);
        Ok(())
    }

    /// Flows of the bond that have ended at the client while they had no connection.
    pub(super) fn handle_ended_flows(&mut self, now: Instant, key: ConnectionKey, ended: &[Gone]) {
        let connection = self.connections.get(key);
        let Some(bond) = connection.and_then(|connection| connection.bond) else {
            return;
        };
        for gone in ended {
            let found = self.bonds.get(bond);
            let Some(flow) = found.and_then(|found| found.flow(gone.flow)) else {
                continue;
            };
            let Some(entry) = self.flows.get_mut(flow) else {
                continue;
            };
            if gone.code == FINISHED {
                // It lacks nothing, and its SEEN was lost.
                entry.note_seen(u64::MAX);
                self.settle_flow(now, flow);
                continue;
            }
            if let Some(ending) = entry.ending() {
                // It has waited for nothing but the client's word.
                self.remove_flow(now, flow, ending);
                continue;
            }
            if entry.flow().is_none() {
                self.refuse_flow(now, flow, FlowCode::AppReset);
                continue;
            }
            if let Some((entry, connection, stream)) = self.carried(flow) {
                if let Some(flow) = entry.flow_mut() {
                    flow.handle_reset(&mut connection.stream(stream), gone.code);
                }
            } else if let Some(flow) = self.flows.get_mut(flow).and_then(FlowEntry::flow_mut) {
                flow.handle_reset(&mut NoStream, gone.code);
            }
            self.settle_flow(now, flow);
        }
    }
}

/// What the peer has seen.
impl<S: Socket> Traffic<S> {
    /// Bytes of a flow have arrived: the peer is told now and then.
    pub(super) fn note_arrived(&mut self, now: Instant, key: FlowKey) {
        let Some((entry, connection, stream)) =
            carried(&mut self.flows, &mut self.connections, key)
        else {
            return;
        };
        if entry.is_moving() || connection.bond.is_none() {
            return;
        }
        let next = entry.flow().map_or(0, Flow::next);
        let Some(bonded) = entry.bonded.as_mut().filter(|bonded| bonded.bond.is_some()) else {
            return;
        };
        connection.expect_more();
        match bonded.note_arrived(next) {
            Tell::Nothing => {}
            Tell::Soon => connection.untold.push(now, key),
            Tell::Now => connection.control.note_seen(stream_number(stream), next),
        }
    }

    /// Tells the peer of a connection what has arrived and was not told.
    pub(crate) fn tell_arrived(&mut self, on: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(on) else {
            return;
        };
        for key in connection.untold.take() {
            let Some(entry) = self.flows.get_mut(key) else {
                continue;
            };
            let Some(lane) = entry.lane().filter(|lane| lane.connection == on) else {
                continue;
            };
            let next = entry.flow().map_or(0, Flow::next);
            if let Some(bonded) = &mut entry.bonded
                && bonded.take_turn(next)
            {
                connection
                    .control
                    .note_seen(stream_number(lane.stream), next);
            }
        }
        self.connections.want_transmit(on);
    }

    /// A flow of a bond keeps nothing where too much is kept already.
    pub(super) fn limit_retained(&mut self, key: FlowKey) {
        if self.kept <= self.transport.account.budget() / RETAINED_PART {
            return;
        }
        if let Some(flow) = self.flows.get_mut(key).and_then(FlowEntry::flow_mut) {
            flow.forget_retained();
        }
    }

    /// Client: the number that a new flow's OPEN has on this connection.
    pub(super) fn number_flow(&mut self, key: ConnectionKey, flow: FlowKey) -> Option<u64> {
        let bond = self.connections.get(key)?.bond?;
        let found = self.bonds.get_mut(bond)?;
        let number = found.next_number();
        found.insert(number, flow);
        let entry = self.flows.get_mut(flow)?;
        entry.bonded = Some(Bonded::new(Some(bond), number));
        Some(number)
    }
}

/// Whether flows wait for another connection where one has ended for this reason.
pub(super) fn keeps_flows(reason: &LossReason) -> bool {
    match reason {
        LossReason::TimedOut | LossReason::Reset | LossReason::Protocol(_) => true,
        LossReason::ClosedByPeer(code) => CloseCode::from_u64(*code) == Some(CloseCode::Done),
        _ => false,
    }
}

/// A flow has moved. Returns for how long nothing moved in it.
fn without<S: Socket>(entry: &mut FlowEntry<S>, now: Instant) -> Duration {
    let bonded = entry.bonded.as_mut();
    bonded.map_or(Duration::ZERO, |bonded| bonded.go_on(now))
}

fn bonded_from<S: Socket>(entry: &mut FlowEntry<S>, from: ConnectionId) {
    if let Some(bonded) = &mut entry.bonded {
        bonded.from = Some(from);
    }
}

fn code_of(number: BadNumber) -> FlowCode {
    match number {
        BadNumber::TooOld => FlowCode::TooOld,
        BadNumber::NeverSent => FlowCode::Internal,
    }
}
