//! Moves of bonded flows to another connection: MOVE, its answer, and flows that have ended meanwhile.

use std::time::{Duration, Instant};

use quictun_flow::{
    BondKey, ClientKey, ConnectionId, ConnectionKey, Ending, Flow, FlowEntry, FlowKey, Inlet,
    NoStream, ReadEnd, ResumeError, Socket, Stream as _, StreamKey,
};
use quictun_wire::code::{CloseCode, FlowCode};
use quictun_wire::control::{FINISHED, FlowEnd};
use quictun_wire::moving::{MAX_MOVE_ACK_FRAME, Move, MoveAck};
use quictun_wire::open::Decoded;

use super::Traffic;
use crate::bonds::Bond;
use crate::connection::Connection;
use crate::event::Event;

/// Time after which an unanswered move is given up, on a connection that is alive.
pub(super) const MOVE_TIMEOUT: Duration = Duration::from_secs(30);

/// Moves: the client's part.
impl<S: Socket> Traffic<S> {
    /// Moves flows of the bond that have no connection, or one that is to be left, to an existing connection.
    pub(super) fn move_bond_flows(&mut self, now: Instant, bond: BondKey) {
        if let Some(on) = self.usable_connection(bond, None) {
            self.move_flows(now, on);
        }
    }

    /// Returns the latest connection of the bond that can carry its flows, and whose peer was heard at `since` or later.
    pub(super) fn usable_connection(
        &self,
        bond: BondKey,
        since: Option<Instant>,
    ) -> Option<ConnectionKey> {
        let mut latest_first = self.bonds.get(bond)?.connections.iter().rev().copied();
        latest_first.find(|&key| {
            let connection = self.connections.get(key);
            connection.is_some_and(|connection| {
                let heard = since.is_none_or(|since| connection.heard_since(since));
                connection.is_admitted() && connection.is_usable() && heard
            })
        })
    }

    /// Moves flows of the bond of `left` to another connection, if `left` is to be left. If `left` is silent, other
    /// connections may be dead, too, and idle ones have not noticed it: only one that was heard meanwhile takes flows.
    pub(crate) fn move_flows_away(&mut self, now: Instant, left: ConnectionKey) {
        let connection = self.connections.get(left);
        let Some(left) = connection.filter(|connection| connection.is_to_leave()) else {
            return;
        };
        if let Some(bond) = left.bond
            && let Some(on) = self.usable_connection(bond, left.silent_since())
        {
            self.move_flows(now, on);
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
            entry.is_some_and(|entry| match entry.stream_key() {
                None => entry.detached().is_some(),
                Some(stream_key) => {
                    let carrier = self.connections.get(stream_key.connection);
                    stream_key.connection != on
                        && carrier.is_none_or(Connection::is_to_leave)
                        && self.bond_to_wait_in(flow).is_some()
                }
            })
        };
        let flows: Vec<FlowKey> = bond.flows().filter(to_move).collect();
        for flow in flows {
            if !self.move_flow(now, flow, on) {
                // The server will soon permit more streams.
                break;
            }
        }
    }

    /// Moves `flows` to `on` if they can move, although their connection is well.
    pub(crate) fn move_chosen(&mut self, now: Instant, flows: &[FlowKey], on: ConnectionKey) {
        for &flow in flows {
            let moves = self.bond_to_wait_in(flow).is_some()
                && self.flows.get(flow).is_some_and(|entry| !entry.is_on(on));
            if moves && !self.move_flow(now, flow, on) {
                break;
            }
        }
    }

    /// Moves all flows of the connection `from` to `on`.
    pub(crate) fn move_all(&mut self, now: Instant, from: ConnectionKey, on: ConnectionKey) {
        let flows = self.connections.get(from).map(|from| from.streams.flows());
        self.move_chosen(now, &flows.unwrap_or_default(), on);
    }

    /// Returns the flows of a bond that a connection carries, the connection of each, and the bytes that it has moved in
    /// both directions.
    pub(crate) fn bytes_moved(
        &self,
        bond: BondKey,
    ) -> impl Iterator<Item = (FlowKey, ConnectionKey, u64)> {
        let flows = self.bonds.get(bond).into_iter().flat_map(Bond::flows);
        flows.filter_map(|key| {
            let entry = self.flows.get(key)?;
            let (on, flow) = (entry.stream_key()?.connection, entry.flow()?);
            Some((key, on, flow.sent() + flow.next()))
        })
    }

    /// Returns the number of packets that a connection has lost. Over TCP, these are segments, and those that arrived out
    /// of order count as well.
    pub(crate) fn packets_lost(&self, key: ConnectionKey) -> u64 {
        if let Some(socket) = self.carrier_sockets.get(key) {
            return socket.segments_lost();
        }
        let connection = self.connections.get(key);
        connection.map_or(0, |it| it.carrier.counters().packets_lost)
    }

    /// Sends MOVE for a flow on the connection `on`, unless the flow only has to be delivered. Returns false if no stream is
    /// available.
    fn move_flow(&mut self, now: Instant, key: FlowKey, on: ConnectionKey) -> bool {
        if self.flows.get(key).is_some_and(FlowEntry::needs_no_peer) {
            return true;
        }
        let stream = self
            .connections
            .get_mut(on)
            .and_then(Connection::open_stream);
        let Some(stream) = stream else { return false };
        self.leave_leg(now, key);
        let waits = self.is_detached(key);
        let Some(connection) = self.connections.get_mut(on) else {
            return true;
        };
        let entry = self.flows.get_mut(key);
        let Some(entry) = entry.filter(|entry| waits && entry.bonded.is_some()) else {
            // The flow has ended with its old stream.
            connection.reset_stream(stream, FlowCode::AppReset);
            self.connections.want_transmit(on);
            return true;
        };
        let next = entry.flow().map_or(0, Flow::next);
        let mut header = Vec::new();
        if let Some(bonded) = &mut entry.bonded {
            bonded.leg += 1;
            bonded.begin_leg(next);
            let request = Move {
                flow: bonded.number,
                leg: bonded.leg,
                next,
            };
            request.encode(&mut header);
        }
        if let Some(flow) = entry.flow_mut() {
            flow.attach(header.into());
        }
        let stream_key = StreamKey {
            connection: on,
            stream,
        };
        if let Some(mut detached) = entry.attach(stream_key) {
            detached.release(&mut self.memory.lease);
            bonded_from(entry, detached.leg().connection);
        }
        entry.begin_moving();
        connection.streams.insert(stream, key);
        self.note_attached(key);
        self.attach_datagram_flow(now, key, false);
        self.flows.set_deadline(key, Some(now + MOVE_TIMEOUT));
        self.talk.note_opening(now);
        // Data that the flow holds for its application is charged to its connection again.
        self.charge_flow(now, key);
        self.charge_connection(on);
        self.want_outbound(key);
        self.connections.want_transmit(on);
        true
    }

    /// Reads the server's answer to MOVE, and then the data after it.
    pub(super) fn read_move_answer(&mut self, now: Instant, key: FlowKey) {
        let Some((entry, connection, stream)) = self.attached(key) else {
            return;
        };
        let Some(inlet) = entry.inlet_mut() else {
            return;
        };
        let end = inlet.take_in(&mut connection.stream(stream), usize::MAX);
        inlet.compact();
        let read = inlet.header(MAX_MOVE_ACK_FRAME);
        let refused = |code| Err(Ending::PeerRefused(code));
        let answer = match (MoveAck::decode(&read), end) {
            (Ok(Decoded::Need), ReadEnd::Reset(code)) => {
                refused(FlowCode::from_u64(code).unwrap_or(FlowCode::NoFlow))
            }
            (Ok(Decoded::Need), ReadEnd::Blocked) if read.len() < MAX_MOVE_ACK_FRAME => {
                return self.charge_flow(now, key);
            }
            (Ok(Decoded::Done { frame, consumed }), _) => Ok((frame, consumed)),
            // The peer has answered badly, or has ended the stream without an answer.
            (Err(code), _) => refused(code),
            _ => refused(FlowCode::Internal),
        };
        let resumed = answer.and_then(|(frame, consumed)| {
            let mut leg = entry.end_moving().ok_or(FlowCode::Internal)?;
            leg.skip_header(consumed);
            let flow = entry.flow_mut().ok_or(FlowCode::Internal)?;
            flow.resume(frame.next, leg).map_err(ending_of)?;
            entry.note_seen(frame.next);
            Ok(())
        });
        if let Err(how) = resumed {
            return self.give_up(now, key, how);
        }
        let (id, to) = (entry.id(), connection.id());
        let from = entry.bonded.as_ref().and_then(|bonded| bonded.from);
        let without = without(entry, now);
        let client = connection.leg(stream).client;
        self.events.push(Event::Moved {
            flow: id,
            from: from.unwrap_or(to),
            connection: to,
            stream_id: stream.number(),
            without,
        });
        self.count_move(client, without);
        self.flows.set_deadline(key, None);
        if let ReadEnd::Reset(code) = end
            && let Some((entry, connection, stream)) = self.attached(key)
            && let Some(flow) = entry.flow_mut()
        {
            flow.handle_reset(&mut connection.stream(stream), code);
        }
        self.note_kept(key);
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

    /// Closes connections of a bond that all flows have left for `on`, once the server has answered the moves. A close
    /// that overtakes a MOVE would end a flow whose acceptance by this side the server has not read (PROTOCOL
    /// REVERSE-14).
    pub(crate) fn close_left(&mut self, now: Instant, on: ConnectionKey) {
        let Some(bond) = self.connections.get(on).and_then(|on| on.bond) else {
            return;
        };
        let Some(found) = self.bonds.get(bond) else {
            return;
        };
        let others = found.connections.iter().filter(|&&key| key != on);
        let others = others.filter_map(|&key| self.connections.get(key));
        let left = others.filter(|connection| {
            let empty = connection.streams.is_empty() && connection.is_established();
            empty && connection.is_to_leave()
        });
        let left: Vec<_> = left.map(Connection::id).collect();
        let is_moving = |flow| self.flows.get(flow).is_some_and(FlowEntry::is_moving);
        if left.is_empty() || found.flows().any(is_moving) {
            return;
        }
        for id in left {
            self.close_connection(now, id, CloseCode::Done);
        }
    }
}

/// Moves: the server's part.
impl<S: Socket> Traffic<S> {
    /// Handles a stream that begins with MOVE. `complete` means that no more of the frame will come.
    pub(super) fn read_move(&mut self, now: Instant, key: FlowKey, read: &[u8], complete: bool) {
        let request = match Move::decode(read) {
            Ok(Decoded::Need) if complete => Err(FlowCode::BadOpen),
            Ok(Decoded::Need) => return self.charge_flow(now, key),
            Ok(Decoded::Done { frame, consumed }) => Ok((frame, consumed)),
            Err(code) => Err(code),
        };
        // The stream belongs to another flow, not to the one that was made for it.
        let inlet = self.flows.get_mut(key).and_then(FlowEntry::inlet_mut);
        let mut inlet = inlet.map(std::mem::take).unwrap_or_default();
        let Some(stream_key) = self.take_flow(key).and_then(|entry| {
            self.release_stream(now, &entry);
            entry.stream_key()
        }) else {
            return;
        };
        let moved = request.and_then(|(request, consumed)| {
            inlet.skip_header(consumed);
            self.handle_move(now, stream_key, &request, inlet)
        });
        if let Err(code) = moved {
            self.totals.moves_refused += 1;
            if let Some(connection) = self.connections.get_mut(stream_key.connection) {
                connection.reset_stream(stream_key.stream, code);
            }
        }
        self.connections.want_transmit(stream_key.connection);
    }

    fn handle_move(
        &mut self,
        now: Instant,
        stream_key: StreamKey,
        request: &Move,
        inlet: Inlet,
    ) -> Result<(), FlowCode> {
        let connection = self.connections.get(stream_key.connection);
        let bond = connection.and_then(|connection| connection.bond);
        let bond = bond.ok_or(FlowCode::NoBond)?;
        let found = self.bonds.get(bond).ok_or(FlowCode::NoBond)?;
        let key = found
            .flow(request.flow)
            .ok_or_else(|| found.ending(request.flow).unwrap_or(FlowCode::NoFlow))?;
        let entry = self.flows.get(key).ok_or(FlowCode::NoFlow)?;
        let leg = entry.bonded.as_ref().map_or(0, |bonded| bonded.leg);
        if !entry.can_move() && !entry.awaits_bonded_answer() {
            return Err(FlowCode::NoFlow);
        }
        if request.leg <= leg {
            return Err(FlowCode::Moved);
        }
        if !self
            .bonds
            .get_mut(bond)
            .is_some_and(|found| found.may_move(now))
        {
            self.violate(now, stream_key.connection, "flows move too often");
            return Err(FlowCode::Limit);
        }
        self.accept_left(now, key);
        let entry = self.flows.get(key).filter(|entry| entry.can_move());
        if let Some(old) = entry.ok_or(FlowCode::NoFlow)?.stream_key() {
            // Once `next` is sent, nothing from the old stream counts any more.
            self.leave_stream(now, key, bond, old);
        }
        let (entry, connection) = (
            self.flows.get_mut(key),
            self.connections.get_mut(stream_key.connection),
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
            Err(ResumeError::TooOld) => {
                self.give_up(now, key, FlowCode::TooOld);
                return Err(FlowCode::TooOld);
            }
            Err(ResumeError::NeverSent) => {
                self.violate(now, stream_key.connection, "MOVE beyond what was sent");
                return Err(FlowCode::Internal);
            }
        }
        let mut header = Vec::new();
        MoveAck { next }.encode(&mut header);
        flow.attach(header.into());
        // The SEEN of the old connection may not have arrived.
        entry.note_seen(request.next);
        if let Some(bonded) = &mut entry.bonded {
            bonded.leg = request.leg;
            bonded.begin_leg(next);
        }
        let mut from = connection.id();
        if let Some(mut detached) = entry.attach(stream_key) {
            detached.release(&mut self.memory.lease);
            from = detached.leg().connection;
        }
        connection.streams.insert(stream_key.stream, key);
        let without = without(entry, now);
        let client = connection.leg(stream_key.stream).client;
        self.events.push(Event::Moved {
            flow: entry.id(),
            from,
            connection: connection.id(),
            stream_id: stream_key.stream.number(),
            without,
        });
        self.count_move(client, without);
        self.flows.set_deadline(key, None);
        self.talk.note_opening(now);
        self.note_attached(key);
        self.attach_datagram_flow(now, key, false);
        self.note_kept(key);
        self.pump_to_app(now, key);
        self.charge_connection(stream_key.connection);
        self.want_outbound(key);
        self.settle_flow(now, key);
        Ok(())
    }

    /// Handles flows of the bond that have ended at the client while they had no connection.
    pub(super) fn handle_ended_flows(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        ended: &[FlowEnd],
    ) {
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
                // The client has everything, but its SEEN was lost.
                entry.note_seen(u64::MAX);
                self.settle_flow(now, flow);
                continue;
            }
            if let Some(ending) = entry.ending() {
                // The flow only waited for the client's confirmation.
                self.remove_flow(now, flow, ending);
                continue;
            }
            if entry.flow().is_none() {
                self.refuse_flow(now, flow, FlowCode::AppReset);
                continue;
            }
            if let Some((entry, connection, stream)) = self.attached(flow) {
                let mut stream = connection.stream(stream);
                // The message came beside the stream. The reset on the stream itself will not be read.
                stream.stop(FlowCode::from_u64(gone.code).unwrap_or(FlowCode::AppReset));
                if let Some(flow) = entry.flow_mut() {
                    flow.handle_reset(&mut stream, gone.code);
                }
            } else if let Some(flow) = self.flows.get_mut(flow).and_then(FlowEntry::flow_mut) {
                flow.handle_reset(&mut NoStream, gone.code);
            }
            self.settle_flow(now, flow);
        }
    }
}

fn bonded_from<S: Socket>(entry: &mut FlowEntry<S>, from: ConnectionId) {
    if let Some(bonded) = &mut entry.bonded {
        bonded.from = Some(from);
    }
}

/// Client: returns how a flow ends that cannot continue after the server's answer.
fn ending_of(error: ResumeError) -> Ending {
    match error {
        ResumeError::TooOld => Ending::Abandoned(FlowCode::TooOld),
        // The server asks for bytes that were never sent.
        ResumeError::NeverSent => Ending::PeerRefused(FlowCode::Internal),
    }
}

/// Ends the stall of a flow that has moved. Returns how long the flow made no progress.
fn without<S: Socket>(entry: &mut FlowEntry<S>, now: Instant) -> Duration {
    let bonded = entry.bonded.as_mut();
    bonded.map_or(Duration::ZERO, |bonded| bonded.resume(now))
}
