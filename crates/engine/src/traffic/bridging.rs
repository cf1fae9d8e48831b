//! From a stream's first bytes to an established flow: requests, dials, answers.

use std::time::Instant;

use quictun_flow::{
    BondMembership, Ending, FlowEntry, FlowId, FlowKey, FlowPhase, FlowRequest, Inlet, LocalLimit,
    ReadEnd, Socket, StreamKey,
};
use quictun_wire::code::FlowCode;
use quictun_wire::control;
use quictun_wire::moving::{self, MAX_MOVE_FRAME};
use quictun_wire::open::{Decoded, Open, OpenAck};
use quictun_wire::opening;

use super::Traffic;
use crate::config::Prover;
use crate::event::{EngineEvent, Event, OpenRequest, ServerEvent};
use crate::grants::FLOW_COST;
use crate::report::{Protocol, Side};

/// Opening flows: the client's part.
impl<S: Socket> Traffic<S> {
    /// Adds a flow that waits for a connection until `deadline`. Returns `None` if the flow is refused: too many flows
    /// wait already (`full`), there is no memory for it, or the engine drains. [`Event::FlowClosed`] reports a refusal.
    pub(crate) fn add_waiting(
        &mut self,
        now: Instant,
        deadline: Instant,
        full: bool,
        mut socket: S,
        request: FlowRequest,
    ) -> Option<(FlowId, FlowKey)> {
        let refused = if self.draining {
            Some(Ending::Abandoned(FlowCode::ShuttingDown))
        } else if full {
            Some(Ending::LimitReached(LocalLimit::WaitingFlows))
        } else if !self.memory.lease.try_charge(FLOW_COST) {
            Some(Ending::LimitReached(LocalLimit::Memory))
        } else {
            None
        };
        if let Some(ending) = refused {
            socket.abort();
            let id = self.flows.next_id(&mut self.ids);
            let entry = FlowEntry::waiting(id, socket, request, now);
            self.report_refused(entry.into_summary(now, ending, None), None);
            return None;
        }
        let mut name = None;
        let make = |id| {
            name = Some(id);
            FlowEntry::waiting(id, socket, request, now)
        };
        let key = self.flows.insert(&mut self.ids, deadline, make);
        self.totals.flows_opened += 1;
        self.enter_datagram_flow(now, key);
        Some((name?, key))
    }

    /// Gives a stream to a waiting flow: sends the request, after which the application's bytes follow. If the server
    /// has not answered by `late`, the flow expires.
    pub(crate) fn bridge_opened(
        &mut self,
        now: Instant,
        key: FlowKey,
        stream_key: StreamKey,
        prover: Option<&Prover>,
        late: Option<Instant>,
    ) {
        let connection = self.connections.get_mut(stream_key.connection);
        let Some(connection) = connection.filter(|_| self.flows.contains(key)) else {
            return;
        };
        let protocol = connection.stream_protocol();
        let number = self.number_flow(stream_key.connection, key);
        let connection = self.connections.get_mut(stream_key.connection);
        let (Some(connection), Some(entry)) = (connection, self.flows.get_mut(key)) else {
            return;
        };
        let open = Open {
            target: entry.token().to_owned(),
            proof: connection.prove(prover),
            number,
            source: entry.source(),
            login: None,
        };
        let refuses = self.datagram_flows.contains(key)
            && (protocol != Protocol::Native || connection.carrier.max_datagram().is_none());
        let request = if refuses {
            // The peer takes no datagrams.
            Err(FlowCode::Unsupported)
        } else {
            opening::request(protocol, &open)
        };
        let refused = request.as_ref().err().copied();
        if !entry.open_on(
            stream_key,
            request.unwrap_or_default().into(),
            protocol == Protocol::Raw,
        ) {
            return;
        }
        if number.is_some()
            && let Some(flow) = entry.flow_mut()
        {
            flow.retain();
        }
        self.talk.note_opening(now);
        connection.streams.insert(stream_key.stream, key);
        if protocol == Protocol::Compat {
            connection.carrier.prefer(stream_key.stream, true);
        }
        if let Some(code) = refused
            && let Some(flow) = entry.flow_mut()
        {
            flow.abandon(&mut connection.stream(stream_key.stream), code);
        }
        self.flows.set_deadline(key, late);
        if refused.is_some() {
            self.settle_flow(now, key);
        } else {
            self.want_outbound(key);
            self.attach_datagram_flow(now, key, true);
        }
        self.connections.want_transmit(stream_key.connection);
    }

    /// Takes a flow off its connection. It waits for another connection until `deadline`.
    pub(crate) fn reopen(&mut self, now: Instant, key: FlowKey, deadline: Instant) {
        let Some(entry) = self.flows.get_mut(key) else {
            return;
        };
        let Some(StreamKey { connection, stream }) = entry.reopen() else {
            return;
        };
        let left = entry.bonded.take();
        if let Some((bond, number)) = left.and_then(|left| Some((left.bond?, left.number))) {
            // The flow starts again under another number, because the server may have answered the old one.
            self.bonds.end(bond, number, Some(FlowCode::AppReset));
            self.report_end(bond, number, Some(FlowCode::AppReset), Some(connection));
        }
        if let Some(connection) = self.connections.get_mut(connection) {
            connection.reset_stream(stream, FlowCode::AppReset);
            connection.streams.remove(now, stream);
            connection
                .control
                .note_gone(stream.number(), FlowCode::AppReset);
        }
        self.flows.set_deadline(key, Some(deadline));
    }

    /// Reads the peer's answer, and then the first bytes after it.
    pub(super) fn read_answer(&mut self, now: Instant, key: FlowKey) {
        let client = self.side == Side::Client;
        let Some((entry, connection, stream)) = self.attached(key) else {
            return;
        };
        let may_be_left = entry.awaits_bonded_answer();
        let may_reopen = client && entry.may_reopen();
        let Some(flow) = entry.flow_mut() else { return };
        let protocol = connection.stream_protocol();
        let inlet = flow.inlet();
        let end = inlet.take_in(&mut connection.stream(stream), usize::MAX);
        inlet.compact();
        let read = inlet.header(opening::answer_max(protocol));
        let need = Ok(Decoded::Need);
        let left = may_be_left && end == ReadEnd::Reset(FlowCode::Moved.to_u64());
        let answer = match (opening::read_answer(protocol, &read), end) {
            (answer, _) if answer != need => answer,
            _ if left => return self.handle_left_unanswered(now, key),
            (_, ReadEnd::Reset(code)) => {
                Err(FlowCode::from_u64(code).unwrap_or(FlowCode::Unreachable))
            }
            (_, ReadEnd::Blocked) if read.len() < opening::answer_max(protocol) => need,
            // The peer has ended the stream without an answer.
            _ => Err(FlowCode::Internal),
        };
        if answer != need {
            connection.carrier.prefer(stream, false);
            connection.streams.note_answered(stream);
        }
        match answer {
            Ok(Decoded::Need) => self.charge_flow(now, key),
            Err(code) => {
                if client && code == FlowCode::ShuttingDown {
                    connection.note_draining(true);
                    if may_reopen && connection.has_refused() {
                        // The client takes the flow off the connection.
                        return;
                    }
                }
                // STOP_SENDING ends the loop in which the original server writes 0x02 or 0x03 (HAZARD-4).
                let refused = Ending::PeerRefused(code);
                flow.abandon(&mut connection.stream(stream), refused);
                self.settle_flow(now, key);
            }
            Ok(Decoded::Done { frame, consumed }) => {
                flow.inlet().skip_header(consumed);
                let left = left && frame.bonded;
                if let ReadEnd::Reset(code) = end
                    && !left
                {
                    flow.handle_reset(&mut connection.stream(stream), code);
                }
                entry.handle_accepted();
                self.talk.note_opening(now);
                self.want_outbound(key);
                self.handle_established(key);
                if may_be_left && !frame.bonded {
                    self.leave_unconfirmed(now, key);
                }
                if left && self.leave_leg(now, key) {
                    return;
                }
                self.pump_to_app(now, key);
                self.settle_flow(now, key);
            }
        }
    }
}

/// Opening flows: the server's part.
impl<S: Socket> Traffic<S> {
    pub(super) fn read_request(&mut self, now: Instant, key: FlowKey) {
        let keeps_bonds = !self.bonds.ttl.is_zero();
        let stream_key = self.flows.get(key).and_then(FlowEntry::stream_key);
        let from_server =
            stream_key.is_some_and(|stream_key| self.is_from_server(stream_key.stream));
        let Some((entry, connection, stream)) = self.attached(key) else {
            return;
        };
        let FlowPhase::Reading(inlet) = &mut entry.phase else {
            return;
        };
        let protocol = connection.stream_protocol();
        let end = inlet.take_in(&mut connection.stream(stream), usize::MAX);
        inlet.compact();
        let read = inlet.header(opening::request_max(protocol));
        if from_server {
            return self.read_incoming(now, key, &read, end);
        }
        if protocol == Protocol::Native && control::begins(&read) == Some(true) {
            let inlet = std::mem::take(inlet);
            return self.adopt_as_control(now, key, inlet);
        }
        if protocol == Protocol::Native && moving::begins(&read) == Some(true) {
            let complete = end != ReadEnd::Blocked || read.len() >= MAX_MOVE_FRAME;
            return self.read_move(now, key, &read, complete);
        }
        let complete = end != ReadEnd::Blocked || read.len() == opening::request_max(protocol);
        let asked = match opening::read_request(protocol, &read) {
            Ok(Decoded::Need) if complete => Err(FlowCode::BadOpen),
            // A request on a stream that was reset is worthless, even if it is complete.
            Ok(Decoded::Done { .. }) if matches!(end, ReadEnd::Reset(_)) => Err(FlowCode::AppReset),
            asked => asked,
        };
        match asked {
            Ok(Decoded::Need) => self.charge_flow(now, key),
            Err(code) => self.refuse_flow(now, key, code),
            Ok(Decoded::Done {
                frame: mut open,
                consumed,
            }) => {
                let mut inlet = std::mem::take(inlet);
                inlet.skip_header(consumed);
                entry.begin_dialing(&open.target, inlet);
                let bond = connection.bond;
                // HELLO may still be on its way.
                let may_be = keeps_bonds && (bond.is_some() || !connection.control.is_answered());
                if let Some(number) = open.number.filter(|_| may_be) {
                    entry.bonded = Some(BondMembership::new(None, number));
                }
                let user = open.login.take().map(|login| {
                    open.proof = connection.prove_password(&login.password);
                    String::from_utf8_lossy(&login.user).into_owned()
                });
                let proof = &mut connection.admission.proof;
                *proof = open.proof.or(*proof);
                let request = OpenRequest {
                    flow: entry.id(),
                    connection: connection.id(),
                    stream_id: stream.number(),
                    remote: connection.remote(),
                    token: open.target,
                    proof: open.proof,
                    user,
                    source: open.source,
                    protocol,
                };
                if let Some(bond) = bond
                    && let Some(stream_key) = entry.stream_key()
                {
                    self.enter_bond(now, stream_key.connection, key, bond);
                }
                self.handle_flow_request(now, key, ServerEvent::Open(request));
            }
        }
    }

    fn adopt_as_control(&mut self, now: Instant, key: FlowKey, inlet: Inlet) {
        if let Some(entry) = self.take_flow(key) {
            self.release_stream(now, &entry);
            if let Some(stream_key) = entry.stream_key() {
                self.adopt_control(now, stream_key.connection, stream_key.stream, inlet);
            }
        }
    }

    /// Handles a request that has been read, and reports it with `event`.
    pub(super) fn handle_flow_request(
        &mut self,
        now: Instant,
        key: FlowKey,
        event: impl Into<EngineEvent>,
    ) {
        self.charge_flow(now, key);
        if !self.flows.contains(key) {
            // The flow held too much, and was cut off.
            return;
        }
        // From here on, the caller limits the time of the dial.
        self.flows.set_deadline(key, None);
        self.totals.flows_opened += 1;
        if self.draining && self.side == Side::Client {
            self.refuse_flow(now, key, FlowCode::ShuttingDown);
        } else {
            self.events.push(event);
        }
    }

    /// Takes in the data that arrives while the target is being dialled. The client may give up meanwhile.
    pub(super) fn wait_for_dial(&mut self, now: Instant, key: FlowKey) {
        let Some((entry, connection, stream)) = self.attached(key) else {
            return;
        };
        let FlowPhase::Dialing(inlet) = &mut entry.phase else {
            return;
        };
        let end = inlet.take_in(&mut connection.stream(stream), usize::MAX);
        inlet.compact();
        self.charge_flow(now, key);
        // The flow may have been cut off because it held too much.
        if matches!(end, ReadEnd::Reset(_) | ReadEnd::Gone) && self.flows.contains(key) {
            self.refuse_flow(now, key, FlowCode::AppReset);
        }
    }

    /// Handles the result of a dial. If the flow has ended meanwhile, the socket is reset and dropped.
    pub(crate) fn handle_dialed(
        &mut self,
        now: Instant,
        id: FlowId,
        result: Result<(S, String), FlowCode>,
    ) {
        self.talk.note_opening(now);
        let key = self.flows.find(id);
        let attached = key.and_then(|key| Some((key, self.attached(key)?)));
        let Some((key, (entry, connection, _))) = attached else {
            if let Ok((mut socket, _)) = result {
                socket.abort();
            }
            return;
        };
        let stream_key = entry.stream_key();
        match result {
            Ok((socket, server_app)) => {
                let bonded = entry.is_incoming() && entry.bonded.is_some();
                let protocol = connection.stream_protocol();
                let acceptance = opening::acceptance(protocol, OpenAck { bonded });
                entry.accept(socket, server_app, acceptance.into());
                if entry.bonded.is_some()
                    && let Some(flow) = entry.flow_mut()
                {
                    flow.retain();
                }
                self.handle_established(key);
                self.enter_datagram_flow(now, key);
                self.pump_to_app(now, key);
                if self.flows.contains(key) {
                    self.want_outbound(key);
                    self.settle_flow(now, key);
                }
            }
            Err(code) => self.refuse_flow(now, key, code),
        }
        if let Some(stream_key) = stream_key {
            self.connections.want_transmit(stream_key.connection);
        }
    }
}

/// Opening flows: both sides.
impl<S: Socket> Traffic<S> {
    pub(super) fn handle_established(&mut self, key: FlowKey) {
        self.flows.set_deadline(key, None);
        if let Some(entry) = self.flows.get(key)
            && let Some(stream_key) = entry.stream_key()
        {
            self.events.push(Event::Established {
                flow: entry.id(),
                stream_id: stream_key.stream.number(),
            });
        }
    }

    pub(crate) fn handle_socket(
        &mut self,
        now: Instant,
        id: FlowId,
        readable: bool,
        writable: bool,
        failed: bool,
    ) {
        let Some(key) = self.flows.find(id) else {
            return;
        };
        if readable && let Some(flow) = self.datagram_flows.get_mut(key) {
            flow.readable = true;
            self.read_datagrams(now, key, true);
        }
        let Some(entry) = self.flows.get_mut(key) else {
            return;
        };
        if failed
            && let FlowPhase::Waiting(socket) = &mut entry.phase
            && !socket.has_unread()
        {
            socket.abort();
            self.remove_flow(now, key, Ending::AppReset);
            return;
        }
        let stream_key = entry.stream_key();
        let (detached, salvaged) = (entry.detached().is_some(), entry.salvage().is_some());
        let Some(flow) = entry.flow_mut() else { return };
        // The peer takes no more bytes of a salvaged flow, so the application's are not read.
        flow.handle_socket_ready(readable && !salvaged, writable);
        if failed {
            flow.handle_socket_failed();
        }
        if detached {
            return self.pump_detached(now, key, None);
        }
        if salvaged {
            return self.pump_salvaged(now, key, None);
        }
        if writable && !failed {
            self.pump_to_app(now, key);
        }
        if self.flows.contains(key) {
            self.want_outbound(key);
            self.settle_flow(now, key);
        }
        if let Some(stream_key) = stream_key {
            self.connections.want_transmit(stream_key.connection);
        }
    }
}
