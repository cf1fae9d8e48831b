//! Flows that a server opens for what has connected to its listeners (PROTOCOL section 5.9).

use std::time::Instant;

use quictun_flow::{ConnectionId, ConnectionKey, FlowId, FlowKey, ReadEnd, Socket};
use quictun_wire::code::FlowCode;
use quictun_wire::control::Frame;
use quictun_wire::listening::{Incoming, Listen, MAX_INCOMING_FRAME};
use quictun_wire::open::Decoded;
use quinn_proto::StreamId;

use super::Traffic;
use crate::entries::{FlowEntry, Lane};
use crate::event::{Event, Taken};
use crate::grants::FLOW_COST;
use crate::quic_stream::stream_number;
use crate::report::Side;

/// What became of a connection to a listener.
#[derive(Debug)]
pub enum Opening<S> {
    /// It is a flow.
    Opened(FlowId),
    /// The client takes no more for now, or does not answer; [`Event::Room`] may say when it does again.
    NoRoom(S),
    /// It was reset: there is no memory for it, or the engine drains.
    Refused,
}

/// Client.
impl<S: Socket> Traffic<S> {
    pub(crate) fn listen(&mut self, id: ConnectionId, listen: Listen) -> bool {
        let flows = self.first_flows();
        let key = self.connections.find(id);
        let Some(connection) = key.and_then(|key| self.connections.get_mut(key)) else {
            return false;
        };
        if !connection.control.may_listen() || connection.is_lost() {
            return false;
        }
        // PROTOCOL REVERSE-2.
        connection.grant_incoming(flows);
        connection.settle_debt(&mut self.lease);
        self.say(id, &Frame::Listen(listen));
        true
    }

    /// Whether the peer has opened the stream of a flow, and it is a server.
    pub(super) fn is_from_server(&self, stream: StreamId) -> bool {
        self.side == Side::Client && stream.initiator().is_server()
    }

    /// A stream of the server's: who has connected to which listener. `inlet` has `read` at its front; `end`: how it ended.
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
        let Some((entry, connection, stream)) = self.carried(key) else {
            return;
        };
        let mut inlet = entry.inlet_mut().map(std::mem::take).unwrap_or_default();
        inlet.skip_header(consumed);
        entry.begin_incoming(incoming.peer.to_string(), inlet);
        let taken = Taken {
            flow: entry.id(),
            connection: connection.id(),
            stream_id: stream_number(stream),
            incoming,
        };
        self.handle_asked(now, key, Event::Incoming(taken));
    }
}

/// Server.
impl<S: Socket> Traffic<S> {
    pub(crate) fn open_incoming(
        &mut self,
        now: Instant,
        id: ConnectionId,
        incoming: Incoming,
        (mut socket, listener): (S, String),
        until: Instant,
    ) -> Opening<S> {
        let on = self.connections.find(id);
        let connection = on.and_then(|on| Some((on, self.connections.get_mut(on)?)));
        let usable = connection.filter(|(_, connection)| connection.is_usable());
        let Some((on, connection)) = usable else {
            return Opening::NoRoom(socket);
        };
        if self.draining || !self.lease.has_room(FLOW_COST) {
            socket.abort();
            self.totals.flows_refused += 1;
            return Opening::Refused;
        }
        let Some(stream) = connection.open_stream() else {
            return Opening::NoRoom(socket);
        };
        self.lease.charge(FLOW_COST);
        let mut request = Vec::new();
        incoming.encode(&mut request);
        let opened = Lane {
            connection: on,
            stream,
        };
        let named = (listener, incoming.peer.to_string());
        let mut name = FlowId(0);
        let make = |id| {
            name = id;
            FlowEntry::incoming(id, (opened, request.into()), socket, named, now)
        };
        let key = self.flows.insert(&mut self.ids, until, make);
        self.totals.flows_opened += 1;
        self.talk.note_opening(now);
        connection.streams.insert(stream, key);
        self.want_outbound(key);
        self.connections.want_transmit(on);
        Opening::Opened(name)
    }

    /// The client has not said in time whether it takes a flow.
    pub(crate) fn give_up_incoming(&mut self, now: Instant, key: FlowKey) {
        let Some((entry, connection, stream)) = self.carried(key) else {
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

    /// The client lets more flows be opened.
    pub(crate) fn tell_of_room(&mut self, key: ConnectionKey) {
        if let Some(connection) = self.connections.get(key) {
            self.events.push_back(Event::Room {
                connection: connection.id(),
            });
        }
    }
}

/// Both sides.
impl<S: Socket> Traffic<S> {
    pub(crate) fn say(&mut self, id: ConnectionId, frame: &Frame) {
        let key = self.connections.find(id);
        if let Some((key, connection)) =
            key.and_then(|key| Some((key, self.connections.get_mut(key)?)))
        {
            connection.control.say(frame);
            self.connections.want_transmit(key);
        }
    }
}
