//! Datagrams of flows: from applications into DATAGRAM frames, and out of frames to applications (PROTOCOL section 5.11).

use std::mem;
use std::time::Instant;

use bytes::{BufMut, Bytes};
use quictun_flow::{
    ConnectionKey, Flow, FlowEntry, FlowId, FlowKey, FlowPhase, Side, Socket, StreamId,
};
use quictun_wire::datagram::{self, DatagramHeader, Fragment, MAX_HEADER};

use super::byte_counters::TransferredBytes;
use super::{Traffic, attached};
use crate::carrier::Carrier;
use crate::datagram_flows::DatagramFlow;

/// Bytes that one flow sends before the next one has its turn. Chosen for a few full packets.
const TURN: usize = 8 * 1024;

/// Further turns in a batch, for flows that have more to send.
const TURNS: usize = 16;

/// Datagrams that one turn takes from an application, so that other applications have theirs.
const READ_MAX: usize = 64;

/// The life of datagram flows.
impl<S: Socket> Traffic<S> {
    /// Enters a flow that has got its application into the table, if the application exchanges datagrams.
    pub(super) fn enter_datagram_flow(&mut self, now: Instant, key: FlowKey) {
        let Some(entry) = self.flows.get(key) else {
            return;
        };
        if !entry.socket().is_some_and(Socket::carries_datagrams) {
            // A peer may have sent datagrams for a flow that has none.
            self.datagram_flows.remove(key);
            return;
        }
        let has_stream = entry.stream_key().is_some();
        let is_source = self.side == Side::Server && entry.is_incoming();
        let flow = self.datagram_flows.enter(now, key, entry.token());
        flow.readable = true;
        flow.is_source = is_source;
        if has_stream {
            flow.begin(now);
        }
        for payload in flow.take_early() {
            self.deliver_datagram(now, key, &payload);
        }
        self.read_datagrams(now, key, true);
    }

    /// Returns whether the application of a flow exchanges datagrams.
    pub(crate) fn exchanges_datagrams(&self, id: FlowId) -> bool {
        let key = self.flows.find(id);
        key.is_some_and(|key| self.datagram_flows.contains(key))
    }

    /// Notes that a flow has got a stream. Datagrams that wait are sent there.
    pub(super) fn attach_datagram_flow(&mut self, now: Instant, key: FlowKey, first: bool) {
        let (Some((_, connection, stream)), Some(flow)) = (
            attached(&mut self.flows, &mut self.connections, key),
            self.datagram_flows.get_mut(key),
        ) else {
            return;
        };
        flow.queued_on = None;
        if first {
            flow.begin(now);
        } else {
            flow.drop_partial();
        }
        if stream.initiator() == self.side {
            // Carriers send datagrams before streams, and this stream before others.
            flow.requested = true;
            connection.streams.requested.push(key);
            connection.carrier.prefer(stream, true);
        }
        self.datagram_flows.note_changed(key);
        self.want_datagrams(key);
    }

    /// Lets the flows send datagrams whose requests have left with the latest batch of a connection.
    pub(super) fn release_datagrams(&mut self, on: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(on) else {
            return;
        };
        if connection.carrier.datagrams_queued() > 0 {
            // They leave before the request.
            return;
        }
        for key in mem::take(&mut connection.streams.requested) {
            let entry = self.flows.get(key).filter(|entry| entry.is_on(on));
            let (Some(entry), Some(flow)) = (entry, self.datagram_flows.get_mut(key)) else {
                continue;
            };
            if entry.flow().is_some_and(|flow| flow.prefix_left() > 0) {
                if let Some(connection) = self.connections.get_mut(on) {
                    connection.streams.requested.push(key);
                }
                continue;
            }
            flow.requested = false;
            self.want_datagrams(key);
        }
    }

    /// Ends the datagram flows that have been idle for too long, as if their applications had ended.
    pub(crate) fn end_idle_datagram_flows(&mut self, now: Instant) {
        while let Some(key) = self.datagram_flows.pop_idle(now) {
            self.end_datagram_flow(now, key);
        }
    }

    /// Ends the datagram flow that would be idle next, to make room for another one.
    pub(crate) fn end_spare_datagram_flow(&mut self, now: Instant) {
        if let Some(key) = self.datagram_flows.pop_spare(now) {
            self.end_datagram_flow(now, key);
        }
    }

    /// Ends a datagram flow, because its application has ended.
    pub(crate) fn end_datagram_flow_of(&mut self, now: Instant, id: FlowId) {
        let Some(key) = self.flows.find(id) else {
            return;
        };
        if self
            .flows
            .get_mut(key)
            .and_then(FlowEntry::flow_mut)
            .is_some()
        {
            self.end_datagram_flow(now, key);
        } else {
            // The flow waits for a connection, and no datagram has left.
            self.handle_socket(now, id, false, false, true);
        }
    }

    fn end_datagram_flow(&mut self, now: Instant, key: FlowKey) {
        // A flow without a stream, or without a target, has a deadline of its own.
        let Some(entry) = self.flows.get_mut(key) else {
            return;
        };
        let id = entry.id();
        if let Some(flow) = entry.flow_mut() {
            let failed = flow.socket_mut().finish().is_err();
            self.handle_socket(now, id, true, false, failed);
        }
    }
}

/// From applications to peers.
impl<S: Socket> Traffic<S> {
    /// Takes the datagrams that an application has sent. Those that have just `arrived` displace others that wait.
    pub(super) fn read_datagrams(&mut self, now: Instant, key: FlowKey, arrived: bool) {
        let (Some(entry), Some(flow)) = (self.flows.get_mut(key), self.datagram_flows.get_mut(key))
        else {
            return;
        };
        let (id, Some(socket)) = (entry.id(), entry.socket_mut()) else {
            return;
        };
        let mut failed = false;
        flow.drop_aged(now);
        let mut room = flow.room(arrived);
        for _ in 0..READ_MAX {
            if room == 0 {
                break;
            }
            match socket.recv_datagram() {
                Ok(payload) => {
                    room = room.saturating_sub(payload.len());
                    if self.memory.lease.has_room(payload.len() as u64) {
                        flow.push(now, payload);
                    } else {
                        flow.counters.dropped += 1;
                    }
                }
                Err(error) => {
                    flow.readable = false;
                    failed = error.kind() != std::io::ErrorKind::WouldBlock;
                    break;
                }
            }
        }
        self.datagram_flows.note_changed(key);
        self.want_datagrams(key);
        if failed {
            self.handle_socket(now, id, false, false, true);
        }
    }

    /// Lets a flow send the datagrams that wait, if it has a stream and the request there has left.
    fn want_datagrams(&mut self, key: FlowKey) {
        let stream_key = self.flows.get(key).and_then(FlowEntry::stream_key);
        let (Some(stream_key), Some(flow)) = (stream_key, self.datagram_flows.get_mut(key)) else {
            return;
        };
        let on = stream_key.connection;
        if flow.has_outbound() && !flow.requested && flow.queued_on != Some(on) {
            flow.queued_on = Some(on);
            if let Some(connection) = self.connections.get_mut(on) {
                connection.streams.datagrams.push_back(key);
            }
            self.connections.want_transmit(on);
        }
    }

    /// Gives datagrams to a connection, for a batch with this `room`. Returns the bytes that they take of it.
    ///
    /// The carrier sends datagrams before the data of streams. So they get no more than their share of a batch.
    pub(super) fn fill_datagrams(&mut self, now: Instant, on: ConnectionKey, room: usize) -> usize {
        let Some(connection) = self.connections.get_mut(on) else {
            return 0;
        };
        if connection.streams.datagrams.is_empty() {
            return 0;
        }
        let share = connection.streams.share_of_datagrams(room);
        // Each flow that waits has a turn, although some may have left.
        let mut turns = connection.streams.datagrams.len() + TURNS;
        let mut taken = 0;
        while taken < share
            && turns > 0
            && let Some(connection) = self.connections.get_mut(on)
            && connection.shaping.may_send(now) > 0
            && let Some(key) = connection.streams.datagrams.pop_front()
        {
            turns -= 1;
            taken += self.send_datagrams(now, key, on, share - taken);
        }
        if let Some(connection) = self.connections.get_mut(on) {
            connection.streams.note_datagrams(taken, room);
            connection.carrier.note_written(taken);
        }
        taken
    }

    /// Sends datagrams of the flow whose turn it is, until they take `most` bytes. Returns the bytes that they take.
    fn send_datagrams(
        &mut self,
        now: Instant,
        key: FlowKey,
        on: ConnectionKey,
        most: usize,
    ) -> usize {
        let (Some((entry, connection, stream)), Some(flow)) = (
            attached(&mut self.flows, &mut self.connections, key),
            self.datagram_flows.get_mut(key),
        ) else {
            return 0;
        };
        // A flow that has left the connection may have left its place in the queue.
        if flow.queued_on != Some(on) || !entry.is_on(on) {
            return 0;
        }
        flow.queued_on = None;
        let before = flow.counters.to_tunnel;
        let mut taken = 0;
        while taken < most.min(TURN)
            && let Some(len) = flow.next_len(now)
            && connection.carrier.takes_datagram(len)
            && let Some(payload) = flow.pop(now)
        {
            let sent = send_payload(&mut connection.carrier, stream, flow, &payload);
            match sent {
                Some(bytes) => {
                    taken += bytes;
                    flow.counters.to_tunnel += payload.len() as u64;
                }
                None => flow.counters.dropped += 1,
            }
        }
        let after = flow.counters.to_tunnel;
        let moved = TransferredBytes::new((before, after), connection.client(), entry.age(now));
        connection.shaping.note_sent(after - before);
        self.talk.note_moved(now, &mut entry.outbound, taken);
        let more = flow.readable;
        self.datagram_flows.note_changed(key);
        self.count_to_tunnel(moved);
        if more {
            self.read_datagrams(now, key, false);
        }
        self.want_datagrams(key);
        taken
    }
}

/// From peers to applications.
impl<S: Socket> Traffic<S> {
    /// Handles the frames that have arrived on a connection.
    pub(crate) fn take_datagrams(&mut self, now: Instant, on: ConnectionKey) {
        if self.datagram_flows.arrived.is_empty() {
            return;
        }
        let mut arrived = mem::take(&mut self.datagram_flows.arrived);
        for frame in arrived.drain(..) {
            self.take_datagram(now, on, &frame);
        }
        self.datagram_flows.arrived = arrived;
    }

    /// Handles a frame. A frame for an unknown flow is dropped: the flow has ended, or its request is still on its way.
    fn take_datagram(&mut self, now: Instant, on: ConnectionKey, frame: &Bytes) {
        let (header, payload) = match DatagramHeader::decode(frame) {
            Some((header, payload)) => (header, frame.slice_ref(payload)),
            None => return,
        };
        let connection = self.connections.get(on);
        let number = header.quarter_stream_id * 4 + u64::from(header.by_server);
        let stream = StreamId::from_number(number);
        let found = connection.and_then(|connection| {
            let key = connection.streams.flow(stream?)?;
            Some((key, self.flows.get(key)?, connection.is_admitted()))
        });
        let Some((key, entry, admitted)) = found else {
            return;
        };
        let dialing = matches!(&entry.phase, FlowPhase::Dialing(_));
        let kept = dialing || header.fragment.is_some();
        if kept && !self.memory.lease.has_room(payload.len() as u64) {
            return;
        }
        if dialing {
            // The client does not wait for the target. Whether it takes datagrams is known once it is dialled.
            self.datagram_flows.enter(now, key, entry.token());
        }
        let Some(flow) = self.datagram_flows.get_mut(key) else {
            return;
        };
        let whole = flow.take(now, header.fragment, payload);
        match whole {
            Some(payload) if dialing => flow.keep_early(&payload, admitted),
            Some(payload) => self.deliver_datagram(now, key, &payload),
            None => {}
        }
        self.datagram_flows.note_changed(key);
    }

    /// Sends a datagram to the application, if its client's rate permits that. Nothing waits here.
    fn deliver_datagram(&mut self, now: Instant, key: FlowKey, payload: &Bytes) {
        let (Some((entry, connection, _)), Some(flow)) = (
            attached(&mut self.flows, &mut self.connections, key),
            self.datagram_flows.get_mut(key),
        ) else {
            return;
        };
        let len = payload.len();
        let may = self.side == Side::Client || flow.may_deliver(now, len);
        let id = entry.id();
        let socket = entry.flow_mut().filter(|flow| !flow.is_at_end());
        let socket = socket.filter(|_| may && connection.shaping.may_deliver_datagram(now));
        let Some(socket) = socket.map(Flow::socket_mut) else {
            flow.counters.dropped += 1;
            return;
        };
        match socket.send_datagram(payload) {
            Ok(()) => {
                let before = flow.counters.to_app;
                flow.counters.to_app += len as u64;
                let moved = (before, flow.counters.to_app);
                let moved = TransferredBytes::new(moved, connection.client(), entry.age(now));
                connection.shaping.note_datagram_delivered(len as u64);
                self.talk.note_moved(now, &mut entry.inbound, len);
                self.count_to_app(moved);
            }
            Err(error) => {
                flow.counters.dropped += 1;
                if error.kind() != std::io::ErrorKind::WouldBlock {
                    self.handle_socket(now, id, false, false, true);
                }
            }
        }
    }
}

/// Sends a datagram: whole if a frame has room for it, otherwise in fragments. Returns the bytes of its frames, or `None`
/// if it was dropped.
fn send_payload(
    carrier: &mut Carrier,
    stream: StreamId,
    flow: &mut DatagramFlow,
    payload: &Bytes,
) -> Option<usize> {
    let room = carrier.max_datagram()?;
    let (quarter_stream_id, by_server) = (stream.index(), stream.initiator() == Side::Server);
    let mut send = |fragment: Option<Fragment>, part: &[u8]| {
        let header = DatagramHeader {
            quarter_stream_id,
            by_server,
            fragment,
        };
        let mut frame = Vec::with_capacity(MAX_HEADER + part.len());
        header.encode(&mut frame);
        frame.put_slice(part);
        let len = frame.len();
        (len <= room && carrier.send_datagram(frame.into())).then_some(len)
    };
    if payload.len() < room
        && let Some(len) = send(None, payload)
    {
        return Some(len);
    }
    let (count, part) = datagram::split(payload.len(), room.saturating_sub(MAX_HEADER))?;
    let sequence = flow.next_fragmented();
    let mut sent = 0;
    for (index, part) in (0..count).zip(payload.chunks(part)) {
        let fragment = Fragment {
            sequence,
            index,
            count,
        };
        sent += send(Some(fragment), part)?;
    }
    Some(sent)
}
