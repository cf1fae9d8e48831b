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

use crate::connection::Connection;
use crate::engine::{Engine, Role, close_code, export};
use crate::event::Event;
use crate::flow_entry::FlowEntry;
use crate::flows::stream_number;
use crate::memory::Peer;
use crate::quic_stream::QuicStream;
use crate::report::Protocol;

/// Frames that may wait for the peer's credit. One that leaves so much unread for so long is stuck or hostile.
const PENDING_MAX: usize = 64 * 1024;

/// Ended flows that may wait for the peer's word. A peer that never gives it costs no more than this.
const UNSEEN_MAX: usize = 16 * 1024;

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
    hold: Vec<u64>,
    go: Vec<u64>,
    /// Ended flows of which the peer has not said that everything has arrived, by number: what it must say.
    unseen: BTreeMap<u64, u64>,
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
        let queue = if hold { &mut self.hold } else { &mut self.go };
        queue.push(stream_number(flow));
    }

    /// A flow has ended here; the peer has not confirmed all of it.
    pub(crate) fn await_seen(&mut self, flow: StreamId, next: u64) {
        if self.stream.is_some() {
            self.unseen.insert(stream_number(flow), next);
            if self.unseen.len() > UNSEEN_MAX {
                self.unseen.pop_first();
            }
        }
    }

    /// Ended flows that the peer has not confirmed.
    pub(crate) fn unconfirmed(&self) -> usize {
        self.unseen.len()
    }

    /// Streams that are not flows'.
    pub(crate) fn streams(&self) -> usize {
        usize::from(self.stream.is_some())
    }

    fn has_frames(&self) -> bool {
        let ended = !self.seen.is_empty() || !self.gone.is_empty();
        let rests = !self.hold.is_empty() || !self.go.is_empty();
        ended || rests || !self.outbox.is_empty() || !self.pending.is_empty()
    }

    /// All that waits, as bytes.
    fn encode(&mut self) {
        for flows in std::mem::take(&mut self.seen).chunks(MAX_FLOWS) {
            Frame::Seen(flows.to_vec()).encode(&mut self.outbox);
        }
        for flows in std::mem::take(&mut self.gone).chunks(MAX_FLOWS) {
            Frame::Gone(flows.to_vec()).encode(&mut self.outbox);
        }
        for flows in std::mem::take(&mut self.hold).chunks(MAX_FLOWS) {
            Frame::Hold(flows.to_vec()).encode(&mut self.outbox);
        }
        for flows in std::mem::take(&mut self.go).chunks(MAX_FLOWS) {
            Frame::Go(flows.to_vec()).encode(&mut self.outbox);
        }
    }

    /// The next whole frame of what was read.
    fn next_frame(&mut self) -> Result<Option<Frame>, ()> {
        match Frame::decode(&self.inlet.header(MAX_FRAME)) {
            Ok(Decoded::Need) => Ok(None),
            Ok(Decoded::Done { frame, consumed }) => {
                self.inlet.skip_header(consumed);
                Ok(Some(frame))
            }
            Err(_) => Err(()),
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
        if connection.control.stream.is_some() {
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
        control.inlet.compact();
        while let Some(Some(connection)) = self.connections.get_mut(handle) {
            match connection.control.next_frame() {
                Ok(Some(frame)) => self.handle_frame(now, handle, frame),
                Ok(None) => break,
                Err(()) => return self.violate(now, handle, "malformed control frame"),
            }
        }
        let Some(Some(connection)) = self.connections.get_mut(handle) else {
            return;
        };
        let held = connection.control.inlet.held();
        connection.held = connection.held - connection.control.charged + held;
        connection.control.charged = held;
        if end != ReadEnd::Blocked && connection.control.stream == Some(id) {
            self.lose_control(handle);
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
        connection.held -= connection.control.charged;
        connection.control = Control::default();
        let here = |entry: &FlowEntry<S>| entry.place.is_some_and(|place| place.handle == handle);
        let resting = self
            .flows
            .iter()
            .filter(|(_, entry)| entry.resting && here(entry));
        let resting: Vec<usize> = resting.map(|(key, _)| key).collect();
        for key in resting {
            // The peer can no longer tell them to go on.
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
                    connection.control.unseen.remove(&gone.flow);
                    let key = stream_of(gone.flow).and_then(|id| connection.streams.get(&id));
                    if let Some(entry) = key.and_then(|&key| self.flows.get_mut(key)) {
                        // Nothing more will be said of it.
                        entry.seen = u64::MAX;
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
        let control = &mut connection.control;
        if control.unseen.get(&seen.flow) == Some(&seen.next) {
            control.unseen.remove(&seen.flow);
            return;
        }
        if let Some(&key) = stream_of(seen.flow).and_then(|id| connection.streams.get(&id))
            && let Some(entry) = self.flows.get_mut(key)
        {
            entry.seen = entry.seen.max(seen.next);
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
        let own = connection.memory;
        let window = self.lease.first_window(known.receive_window, own, true);
        connection.flow_limit = flows;
        connection.grant_first(window);
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

/// The stream that a flow's number names: one that clients open.
fn stream_of(flow: u64) -> Option<StreamId> {
    flow.is_multiple_of(4)
        .then(|| StreamId::new(quinn_proto::Side::Client, Dir::Bi, flow >> 2))
}
