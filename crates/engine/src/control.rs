//! The control stream of a connection (PROTOCOL section 5.6): who the client is, what has arrived, and which
//! flows are to rest.
//!
//! ```text
//! client: connected ─► HELLO ─► HELLO_ACK ─► open           server: HELLO ─► known ─► HELLO_ACK ─► open
//!                        └────► reset: an older server              └─► not known: the connection is closed
//! ```
//!
//! A peer without a control stream is served as ever: it only cannot say what has arrived.

use std::collections::BTreeMap;
use std::time::Instant;

use bytes::Bytes;
use quictun_flow::{Inlet, ReadEnd, Socket, Stream, WriteEnd};
use quictun_wire::code::{CloseCode, FlowCode};
use quictun_wire::control::{Frame, Gone, MAX_FLOWS, MAX_FRAME, Seen};
use quictun_wire::open::Decoded;
use quinn_proto::{Dir, StreamId};

use crate::connection::{Connection, First};
use crate::engine::{Engine, Role, close_code, export};
use crate::event::Event;
use crate::flow_entry::FlowEntry;
use crate::flows::stream_number;
use crate::memory::Peer;
use crate::quic_stream::QuicStream;
use crate::report::Protocol;

/// Frames that may wait for the peer's credit. One that leaves so much unread for so long is stuck or hostile.
const PENDING_MAX: usize = 64 * 1024;

/// Ended flows that wait for the peer's confirmation are kept by number as long as they take less than this part of the
/// free memory. Beyond that the oldest are only counted: a peer that never confirms costs little.
const UNSEEN_PART: u64 = 1024;
const UNSEEN_MIN: usize = 64;
const UNSEEN_MAX: usize = 16 * 1024;

/// Bytes of the control stream that are parsed together: a few of the longest frames.
const READ_MAX: usize = 4 * MAX_FRAME;

/// Memory of each: an entry in a B-tree whose nodes are at least half full.
const UNSEEN_COST: usize = 40;

/// The control stream of one connection, as far as there is one.
#[derive(Debug, Default)]
pub(crate) struct Control {
    pub(crate) stream: Option<StreamId>,
    /// HELLO or `HELLO_ACK` of the peer has come.
    pub(crate) open: bool,
    /// Something has arrived on it.
    pub(crate) news: bool,
    /// What `inlet` holds, as counted in the connection.
    charged: usize,
    inlet: Inlet,
    pending: Bytes,
    outbox: Vec<u8>,
    seen: Vec<Seen>,
    gone: Vec<Gone>,
    /// Flows that the peer is told to hold (`true`) or to let go on, in this order.
    rests: Vec<(u64, bool)>,
    /// Ended flows of which the peer has not said that everything has arrived, by number: what it must say.
    unseen: BTreeMap<u64, u64>,
    /// Count of further such flows, whose numbers were dropped to save memory.
    unseen_more: usize,
    /// The connection's control stream has ended: the peer may not begin another.
    over: bool,
}

impl Control {
    /// To be told: everything of a flow has arrived.
    pub(crate) fn see(&mut self, flow: StreamId, next: u64) {
        // HELLO may still be on its way, behind flows that overtook it.
        if self.stream.is_some() || self.seen.len() < MAX_FLOWS {
            let flow = stream_number(flow);
            self.seen.push(Seen { flow, next });
        }
    }

    /// To be told: a flow has ended before everything of it arrived.
    pub(crate) fn gone(&mut self, flow: StreamId, code: FlowCode) {
        if self.stream.is_some() || self.gone.len() < MAX_FLOWS {
            self.gone.push(Gone {
                flow: stream_number(flow),
                code: code.to_u64(),
            });
        }
    }

    /// To be told: the peer should send no more on a flow, or send again.
    pub(crate) fn hold(&mut self, flow: StreamId, hold: bool) {
        self.rests.push((stream_number(flow), hold));
    }

    /// A flow has ended here; the peer has not confirmed all of it. `free` is the memory that is left, bytes.
    pub(crate) fn await_seen(&mut self, flow: StreamId, next: u64, free: u64) {
        if self.stream.is_some() {
            self.unseen.insert(stream_number(flow), next);
            let room = usize::try_from(free / UNSEEN_PART).unwrap_or(usize::MAX) / UNSEEN_COST;
            if self.unseen.len() > room.clamp(UNSEEN_MIN, UNSEEN_MAX) {
                self.unseen.pop_first();
                self.unseen_more += 1;
            }
        }
    }

    /// Ended flows that the peer has not confirmed.
    pub(crate) fn unconfirmed(&self) -> usize {
        self.unseen.len() + self.unseen_more
    }

    /// Removes an ended flow that the peer has confirmed (`next`) or given up (`None`). `false`: the flow was not awaited,
    /// or the peer has confirmed less than all of it.
    fn confirm(&mut self, flow: u64, next: Option<u64>) -> bool {
        match self.unseen.get(&flow) {
            Some(wanted) if next.is_none_or(|next| next == *wanted) => {
                self.unseen.remove(&flow);
                true
            }
            _ => false,
        }
    }

    /// The peer has confirmed a flow that is not known by its number any more.
    fn confirm_forgotten(&mut self) {
        self.unseen_more = self.unseen_more.saturating_sub(1);
    }

    /// Memory of frames that wait to be sent and of flows that wait for the peer's confirmation, bytes.
    pub(crate) fn kept(&self) -> u64 {
        let frames = self.pending.len() + self.outbox.capacity();
        let said = self.seen.capacity() * size_of::<Seen>()
            + self.gone.capacity() * size_of::<Gone>()
            + self.rests.capacity() * size_of::<(u64, bool)>();
        (frames + said + self.unseen.len() * UNSEEN_COST) as u64
    }

    /// Memory of received bytes that are not a whole frame yet, bytes.
    pub(crate) fn received(&self) -> u64 {
        self.inlet.held() as u64
    }

    /// Streams that are not flows'.
    pub(crate) fn streams(&self) -> usize {
        usize::from(self.stream.is_some())
    }

    fn has_frames(&self) -> bool {
        let ended = !self.seen.is_empty() || !self.gone.is_empty();
        ended || !self.rests.is_empty() || !self.outbox.is_empty() || !self.pending.is_empty()
    }

    /// All that waits, as bytes.
    fn encode(&mut self) {
        for flows in std::mem::take(&mut self.seen).chunks(MAX_FLOWS) {
            Frame::Seen(flows.to_vec()).encode(&mut self.outbox);
        }
        for flows in std::mem::take(&mut self.gone).chunks(MAX_FLOWS) {
            Frame::Gone(flows.to_vec()).encode(&mut self.outbox);
        }
        let rests = std::mem::take(&mut self.rests);
        // The peer obeys the last frame that names a flow, so HOLD and GO keep their order.
        for same in rests.chunk_by(|one, other| one.1 == other.1) {
            for flows in same.chunks(MAX_FLOWS) {
                let hold = flows[0].1;
                let flows = flows.iter().map(|&(flow, _)| flow).collect();
                let frame = if hold {
                    Frame::Hold(flows)
                } else {
                    Frame::Go(flows)
                };
                frame.encode(&mut self.outbox);
            }
        }
    }
}

impl<S: Socket> Engine<S> {
    /// Client: the connection is up; says who we are.
    pub(crate) fn begin_control(&mut self, now: Instant, handle: usize) {
        let Role::Client(client) = &self.role else {
            return;
        };
        let prover = client.prover();
        let Some(Some(connection)) = self.connections.get_mut(handle) else {
            return;
        };
        if connection.protocol != Some(Protocol::Native) {
            return self.welcome(handle);
        }
        let Some(stream) = connection.quic.streams().open(Dir::Bi) else {
            // A server without a stream to spare is none of ours.
            return self.welcome(handle);
        };
        let exporter = prover.as_ref().and_then(|_| export(&connection.quic));
        let proof = prover.zip(exporter).map(|(prove, value)| prove(&value));
        connection.control.stream = Some(stream);
        connection.prove_by = Some(now + self.transport.handshake_timeout);
        connection.prefer(stream, true);
        Frame::Hello { proof }.encode(&mut connection.control.outbox);
        self.want_transmit(handle);
    }

    /// Client: the server has answered our HELLO, or is one that does not know it.
    pub(crate) fn welcome(&mut self, handle: usize) {
        if let Some(Some(connection)) = self.connections.get_mut(handle)
            && !std::mem::replace(&mut connection.admitted, true)
        {
            connection.prove_by = None;
            self.events.push_back(Event::Welcome {
                connection: connection.id,
                remote: connection.remote,
                protocol: connection.protocol.unwrap_or(Protocol::Native),
            });
        }
    }

    /// Server: a stream has begun with HELLO; `inlet` is where it arrives.
    pub(crate) fn adopt_control(
        &mut self,
        now: Instant,
        handle: usize,
        stream: StreamId,
        inlet: Inlet,
    ) {
        let Some(Some(connection)) = self.connections.get_mut(handle) else {
            return;
        };
        if connection.control.stream.is_some() || connection.control.over {
            return self.violate(now, handle, "a second control stream");
        }
        connection.control.stream = Some(stream);
        connection.control.inlet = inlet;
        connection.prefer(stream, true);
        self.read_control(now, handle);
    }

    /// Takes what has arrived on the control stream.
    pub(crate) fn read_control(&mut self, now: Instant, handle: usize) {
        let Some(Some(connection)) = self.connections.get_mut(handle) else {
            return;
        };
        connection.control.news = false;
        let Some(id) = connection.control.stream else {
            return;
        };
        let packet_max = connection.packet_max;
        let control = &mut connection.control;
        control.inlet.handle_readable(packet_max);
        let mut stream = QuicStream {
            quic: &mut connection.quic,
            id,
        };
        let end = control.inlet.take_in(&mut stream, usize::MAX);
        while self.read_frames(now, handle) {}
        let Some(Some(connection)) = self.connections.get_mut(handle) else {
            return;
        };
        connection.control.inlet.pack();
        let held = connection.control.inlet.held();
        connection.holding.held = connection.holding.held - connection.control.charged + held;
        connection.control.charged = held;
        if end != ReadEnd::Blocked && connection.control.stream == Some(id) {
            self.lose_control(handle);
        }
    }

    /// Handles the whole frames among the first [`READ_MAX`] received bytes. Returns whether there may be more.
    ///
    /// The bytes are copied once for all of these frames. A frame may have two bytes, so a copy of the longest frame's
    /// length for each of them would cost the server 2000 times what it costs the peer.
    fn read_frames(&mut self, now: Instant, handle: usize) -> bool {
        let Some(Some(connection)) = self.connections.get_mut(handle) else {
            return false;
        };
        let bytes = connection.control.inlet.header(READ_MAX);
        let mut rest = bytes.as_slice();
        let mut violation = None;
        while !connection_is_lost(self.connections.get(handle)) {
            match Frame::decode(rest) {
                Ok(Decoded::Done { frame, consumed }) => {
                    rest = &rest[consumed..];
                    self.handle_frame(now, handle, frame);
                }
                Ok(Decoded::Need) => break,
                Err(_) => {
                    violation = Some("malformed control frame");
                    break;
                }
            }
        }
        if let Some(reason) = violation {
            self.violate(now, handle, reason);
        }
        let consumed = bytes.len() - rest.len();
        match self.connections.get_mut(handle) {
            Some(Some(connection)) if !connection.lost => {
                connection.control.inlet.skip_header(consumed);
                consumed > 0 && bytes.len() == READ_MAX
            }
            _ => false,
        }
    }

    /// The control stream has ended; the peer is as one that never had it.
    pub(crate) fn lose_control(&mut self, handle: usize) {
        let Some(Some(connection)) = self.connections.get_mut(handle) else {
            return;
        };
        if let Some(id) = connection.control.stream {
            let mut stream = QuicStream {
                quic: &mut connection.quic,
                id,
            };
            stream.reset(FlowCode::AppReset);
            stream.stop(FlowCode::AppReset);
        }
        connection.holding.held -= connection.control.charged;
        connection.control = Control {
            over: true,
            ..Control::default()
        };
        let here = |entry: &FlowEntry<S>| entry.place.is_some_and(|place| place.handle == handle);
        let flows = self.flows.iter();
        let resting = flows.filter(|(_, entry)| entry.resting && here(entry));
        let keys: Vec<usize> = resting.map(|(key, _)| key).collect();
        for key in keys {
            // The peer can no longer tell it to go on.
            self.flows[key].resting = false;
            self.want_outbound(key);
        }
        if matches!(self.role, Role::Client(_)) {
            self.welcome(handle);
        }
        self.want_transmit(handle);
    }

    fn handle_frame(&mut self, now: Instant, handle: usize, frame: Frame) {
        let client = matches!(self.role, Role::Client(_));
        let Some(Some(connection)) = self.connections.get_mut(handle) else {
            return;
        };
        let open = connection.control.open;
        match frame {
            Frame::Hello { proof } if !client && !open => {
                connection.control.open = true;
                connection.proof = proof;
                if connection.admitted {
                    Frame::HelloAck.encode(&mut connection.control.outbox);
                } else {
                    self.events.push_back(Event::Hello {
                        connection: connection.id,
                        remote: connection.remote,
                        proof,
                    });
                }
            }
            Frame::HelloAck if client && !open => {
                connection.control.open = true;
                self.welcome(handle);
            }
            Frame::Seen(flows) if open => {
                for seen in flows {
                    self.handle_seen(handle, seen);
                }
            }
            Frame::Gone(flows) if open => {
                for gone in flows {
                    if connection.control.confirm(gone.flow, None) {
                        continue;
                    }
                    let key = stream_of(gone.flow).and_then(|id| connection.streams.get(&id));
                    match key.and_then(|&key| self.flows.get_mut(key)) {
                        // Nothing more will be said of it.
                        Some(entry) => entry.seen = u64::MAX,
                        None => connection.control.confirm_forgotten(),
                    }
                }
            }
            Frame::Hold(flows) if open => self.handle_hold(handle, &flows, true),
            Frame::Go(flows) if open => self.handle_hold(handle, &flows, false),
            Frame::Unknown { .. } => {}
            _ => self.violate(now, handle, "a control frame out of turn"),
        }
    }

    /// The peer has all of a flow, or a part of it.
    fn handle_seen(&mut self, handle: usize, seen: Seen) {
        let Some(Some(connection)) = self.connections.get_mut(handle) else {
            return;
        };
        if connection.control.confirm(seen.flow, Some(seen.next)) {
            return;
        }
        let key = stream_of(seen.flow).and_then(|id| connection.streams.get(&id));
        match key.and_then(|&key| self.flows.get_mut(key)) {
            Some(entry) => entry.seen = entry.seen.max(seen.next),
            None => connection.control.confirm_forgotten(),
        }
    }

    /// The peer asks us to let flows rest, or to go on.
    fn handle_hold(&mut self, handle: usize, flows: &[u64], hold: bool) {
        for &flow in flows {
            let Some(Some(connection)) = self.connections.get_mut(handle) else {
                return;
            };
            let key = stream_of(flow).and_then(|id| connection.streams.get(&id));
            if let Some(&key) = key
                && let Some(entry) = self.flows.get_mut(key)
            {
                entry.resting = hold;
                if !hold {
                    self.want_outbound(key);
                    self.want_transmit(handle);
                }
            }
        }
    }

    /// Server: whether the client of a connection has still to show who it is.
    pub fn awaits_identity(&self, id: crate::ConnectionId) -> bool {
        let slot = self
            .handle_of(id)
            .and_then(|handle| self.connections.get(handle)?.as_ref());
        slot.is_some_and(|connection| !connection.admitted && !connection.lost)
    }

    /// Server: the peer is known, or nobody need be: from now on it is served in full.
    pub fn admit(&mut self, now: Instant, id: crate::ConnectionId) {
        let Some(handle) = self.handle_of(id) else {
            return;
        };
        let full = match &self.role {
            Role::Server(server) => server.is_full(),
            Role::Client(_) => return,
        };
        let flows = self.first_flows();
        let Some(Some(connection)) = self.connections.get_mut(handle) else {
            return;
        };
        if connection.admitted || connection.lost {
            return;
        }
        if full {
            return self.close_connection(now, id, CloseCode::TooManyConnections);
        }
        connection.admitted = true;
        connection.admitted_by = connection.proof;
        connection.prove_by = None;
        if connection.control.open {
            Frame::HelloAck.encode(&mut connection.control.outbox);
        }
        let known = self
            .transport
            .memory
            .recall(now, Peer::Client(connection.remote.ip()));
        let own = connection.window_debt();
        let window = self.lease.first_window(known.receive_window, own, true);
        connection.grant_first(First {
            window,
            remembered: known.receive_window,
            flows,
        });
        if let Role::Server(server) = &mut self.role {
            server.admitted(connection, handle);
        }
        self.mark(handle);
        self.want_transmit(handle);
    }

    /// Hands frames to the stream.
    pub(crate) fn flush_control(&mut self, now: Instant, handle: usize) {
        let Some(Some(connection)) = self.connections.get_mut(handle) else {
            return;
        };
        if !connection.control.has_frames() || connection.quic.is_closed() {
            return;
        }
        if !connection.write_control() {
            self.violate(now, handle, "control frames are not taken");
        }
    }

    /// The peer breaks the protocol: the connection ends.
    fn violate(&mut self, now: Instant, handle: usize, reason: &'static str) {
        if let Some(Some(connection)) = self.connections.get_mut(handle) {
            let code = close_code(CloseCode::ProtocolViolation);
            connection
                .quic
                .close(now, code, Bytes::from_static(reason.as_bytes()));
            self.mark(handle);
            let reason = crate::LossReason::Violation(reason);
            self.lose(now, handle, reason);
        }
    }
}

impl Connection {
    /// Writes what there is to tell; `false`: the peer leaves too much of it untaken.
    fn write_control(&mut self) -> bool {
        let Some(id) = self.control.stream else {
            return true;
        };
        self.control.encode();
        loop {
            if self.control.pending.is_empty() {
                self.control.pending = Bytes::from(std::mem::take(&mut self.control.outbox));
            }
            if self.control.pending.is_empty() {
                return true;
            }
            let before = self.control.pending.len();
            let mut stream = QuicStream {
                quic: &mut self.quic,
                id,
            };
            let end = stream.write(&mut self.control.pending);
            self.unsent += before - self.control.pending.len();
            match end {
                WriteEnd::Taken => {}
                WriteEnd::Blocked => {
                    return self.control.pending.len() + self.control.outbox.len() <= PENDING_MAX;
                }
                // The peer wants no more of it; its own end of the stream says the rest.
                WriteEnd::Stopped(_) | WriteEnd::Gone => {
                    self.control.pending = Bytes::new();
                    self.control.outbox.clear();
                    return true;
                }
            }
        }
    }
}

/// Whether a connection is gone, or only waits for the library to forget it.
fn connection_is_lost(slot: Option<&Option<Box<Connection>>>) -> bool {
    slot.and_then(Option::as_ref)
        .is_none_or(|connection| connection.lost)
}

/// The stream that a flow's number names: one that clients open.
fn stream_of(flow: u64) -> Option<StreamId> {
    flow.is_multiple_of(4)
        .then(|| StreamId::new(quinn_proto::Side::Client, Dir::Bi, flow >> 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(index: u64) -> StreamId {
        StreamId::new(quinn_proto::Side::Client, Dir::Bi, index)
    }

    fn frames(control: &mut Control) -> Vec<Frame> {
        control.encode();
        let bytes = std::mem::take(&mut control.outbox);
        let mut rest = bytes.as_slice();
        let mut frames = Vec::new();
        while let Ok(Decoded::Done { frame, consumed }) = Frame::decode(rest) {
            rest = &rest[consumed..];
            frames.push(frame);
        }
        frames
    }

    // PROTOCOL CONTROL-7.
    #[test]
    fn what_was_said_last_of_a_flow_is_said_last() {
        let mut control = Control::default();
        for (index, hold) in [(0, true), (1, true), (0, false), (0, true)] {
            control.hold(stream(index), hold);
        }
        let expected = [
            Frame::Hold(vec![0, 4]),
            Frame::Go(vec![0]),
            Frame::Hold(vec![0]),
        ];
        assert_eq!(frames(&mut control), expected);
    }

    #[test]
    fn as_many_flows_as_a_frame_may_name_and_one_more() {
        let mut control = Control::default();
        for index in 0..=MAX_FLOWS as u64 {
            control.hold(stream(index), true);
        }
        let named = frames(&mut control).into_iter().map(|frame| match frame {
            Frame::Hold(flows) => flows.len(),
            other => panic!("{other:?}"),
        });
        assert_eq!(named.collect::<Vec<_>>(), [MAX_FLOWS, 1]);
    }

    // PROTOCOL CLOSE-13, MEMORY-1.
    #[test]
    fn flows_whose_numbers_are_forgotten_are_waited_for_all_the_same() {
        let mut control = Control {
            stream: Some(stream(0)),
            ..Control::default()
        };
        let flows = 3 * UNSEEN_MIN as u64;
        for index in 1..=flows {
            control.await_seen(stream(index), 7, 0);
        }
        assert_eq!(control.unseen.len(), UNSEEN_MIN);
        assert!(control.kept() <= (UNSEEN_MIN * UNSEEN_COST) as u64);
        for index in 1..=flows {
            assert_eq!(control.unconfirmed() as u64, flows + 1 - index);
            if !control.confirm(index * 4, Some(7)) {
                control.confirm_forgotten();
            }
        }
        assert_eq!(control.unconfirmed(), 0);
    }
}
