//! Flows on connections: opening, pumping, ending.

use std::time::Instant;

use bytes::Bytes;
use quictun_flow::{Ending, Flow, Inlet, ReadEnd, Socket, Stream, WriteEnd};
use quictun_wire::ack::Ack;
use quictun_wire::code::FlowCode;
use quictun_wire::control;
use quinn_proto::StreamId;

use crate::charges::FLOW_COST;
use crate::engine::Engine;
use crate::event::{Event, FlowSummary, Opened};
use crate::flow_entry::{FlowEntry, Phase, Place};
use crate::opening::{self, Answered, Asked};
use crate::quic_stream::QuicStream;
use crate::report::{FlowReport, Protocol};
use crate::{FlowId, connection::Connection};

/// First four bytes of a SPICE link message: such flows are classified, others are not looked at.
const SPICE_MAGIC: &[u8] = b"REDQ";

impl<S: Socket> Engine<S> {
    /// The socket of a flow may have become readable or writable, or has failed.
    pub fn handle_socket(
        &mut self,
        now: Instant,
        id: FlowId,
        readable: bool,
        writable: bool,
        failed: bool,
    ) {
        let Some(key) = self.key_of(id) else { return };
        if self.flows[key].salvage.is_some() {
            return self.handle_salvaged_socket(now, key, writable, failed);
        }
        if failed && let Phase::Waiting(socket) = &mut self.flows[key].phase {
            socket.abort();
            self.remove_flow(now, key, Ending::AppReset);
            return;
        }
        let Some(place) = self.flows[key].place else {
            return;
        };
        let Some(flow) = self.flows[key].flow_mut() else {
            return;
        };
        flow.handle_socket_ready(readable, writable);
        if failed && let Some(Some(connection)) = self.connections.get_mut(place.handle) {
            let mut stream = QuicStream {
                quic: &mut connection.quic,
                id: place.stream,
            };
            flow.handle_socket_error(&mut stream);
        }
        if writable && !failed {
            self.pump_to_app(now, key);
        }
        if self.flows.contains(key) {
            self.want_outbound(key);
            self.settle_flow(now, key);
        }
        self.want_transmit(place.handle);
    }

    /// The application's socket of a flow.
    pub fn socket(&self, id: FlowId) -> Option<&S> {
        match &self.flows[self.key_of(id)?].phase {
            Phase::Waiting(socket) => Some(socket),
            Phase::Bridged { flow, .. } => Some(flow.socket()),
            Phase::Reading(_) | Phase::Dialing(_) => None,
        }
    }

    /// Server: the answer to [`Event::Open`]; the socket is dropped with a reset where the flow has
    /// gone meanwhile.
    pub fn handle_dialed(
        &mut self,
        now: Instant,
        id: FlowId,
        result: Result<(S, String), FlowCode>,
    ) {
        let key = self.key_of(id);
        let place = key.and_then(|key| self.flows[key].place);
        let (Some(key), Some(place)) = (key, place) else {
            if let Ok((mut socket, _)) = result {
                socket.abort();
            }
            return;
        };
        match result {
            Ok((socket, server_app)) => {
                self.flows[key].server_app = server_app;
                self.bridge_accepted(now, key, place, socket);
            }
            Err(code) => self.refuse_flow(now, key, code),
        }
        self.want_transmit(place.handle);
    }

    /// The target is connected: send the answer, let the bytes pass.
    fn bridge_accepted(&mut self, now: Instant, key: usize, place: Place, socket: S) {
        let Some(Some(connection)) = self.connections.get_mut(place.handle) else {
            return;
        };
        let protocol = connection.protocol.unwrap_or(Protocol::Native);
        let entry = &mut self.flows[key];
        let phase = std::mem::replace(&mut entry.phase, Phase::Reading(Inlet::new()));
        let inlet = match phase {
            Phase::Dialing(inlet) => inlet,
            _ => Inlet::new(),
        };
        let is_spice = inlet.header(SPICE_MAGIC.len()) == SPICE_MAGIC;
        let mut flow = Flow::new(socket, inlet);
        flow.send_first(opening::acceptance(protocol));
        if is_spice {
            flow.keep_heads();
        }
        entry.phase = Phase::Bridged {
            flow,
            answered: true,
        };
        entry.established = true;
        self.flow_timers
            .set(key, &mut self.flows[key].deadline, None);
        self.events.push_back(Event::Established {
            flow: self.flows[key].id,
            stream_id: stream_number(place.stream),
        });
        self.pump_to_app(now, key);
        if self.flows.contains(key) {
            self.want_outbound(key);
            self.settle_flow(now, key);
        }
    }

    /// Says no to a flow that was not yet bridged, in the words of its protocol.
    pub(crate) fn refuse_flow(&mut self, now: Instant, key: usize, code: FlowCode) {
        if let Some(place) = self.flows[key].place
            && let Some(Some(connection)) = self.connections.get_mut(place.handle)
        {
            let compat = connection.protocol == Some(Protocol::Compat);
            let mut stream = QuicStream {
                quic: &mut connection.quic,
                id: place.stream,
            };
            if compat {
                let ack = code.compat_ack();
                let mut byte = Bytes::copy_from_slice(&[ack.to_byte()]);
                debug_assert_ne!(ack, Ack::Ok);
                match stream.write(&mut byte) {
                    WriteEnd::Taken => stream.finish(),
                    // The client has stopped the stream, or there is no credit for a byte.
                    _ => stream.reset(code),
                }
            } else {
                stream.reset(code);
            }
            stream.stop(code);
        }
        self.remove_flow(now, key, Ending::Abandoned(code));
    }

    /// A flow stayed in a phase for too long.
    pub(crate) fn expire_flow(&mut self, now: Instant, key: usize) {
        let handle = self.flows[key].place.map(|place| place.handle);
        match &mut self.flows[key].phase {
            Phase::Waiting(socket) => {
                socket.abort();
                let ending = if self.flows[key].reopened > 0 {
                    Ending::Abandoned(FlowCode::ConnectionLost)
                } else {
                    Ending::NoConnection
                };
                self.remove_flow(now, key, ending);
            }
            Phase::Reading(_) => self.refuse_flow(now, key, FlowCode::BadOpen),
            Phase::Dialing(_) => self.refuse_flow(now, key, FlowCode::DialTimeout),
            Phase::Bridged { .. } => {
                if !self.look_again(now, key) {
                    self.answer_is_late(now, key);
                }
            }
        }
        if let Some(handle) = handle {
            self.want_transmit(handle);
        }
    }

    /// A STREAM frame, or a reset, arrived for a stream.
    pub(crate) fn note_readable(&mut self, handle: usize, stream: StreamId) {
        let Some(Some(connection)) = self.connections.get_mut(handle) else {
            return;
        };
        if connection.control.stream == Some(stream) {
            connection.control.news = true;
            return;
        }
        let Some(&key) = connection.streams.get(&stream) else {
            return;
        };
        if connection.inbound.last() != Some(&key) {
            connection.inbound.push(key);
        }
        let packet_max = connection.packet_max;
        if let Some(inlet) = self.flows[key].inlet_mut() {
            inlet.handle_readable(packet_max);
        }
    }

    pub(crate) fn note_writable(&mut self, handle: usize, stream: StreamId) {
        if let Some(Some(connection)) = self.connections.get(handle)
            && let Some(&key) = connection.streams.get(&stream)
        {
            self.want_outbound(key);
        }
    }

    /// The peer sent `STOP_SENDING`.
    pub(crate) fn handle_stopped(&mut self, now: Instant, handle: usize, id: StreamId, code: u64) {
        let Some(Some(connection)) = self.connections.get_mut(handle) else {
            return;
        };
        if connection.control.stream == Some(id) {
            return self.lose_control(handle);
        }
        let Some(&key) = connection.streams.get(&id) else {
            return;
        };
        let mut stream = QuicStream {
            quic: &mut connection.quic,
            id,
        };
        match self.flows[key].flow_mut() {
            Some(flow) => {
                flow.handle_stopped(&mut stream, code);
                self.settle_flow(now, key);
            }
            // The client gave up before we had answered.
            None => self.refuse_flow(now, key, FlowCode::AppReset),
        }
    }

    /// Serves all flows for which something has arrived.
    pub(crate) fn pump_inbound(&mut self, now: Instant, handle: usize) {
        let news = |connection: &mut Box<Connection>| connection.control.news;
        let slot = self.connections.get_mut(handle).and_then(Option::as_mut);
        if slot.is_some_and(news) {
            self.read_control(now, handle);
        }
        let Some(Some(connection)) = self.connections.get_mut(handle) else {
            return;
        };
        let mut keys = std::mem::take(&mut connection.inbound);
        keys.sort_unstable();
        keys.dedup();
        for &key in &keys {
            let here = self.flows.get(key).and_then(|entry| entry.place);
            if here.is_some_and(|place| place.handle == handle) {
                self.pump_entry(now, key);
            }
        }
        keys.clear();
        if let Some(Some(connection)) = self.connections.get_mut(handle) {
            debug_assert!(connection.inbound.is_empty(), "pumping announces nothing");
            connection.inbound = keys;
        }
    }

    fn pump_entry(&mut self, now: Instant, key: usize) {
        match &self.flows[key].phase {
            Phase::Waiting(_) => {}
            Phase::Reading(_) => self.read_request(now, key),
            Phase::Dialing(_) => self.wait_for_dial(now, key),
            Phase::Bridged {
                answered: false, ..
            } => self.read_answer(now, key),
            Phase::Bridged { answered: true, .. } => {
                self.pump_to_app(now, key);
                self.settle_flow(now, key);
            }
        }
    }

    /// Server: reads what a stream is for.
    fn read_request(&mut self, now: Instant, key: usize) {
        let Some((entry, connection)) = self.entry_and_connection(key) else {
            return;
        };
        let (Phase::Reading(inlet), Some(place)) = (&mut entry.phase, entry.place) else {
            return;
        };
        let protocol = connection.protocol.unwrap_or(Protocol::Native);
        let mut stream = QuicStream {
            quic: &mut connection.quic,
            id: place.stream,
        };
        let end = inlet.take_in(&mut stream, usize::MAX);
        inlet.compact();
        let read = inlet.header(opening::request_max(protocol));
        if protocol == Protocol::Native && control::begins(&read) == Some(true) {
            let inlet = std::mem::take(inlet);
            self.drop_entry(key);
            return self.adopt_control(now, place.handle, place.stream, inlet);
        }
        let complete = end != ReadEnd::Blocked || read.len() == opening::request_max(protocol);
        let asked = match opening::read_request(protocol, &read) {
            Asked::Need if complete => Asked::Refuse(FlowCode::BadOpen),
            // What is cut is worth nothing, whatever came before.
            Asked::Done(..) if matches!(end, ReadEnd::Reset(_)) => {
                Asked::Refuse(FlowCode::AppReset)
            }
            asked => asked,
        };
        match asked {
            Asked::Need => self.charge_flow(now, key),
            Asked::Refuse(code) => self.refuse_flow(now, key, code),
            Asked::Done(open, consumed) => {
                let mut inlet = std::mem::take(inlet);
                inlet.skip_header(consumed);
                entry.phase = Phase::Dialing(inlet);
                entry.token.clone_from(&open.target);
                connection.proof = open.proof.or(connection.proof);
                let opened = Opened {
                    flow: entry.id,
                    connection: connection.id,
                    stream_id: stream_number(place.stream),
                    remote: connection.remote,
                    token: open.target,
                    proof: open.proof,
                    protocol,
                };
                self.charge_flow(now, key);
                if !self.flows.contains(key) {
                    // It holds too much, and was cut off.
                    return;
                }
                // From here on the dial has its own deadline, kept by the caller.
                self.flow_timers
                    .set(key, &mut self.flows[key].deadline, None);
                self.totals.flows_opened += 1;
                if self.draining {
                    self.refuse_flow(now, key, FlowCode::ShuttingDown);
                } else {
                    self.events.push_back(Event::Open(opened));
                }
            }
        }
    }

    /// Server: takes over what arrives while the target is being dialled. The client may give up meanwhile.
    fn wait_for_dial(&mut self, now: Instant, key: usize) {
        let Some((entry, connection)) = self.entry_and_connection(key) else {
            return;
        };
        let (Phase::Dialing(inlet), Some(place)) = (&mut entry.phase, entry.place) else {
            return;
        };
        let mut stream = QuicStream {
            quic: &mut connection.quic,
            id: place.stream,
        };
        let end = inlet.take_in(&mut stream, usize::MAX);
        inlet.compact();
        self.charge_flow(now, key);
        // A flow that holds too much may have been cut off by that.
        if matches!(end, ReadEnd::Reset(_) | ReadEnd::Gone) && self.flows.contains(key) {
            self.refuse_flow(now, key, FlowCode::AppReset);
        }
    }

    /// Client: reads the server's answer, then the first bytes after it.
    pub(crate) fn read_answer(&mut self, now: Instant, key: usize) {
        let Some((entry, connection)) = self.entry_and_connection(key) else {
            return;
        };
        let Some(place) = entry.place else { return };
        let Phase::Bridged { flow, answered } = &mut entry.phase else {
            return;
        };
        let protocol = connection.protocol.unwrap_or(Protocol::Native);
        let mut stream = QuicStream {
            quic: &mut connection.quic,
            id: place.stream,
        };
        let inlet = flow.inlet();
        let end = inlet.take_in(&mut stream, usize::MAX);
        inlet.compact();
        let read = inlet.header(opening::answer_max(protocol));
        let answer = match (opening::read_answer(protocol, &read), end) {
            (Answered::Need, ReadEnd::Reset(code)) => {
                Answered::No(FlowCode::from_u64(code).unwrap_or(FlowCode::Unreachable))
            }
            (Answered::Need, ReadEnd::Finished | ReadEnd::Gone | ReadEnd::More) => {
                Answered::No(FlowCode::Internal)
            }
            (Answered::Need, ReadEnd::Blocked) if read.len() == opening::answer_max(protocol) => {
                Answered::No(FlowCode::Internal)
            }
            (answer, _) => answer,
        };
        if answer != Answered::Need {
            connection.prefer(place.stream, false);
            connection.answered = connection.answered.max(Some(place.stream.index()));
        }
        match answer {
            Answered::Need => self.charge_flow(now, key),
            Answered::No(code) => {
                let mut stream = QuicStream {
                    quic: &mut connection.quic,
                    id: place.stream,
                };
                // STOP_SENDING frees the original server, which answers with 0x02 or 0x03 for ever.
                flow.abandon(&mut stream, code);
                self.settle_flow(now, key);
            }
            Answered::Yes(consumed) => {
                flow.inlet().skip_header(consumed);
                *answered = true;
                entry.established = true;
                if let ReadEnd::Reset(code) = end {
                    let mut stream = QuicStream {
                        quic: &mut connection.quic,
                        id: place.stream,
                    };
                    flow.handle_reset(&mut stream, code);
                }
                let (id, stream_id) = (entry.id, stream_number(place.stream));
                self.want_outbound(key);
                self.flow_timers
                    .set(key, &mut self.flows[key].deadline, None);
                self.events.push_back(Event::Established {
                    flow: id,
                    stream_id,
                });
                self.pump_to_app(now, key);
                self.settle_flow(now, key);
            }
        }
    }

    /// Moves what has arrived to the application.
    fn pump_to_app(&mut self, now: Instant, key: usize) {
        let Some((entry, connection)) = self.entry_and_connection(key) else {
            return;
        };
        let Some(place) = entry.place else {
            return;
        };
        let Phase::Bridged {
            flow,
            answered: true,
        } = &mut entry.phase
        else {
            return;
        };
        let before = flow.bytes_to_app() + flow.buffered() as u64;
        let mut stream = QuicStream {
            quic: &mut connection.quic,
            id: place.stream,
        };
        flow.pump_to_app(&mut stream);
        let after = flow.bytes_to_app() + flow.buffered() as u64;
        connection.delivered += after.saturating_sub(before);
        if let Some(next) = flow.end_taken()
            && !std::mem::replace(&mut entry.end_told, true)
            && connection.protocol == Some(Protocol::Native)
        {
            connection.control.see(place.stream, next);
        }
        self.charge_flow(now, key);
    }

    /// Puts a flow into its connection's queue of flows with something to send.
    pub(crate) fn want_outbound(&mut self, key: usize) {
        if let Some((entry, connection)) = self.entry_and_connection(key)
            && !entry.queued
        {
            entry.queued = true;
            connection.outbound.push_back(key);
        }
    }

    /// Removes a flow that has ended.
    pub(crate) fn settle_flow(&mut self, now: Instant, key: usize) {
        match self.flows.get(key).and_then(FlowEntry::ending) {
            Some(ending) => self.remove_flow(now, key, ending),
            None => self.watch_parting(now, key),
        }
    }

    /// Forgets a stream that is no flow's.
    fn drop_entry(&mut self, key: usize) {
        self.flow_timers
            .set(key, &mut self.flows[key].deadline, None);
        let mut entry = self.flows.remove(key);
        self.pinned.note(key, &mut entry.pinned, 0);
        self.lease.release(FLOW_COST);
        if let Some(place) = entry.place
            && let Some(Some(connection)) = self.connections.get_mut(place.handle)
        {
            connection.streams.remove(&place.stream);
            connection.holding -= entry.holding;
            let debt = connection.debt();
            self.lease.adjust(&mut connection.memory, debt);
        }
    }

    /// Forgets a flow; its socket closes here.
    pub(crate) fn remove_flow(&mut self, now: Instant, key: usize, ending: Ending) {
        self.flow_timers
            .set(key, &mut self.flows[key].deadline, None);
        let mut entry = self.flows.remove(key);
        self.pinned.note(key, &mut entry.pinned, 0);
        self.lease.release(FLOW_COST);
        if matches!(entry.phase, Phase::Reading(_)) {
            // It never said what it is for; until then it might have been the control stream.
            self.totals.flows_opened += 1;
        }
        match ending {
            Ending::Finished => self.totals.flows_finished += 1,
            Ending::NoConnection => self.totals.flows_refused += 1,
            Ending::Abandoned(_) if !entry.established => self.totals.flows_refused += 1,
            Ending::AppReset | Ending::PeerReset(_) | Ending::Abandoned(_) => {
                self.totals.flows_reset += 1;
            }
        }
        let end_sent = entry.flow().and_then(Flow::end_sent);
        let mut summary = FlowSummary {
            flow: entry.id,
            connection: None,
            stream_id: None,
            remote: None,
            ending,
            established: entry.established,
            bytes_to_tunnel: entry.flow().map_or(0, Flow::bytes_to_tunnel),
            bytes_to_app: entry.flow().map_or(0, Flow::bytes_to_app),
            elapsed: now.saturating_duration_since(entry.opened),
            token: entry.token,
            client_app: entry.client_app,
            server_app: entry.server_app,
        };
        self.totals.bytes_to_tunnel += summary.bytes_to_tunnel;
        self.totals.bytes_to_app += summary.bytes_to_app;
        let free = self.lease.free_for_newcomers();
        if let Some(place) = entry.place
            && let Some(Some(connection)) = self.connections.get_mut(place.handle)
        {
            connection.streams.remove(&place.stream);
            if connection.protocol == Some(Protocol::Native) {
                let confirmed = |&next: &u64| entry.seen >= next;
                if let Some(next) = end_sent.filter(|next| !confirmed(next)) {
                    connection.control.await_seen(place.stream, next, free);
                }
                if !entry.end_told {
                    connection.control.gone(place.stream, code_of(ending));
                }
            }
            connection.holding -= entry.holding;
            let debt = connection.debt();
            self.lease.adjust(&mut connection.memory, debt);
            if connection.streams.is_empty() {
                connection.idle_since = Some(now);
            }
            summary.connection = Some(connection.id);
            summary.stream_id = Some(stream_number(place.stream));
            summary.remote = Some(connection.remote);
        } else if let Some(mut salvage) = entry.salvage {
            self.lease.adjust(&mut salvage.charged, 0);
            summary.connection = Some(salvage.carried.connection);
            summary.stream_id = Some(salvage.carried.stream_id);
            summary.remote = Some(salvage.carried.remote);
        }
        self.events.push_back(Event::FlowClosed(summary));
    }

    pub(crate) fn entry_and_connection(
        &mut self,
        key: usize,
    ) -> Option<(&mut FlowEntry<S>, &mut Connection)> {
        let entry = self.flows.get_mut(key)?;
        let connection = self.connections.get_mut(entry.place?.handle)?.as_mut()?;
        Some((entry, connection))
    }

    pub(crate) fn flow_report(&self, entry: &FlowEntry<S>) -> Option<FlowReport> {
        let place = entry.place?;
        let connection = self.connections.get(place.handle)?.as_ref()?;
        let flow = entry.flow();
        let heads = flow.and_then(Flow::heads);
        Some(FlowReport {
            id: entry.id,
            connection: connection.id,
            stream_id: stream_number(place.stream),
            remote: connection.remote,
            token: entry.token.clone(),
            client_app: entry.client_app.clone(),
            server_app: entry.server_app.clone(),
            opened: entry.opened,
            bytes_to_tunnel: flow.map_or(0, Flow::bytes_to_tunnel),
            bytes_to_app: flow.map_or(0, Flow::bytes_to_app),
            established: entry.established,
            head_from_app: heads.map_or_else(Vec::new, |heads| heads.from_app.clone()),
            head_to_app: heads.map_or_else(Vec::new, |heads| heads.to_app.clone()),
        })
    }
}

/// Why a flow ended, as the peer is told.
fn code_of(ending: Ending) -> FlowCode {
    match ending {
        Ending::Finished | Ending::AppReset | Ending::PeerReset(None) => FlowCode::AppReset,
        Ending::PeerReset(Some(code)) | Ending::Abandoned(code) => code,
        // There is no stream on which a peer could be told.
        Ending::NoConnection => FlowCode::ConnectionLost,
    }
}

/// The stream id as on the wire (RFC 9000 section 2.1).
pub(crate) fn stream_number(stream: StreamId) -> u64 {
    quinn_proto::VarInt::from(stream).into_inner()
}
