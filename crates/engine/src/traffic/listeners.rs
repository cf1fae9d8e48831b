//! Flows that a server opens for connections to its listeners (PROTOCOL section 5.9).

use std::time::{Duration, Instant};

use quictun_flow::{
    BondMembership, ConnectionId, ConnectionKey, Ending, FlowEntry, FlowId, FlowKey, FlowSummary,
    LocalLimit, ReadEnd, Socket, StreamId, StreamKey,
};
use quictun_wire::code::FlowCode;
use quictun_wire::control::Frame;
use quictun_wire::listening::{Incoming, Listen, MAX_INCOMING_FRAME};
use quictun_wire::open::Decoded;

use super::Traffic;
use crate::connection::Connection;
use crate::event::{ClientEvent, EngineEvent, IncomingFlow, ServerEvent};
use crate::grants::FLOW_COST;
use crate::report::Side;

/// The result of opening a flow for a connection to a listener.
#[derive(Debug)]
pub enum OpenOutcome<S> {
    /// The flow was opened.
    Opened(FlowId),
    /// The client takes no more flows for now, or does not answer. [`ServerEvent::StreamsAvailable`] reports when it
    /// permits more.
    NoRoom(S),
    /// The socket was reset, because there is no memory for it or the engine drains. [`crate::Event::FlowClosed`]
    /// reports it.
    Refused,
}

/// Flows of listeners: the client's part.
impl<S: Socket> Traffic<S> {
    pub(crate) fn listen(&mut self, id: ConnectionId, listen: Listen) -> bool {
        let flows = self.first_flows();
        let Some((_, connection)) = self.connections.named_mut(id) else {
            return false;
        };
        if !connection.control.may_listen() || connection.is_lost() {
            return false;
        }
        // PROTOCOL REVERSE-2 permits streams only after LISTEN.
        connection.grant_incoming(flows);
        connection.update_memory_charge(&mut self.memory.lease);
        self.send_control_frame(id, &Frame::Listen(listen));
        true
    }

    /// Returns whether a server has opened the stream.
    pub(super) fn is_from_server(&self, stream: StreamId) -> bool {
        self.side == Side::Client && stream.initiator() == Side::Server
    }

    /// Reads INCOMING from a server's stream: the listener, and the address that has connected. `read` is the front of
    /// the flow's inlet, and `end` tells how the read has ended.
    pub(super) fn read_incoming(&mut self, now: Instant, key: FlowKey, read: &[u8], end: ReadEnd) {
        let complete = end != ReadEnd::Blocked || read.len() >= MAX_INCOMING_FRAME;
        let incoming = match Incoming::decode(read) {
            Ok(Decoded::Need) if complete => Err(FlowCode::BadOpen),
            Ok(Decoded::Done { .. }) if matches!(end, ReadEnd::Reset(_)) => Err(FlowCode::AppReset),
            incoming => incoming,
        };
        let (incoming, consumed) = match incoming {
            Ok(Decoded::Need) => return self.charge_flow(now, key),
            Ok(Decoded::Done { frame, consumed }) => (frame, consumed),
            Err(code) => return self.refuse_flow(now, key, code),
        };
        let Some((entry, connection, stream)) = self.attached(key) else {
            return;
        };
        let mut inlet = entry.inlet_mut().map(std::mem::take).unwrap_or_default();
        inlet.skip_header(consumed);
        entry.begin_incoming(incoming.peer.to_string(), inlet);
        let bond = connection.bond;
        let number = incoming.number.filter(|_| bond.is_some());
        entry.bonded = number.map(|number| BondMembership::new(None, number));
        let incoming_flow = IncomingFlow {
            flow: entry.id(),
            connection: connection.id(),
            stream_id: stream.number(),
            incoming,
        };
        if let Some(bond) = bond
            && let Some(stream_key) = entry.stream_key()
        {
            self.enter_bond(now, stream_key.connection, key, bond);
        }
        self.handle_flow_request(now, key, ClientEvent::Incoming(incoming_flow));
    }
}

/// Flows of listeners: the server's part.
impl<S: Socket> Traffic<S> {
    /// Notices from now on if the client of this connection does not answer, even if it has no flow.
    pub(crate) fn watch_client(&mut self, id: ConnectionId) {
        if let Some((_, connection)) = self.connections.named_mut(id) {
            connection.has_listener = true;
        }
    }

    pub(crate) fn takes_incoming(&mut self, id: ConnectionId) -> bool {
        let connection = self.connections.named_mut(id);
        connection.is_some_and(|(_, it)| it.is_usable() && it.reserve_stream())
    }

    pub(crate) fn open_incoming(
        &mut self,
        now: Instant,
        id: ConnectionId,
        incoming: Incoming,
        (mut socket, listener): (S, String),
        until: Instant,
    ) -> OpenOutcome<S> {
        let connection = self.connections.named_mut(id);
        let usable = connection.filter(|(_, connection)| connection.is_usable());
        let Some((on, connection)) = usable else {
            return OpenOutcome::NoRoom(socket);
        };
        let refused = if self.draining {
            Some(Ending::Abandoned(FlowCode::ShuttingDown))
        } else if !self.memory.lease.has_room(FLOW_COST) {
            Some(Ending::LimitReached(LocalLimit::Memory))
        } else {
            None
        };
        if let Some(ending) = refused {
            socket.abort();
            self.refuse_incoming(on, listener, incoming, ending);
            return OpenOutcome::Refused;
        }
        let Some(stream) = connection.open_stream() else {
            return OpenOutcome::NoRoom(socket);
        };
        self.memory.lease.charge(FLOW_COST);
        let opened = StreamKey {
            connection: on,
            stream,
        };
        let named = (listener, incoming.peer.to_string());
        let mut name = FlowId(0);
        let make = |id| {
            name = id;
            FlowEntry::incoming(id, opened, socket, named, now)
        };
        let key = self.flows.insert(&mut self.ids, until, make);
        self.totals.flows_opened += 1;
        self.talk.note_opening(now);
        connection.streams.insert(stream, key);
        let number = self.number_flow(on, key);
        let mut request = Vec::new();
        Incoming { number, ..incoming }.encode(&mut request);
        if let Some(entry) = self.flows.get_mut(key) {
            entry.request(request.into());
        }
        self.want_outbound(key);
        self.enter_datagram_flow(now, key);
        self.attach_datagram_flow(now, key, true);
        self.connections.want_transmit(on);
        OpenOutcome::Opened(name)
    }

    /// Reports a connection to a listener that was refused before a stream was opened for it.
    fn refuse_incoming(
        &mut self,
        on: ConnectionKey,
        listener: String,
        incoming: Incoming,
        ending: Ending,
    ) {
        let Some(connection) = self.connections.get(on) else {
            return;
        };
        let client = connection.client();
        let summary = FlowSummary {
            flow: self.flows.next_id(&mut self.ids),
            connection: Some(connection.id()),
            stream_id: None,
            remote: Some(connection.remote()),
            token: listener,
            client_app: String::new(),
            server_app: incoming.peer.to_string(),
            ending,
            established: false,
            incoming: true,
            bytes_to_tunnel: 0,
            bytes_to_app: 0,
            elapsed: Duration::ZERO,
        };
        self.report_refused(summary, client);
    }

    /// Takes a flow out of its bond, because the client has accepted it without a confirmation of its number.
    pub(super) fn leave_unconfirmed(&mut self, now: Instant, key: FlowKey) {
        let entry = self.flows.get(key);
        let bonded = entry.and_then(|entry| entry.bonded.as_ref());
        if let Some(bond) = bonded.and_then(|bonded| bonded.bond) {
            self.leave_bond_alive(now, key, bond);
        }
    }

    /// Handles a client that leaves the stream of a flow, or moves the flow. Such a client has accepted the flow, but
    /// its answer may be lost with the stream (PROTOCOL REVERSE-14).
    pub(super) fn accept_left(&mut self, now: Instant, key: FlowKey) {
        if self.awaits_bonded_answer(key) {
            self.read_last_answer(now, key);
        }
        if self.awaits_bonded_answer(key) {
            self.accept_unread(key);
        }
    }

    /// Handles a stream that the client has left before its answer was read. The flow waits for the client's MOVE.
    pub(super) fn handle_left_unanswered(&mut self, now: Instant, key: FlowKey) {
        self.accept_unread(key);
        self.leave_leg(now, key);
    }

    fn awaits_bonded_answer(&self, key: FlowKey) -> bool {
        let entry = self.flows.get(key);
        entry.is_some_and(FlowEntry::awaits_bonded_answer)
    }

    fn accept_unread(&mut self, key: FlowKey) {
        if let Some(entry) = self.flows.get_mut(key) {
            entry.handle_left_unread();
            self.handle_established(key);
        }
    }

    /// Ends a flow that the client has not accepted in time.
    pub(crate) fn give_up_incoming(&mut self, now: Instant, key: FlowKey) {
        let Some((entry, connection, stream)) = self.attached(key) else {
            return;
        };
        if entry.is_established() || !entry.is_incoming() {
            return;
        }
        if let Some(flow) = entry.flow_mut() {
            flow.abandon(&mut connection.stream(stream), FlowCode::DialTimeout);
            self.settle_flow(now, key);
        }
    }

    /// Reports that the client permits more flows. A client may say so several hundred times in one packet, and each
    /// report lets the caller try all listeners of the client again.
    pub(crate) fn report_streams_available(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get(key).map(Connection::id) else {
            return;
        };
        if let Some(EngineEvent::Server(ServerEvent::StreamsAvailable { connection: on })) =
            self.events.0.back()
            && *on == connection
        {
            return;
        }
        let event = ServerEvent::StreamsAvailable { connection };
        self.events.push(event);
    }
}

/// Flows of listeners: both sides.
impl<S: Socket> Traffic<S> {
    pub(crate) fn send_control_frame(&mut self, id: ConnectionId, frame: &Frame) {
        if let Some((key, connection)) = self.connections.named_mut(id) {
            connection.control.send_frame(frame);
            self.connections.want_transmit(key);
        }
    }
}
