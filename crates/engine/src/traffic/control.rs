//! Control frames from the peer, and their effects.

use std::time::Instant;

use quictun_congestion::PeerKey;
use quictun_flow::{BondKey, ConnectionKey, FlowKey, Inlet, Socket, StreamId};
use quictun_wire::bond::BondGrant;
use quictun_wire::code::CloseCode;
use quictun_wire::control::{FlowEnd, Frame, Seen};
use quictun_wire::join::Grant;
use quictun_wire::open::Decoded;

use super::Traffic;
use crate::connection::Hello;
use crate::event::{ClientEvent, ServerEvent};
use crate::grants::InitialGrants;
use crate::loss::LossReason;
use crate::report::{Protocol, Side};

/// Divisor of the free memory for the overhead of pieces on the control stream of an admitted peer, and the bounds of the
/// result, bytes. Behind a gap, each piece costs 160 bytes besides its data. An honest peer sends few frames in the round
/// trip or two that a gap lasts: 200 pieces at least, 6500 while there is memory.
const PIECES_PART: u64 = 1024;
const PIECES_MIN: u64 = 32 * 1024;
const PIECES_MAX: u64 = 1 << 20;

/// Overhead of pieces on the control stream of a stranger, whose HELLO fits into four packets, bytes.
const PIECES_STRANGER: u64 = 4 * 1024;

/// Number of events from which on the frames of one control stream wait for the next turn. A frame of three bytes can
/// cause an event of a hundred times that size, and the caller works on each event before other connections have a turn.
/// A client that asks for its 64 listeners at once needs four turns, which follow each other without a pause.
const EVENTS_MAX: usize = 16;

impl<S: Socket> Traffic<S> {
    /// Client: opens the control stream of a connection that is up, and sends HELLO.
    pub(crate) fn begin_control(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        hello: Hello<'_>,
        bond: Option<BondKey>,
    ) {
        let native = self.connections.get(key);
        let native = native.is_some_and(|connection| connection.speaks(Protocol::Native));
        let request = bond.filter(|_| native);
        let request = request.and_then(|bond| self.join_bond(key, bond));
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let answer_by = now + self.transport.handshake_timeout;
        // A server that permits no further stream does not know HELLO.
        if connection.speaks(Protocol::Native)
            && connection.begin_control(hello, request, answer_by)
        {
            self.connections.want_transmit(key);
        } else {
            self.welcome(now, key);
        }
    }

    /// Client: handles an answered HELLO, or a server that does not know HELLO.
    pub(crate) fn welcome(&mut self, now: Instant, key: ConnectionKey) {
        self.welcome_with(now, key, None, None);
    }

    /// Client: handles a HELLO that was not answered in time. The server counts as an older one, unless it has agreed
    /// to a bond with open flows: then the path is dead.
    pub(crate) fn end_admission(&mut self, now: Instant, key: ConnectionKey) {
        let connection = self.connections.get(key);
        let bond = connection.and_then(|connection| self.bonds.get(connection.bond?));
        if bond.is_some_and(|bond| bond.granted && bond.count() > 0) {
            let text = "HELLO was not answered in time";
            self.close(now, key, CloseCode::Done, text, LossReason::TimedOut);
        } else {
            self.welcome(now, key);
        }
    }

    fn welcome_with(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        grant: Option<Grant>,
        bond: Option<BondGrant>,
    ) {
        let bonded = bond.is_some();
        if let Some(connection) = self.connections.get_mut(key)
            && connection.admission.admit()
        {
            if connection.for_transfers {
                return self.handle_bond_answer(now, key, bond);
            }
            self.events.push(ClientEvent::Welcome {
                server: connection.server,
                connection: connection.id(),
                remote: connection.remote(),
                protocol: connection.stream_protocol(),
                grant,
                bonded,
                reverse: connection.control.may_listen(),
            });
            self.handle_bond_answer(now, key, bond);
        }
    }

    /// Server: closes the connection of a client that did not identify itself in time.
    pub(crate) fn refuse_unproven(&mut self, now: Instant, key: ConnectionKey) {
        if let Some(connection) = self.connections.get(key) {
            let (id, remote) = (connection.id(), connection.remote());
            self.events.push(ServerEvent::Unproven {
                connection: id,
                remote,
            });
            let text = "no identity was shown in time";
            let reason = LossReason::ClosedLocally;
            self.close(now, key, CloseCode::NotAuthorized, text, reason);
        }
    }

    /// Server: admits the client of a connection, which is known or need not be, and serves it in full from now on.
    pub(crate) fn admit(&mut self, now: Instant, key: ConnectionKey) {
        let flows = self.first_flows();
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        connection.admission.admit();
        let peer = PeerKey::Client(connection.remote().ip());
        let known = self.transport.memory.recall(now, peer);
        let own = connection.committed_to_credit();
        connection.grant_first(InitialGrants {
            window: self
                .memory
                .lease
                .first_window(known.receive_window, own, true),
            remembered: known.receive_window,
            flows,
        });
        if connection.control.is_open() {
            self.answer_hello(now, key);
        }
        self.connections.mark(key);
        self.connections.want_transmit(key);
    }

    /// Server: sets the answer to a client's JOIN. If the client is known already, sends the answer.
    pub(crate) fn answer_join(&mut self, now: Instant, key: ConnectionKey, grant: Option<Grant>) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if connection.control.end_join(grant) && connection.is_admitted() {
            self.answer_hello(now, key);
            self.connections.want_transmit(key);
        }
    }

    /// Server: answers HELLO, which includes the answer about the bond.
    fn answer_hello(&mut self, now: Instant, key: ConnectionKey) {
        let bond = self.answer_bond(now, key);
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        connection.control.answer_hello(bond);
        if connection.bond.is_none() {
            self.stop_retaining_flows(key);
        }
        if self.draining {
            self.announce_draining(key);
        }
    }

    /// Takes no new connections any more. A server asks its clients to open their flows elsewhere (PROTOCOL CONTROL-8).
    pub(crate) fn drain(&mut self) {
        self.draining = true;
        if self.side == Side::Server {
            let connections = self.connections.iter().map(|(key, _)| key);
            for key in connections.collect::<Vec<_>>() {
                self.announce_draining(key);
            }
        }
    }

    /// Server: tells a client whose HELLO is answered, or a program, that the server drains.
    fn announce_draining(&mut self, key: ConnectionKey) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.carrier.drain();
            if connection.control.is_answered() {
                connection.control.send_frame(&Frame::Draining);
            }
            self.connections.want_transmit(key);
        }
    }

    pub(super) fn adopt_control(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        stream: StreamId,
        inlet: Inlet,
    ) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if connection.adopt_control(stream, inlet) {
            self.read_control(now, key);
        } else {
            self.violate(now, key, "a second control stream");
        }
    }

    pub(super) fn read_control(&mut self, now: Instant, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        connection.control.take_readable();
        let Some(over) = connection.take_in_control() else {
            return;
        };
        let more = self.read_frames(now, key);
        let pieces_max = self.memory.lease.free_for_newcomers() / PIECES_PART;
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        connection.count_control();
        let pieces_max = if connection.is_admitted() {
            pieces_max.clamp(PIECES_MIN, PIECES_MAX)
        } else {
            PIECES_STRANGER
        };
        let tiny = connection.control.overhead() > pieces_max;
        if more && !tiny {
            // Other connections have their turns first.
            connection.control.handle_readable();
            self.connections.read_on(now, key);
        } else if (over || tiny) && connection.control.streams() > 0 {
            self.lose_control(now, key);
        }
    }

    /// Handles as many of the received frames as a connection may have handled in one turn. Returns whether there may be
    /// more.
    fn read_frames(&mut self, now: Instant, key: ConnectionKey) -> bool {
        let Some(connection) = self.connections.get(key) else {
            return false;
        };
        let bytes = connection.control.unparsed();
        let mut rest = bytes.as_slice();
        let events_max = self.events.0.len() + EVENTS_MAX;
        let mut is_over_limit = false;
        let served = |traffic: &Self| {
            let connection = traffic.connections.get(key);
            connection.is_some_and(|connection| !connection.is_lost())
        };
        while served(self) {
            if self.events.0.len() >= events_max {
                is_over_limit = true;
                break;
            }
            match Frame::decode(rest) {
                Ok(Decoded::Done { frame, consumed }) => {
                    rest = &rest[consumed..];
                    self.handle_frame(now, key, frame);
                }
                Ok(Decoded::Need) => break,
                Err(_) => self.violate(now, key, "malformed control frame"),
            }
        }
        let consumed = bytes.len() - rest.len();
        match self.connections.get_mut(key) {
            Some(connection) if !connection.is_lost() => {
                connection.control.consume(consumed, bytes.len()) || is_over_limit
            }
            _ => false,
        }
    }

    pub(super) fn lose_control(&mut self, now: Instant, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        connection.lose_control();
        let flows = self.flows.iter().filter(|(_, entry)| entry.is_on(key));
        let keys: Vec<FlowKey> = flows.map(|(flow, _)| flow).collect();
        for flow in keys {
            // Neither side can send GO for it.
            self.set_paused(flow, false);
            if let Some(entry) = self.flows.get_mut(flow) {
                entry.backlog.withdraw_hold();
            }
        }
        if self.side == Side::Client {
            self.welcome(now, key);
        }
        self.dissolve_bond(now, key);
        self.connections.want_transmit(key);
    }

    fn set_paused(&mut self, key: FlowKey, paused: bool) {
        if let Some(entry) = self.flows.get_mut(key) {
            entry.set_paused_by_peer(paused);
            if !paused {
                self.want_outbound(key);
            }
        }
    }

    fn handle_frame(&mut self, now: Instant, key: ConnectionKey, frame: Frame) {
        let client = self.side == Side::Client;
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let open = connection.control.is_open();
        match frame {
            Frame::Hello {
                proof,
                join,
                bond,
                reverse,
            } if !client && !open => {
                connection.open_control();
                connection.control.set_reverse(reverse);
                connection.admission.proof = proof;
                connection.bond_request = bond;
                if join.is_some() {
                    connection.control.begin_join();
                } else if connection.is_admitted() {
                    return self.answer_hello(now, key);
                }
                self.events.push(ServerEvent::Hello {
                    connection: connection.id(),
                    remote: connection.remote(),
                    proof,
                    join,
                });
            }
            Frame::HelloAck {
                grant,
                bond,
                reverse,
            } if client && !open => {
                connection.open_control();
                // PROTOCOL REVERSE-1: the server agrees only to what the client has asked for.
                connection.control.set_reverse(reverse);
                self.welcome_with(now, key, grant, bond);
            }
            Frame::Seen(flows) if open => {
                for Seen { flow, next } in flows {
                    self.handle_confirmed(now, key, flow, Some(next));
                }
            }
            Frame::Gone(flows) if open => {
                for FlowEnd { flow, .. } in flows {
                    self.handle_confirmed(now, key, flow, None);
                }
            }
            Frame::Hold(flows) if open => self.handle_hold(key, &flows, true),
            Frame::Go(flows) if open => self.handle_hold(key, &flows, false),
            Frame::Ended(flows) if open && !client => self.handle_ended_flows(now, key, &flows),
            Frame::Listen(listen) if !client && connection.is_asked_to_listen() => {
                self.events.push(ServerEvent::Listen {
                    connection: connection.id(),
                    remote: connection.remote(),
                    listen,
                });
            }
            Frame::Unlisten(ids) if !client && connection.is_asked_to_listen() => {
                self.events.push(ServerEvent::Unlisten {
                    connection: connection.id(),
                    ids,
                });
            }
            Frame::Draining if client && open => connection.note_draining(false),
            Frame::ListenAck(answer) if client && connection.control.may_listen() => {
                self.events.push(ClientEvent::ListenAnswered {
                    connection: connection.id(),
                    answer,
                });
            }
            Frame::Unknown { .. } => {}
            _ => self.violate(now, key, "unexpected control frame"),
        }
    }

    /// Handles SEEN or GONE: the peer has received everything of a flow before the number `next`, or (`None`) reports
    /// nothing more about it.
    fn handle_confirmed(&mut self, now: Instant, key: ConnectionKey, flow: u64, next: Option<u64>) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if connection.control.confirm(flow, next) {
            return;
        }
        let bonded = connection.bond.is_some();
        let found = StreamId::from_number(flow).and_then(|stream| connection.streams.flow(stream));
        let entry = found.and_then(|found| Some((found, self.flows.get_mut(found)?)));
        let Some((found, entry)) = entry else {
            // A peer also reports the progress of a bond's flow, so SEEN may name a flow that has ended here.
            if !bonded || next.is_none() {
                connection.control.confirm_forgotten();
            }
            return;
        };
        let flow = entry.flow_mut().filter(|flow| flow.can_move());
        if let (Some(flow), Some(next)) = (flow, next)
            && flow.handle_seen(next).is_err()
        {
            return self.violate(now, key, "SEEN beyond what was sent");
        }
        entry.note_seen(next.unwrap_or(u64::MAX));
        self.note_kept(found);
        self.settle_flow(now, found);
    }

    fn handle_hold(&mut self, key: ConnectionKey, flows: &[u64], hold: bool) {
        for &flow in flows {
            let connection = self.connections.get(key);
            let stream = connection.zip(StreamId::from_number(flow));
            let found = stream.and_then(|(connection, stream)| connection.streams.flow(stream));
            if let Some(found) = found {
                self.set_paused(found, hold);
                if !hold {
                    self.connections.want_transmit(key);
                }
            }
        }
    }
}
