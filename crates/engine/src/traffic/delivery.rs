//! Inbound direction: from streams to applications.

use std::time::Instant;

use quictun_flow::{
    ConnectionKey, Flow, FlowEntry, FlowKey, FlowPhase, NoStream, Socket, StreamId, ToAppStop,
};
use quictun_wire::code::FlowCode;

use super::byte_counters::TransferredBytes;
use super::{Traffic, attached};
use crate::connection::TURNS;
use crate::report::Protocol;

impl<S: Socket> Traffic<S> {
    pub(crate) fn deliver(&mut self, now: Instant, key: ConnectionKey) {
        self.admit_arrivals(now, key);
        let connection = self.connections.get_mut(key);
        if connection.is_some_and(|connection| connection.control.take_readable()) {
            self.read_control(now, key);
        }
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let keys = connection.streams.begin_inbound();
        for &flow in &keys {
            if self.flows.get(flow).is_some_and(|entry| entry.is_on(key)) {
                self.pump_entry(now, flow);
            }
        }
        if let Some(connection) = self.connections.get_mut(key) {
            connection.streams.end_inbound(keys);
        }
    }

    fn pump_entry(&mut self, now: Instant, key: FlowKey) {
        let Some(entry) = self.flows.get(key) else {
            return;
        };
        if entry.is_moving() {
            return self.read_move_answer(now, key);
        }
        match &entry.phase {
            FlowPhase::Waiting(_) => {}
            FlowPhase::Reading(_) => self.read_request(now, key),
            FlowPhase::Dialing(_) => self.wait_for_dial(now, key),
            FlowPhase::Bridged {
                answered: false, ..
            } => self.read_answer(now, key),
            FlowPhase::Bridged { answered: true, .. } => {
                self.pump_to_app(now, key);
                self.settle_flow(now, key);
            }
        }
    }

    pub(crate) fn note_readable(&mut self, key: ConnectionKey, stream: StreamId) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if connection.is_control(stream) {
            return connection.control.handle_readable();
        }
        let Some(flow) = connection.streams.flow(stream) else {
            return;
        };
        connection.streams.push_inbound(flow);
        let packet_max = connection.carrier.packet_max();
        let entry = self.flows.get_mut(flow);
        if let Some(inlet) = entry.and_then(|entry| entry.inlet_mut()) {
            inlet.handle_readable(packet_max);
        }
    }

    pub(crate) fn note_writable(&mut self, key: ConnectionKey, stream: StreamId) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if let Some(flow) = connection.streams.flow(stream)
            && let Some(entry) = self.flows.get(flow)
        {
            let place = entry.blocked().unwrap_or(0);
            connection.streams.writable.push((place, flow));
        }
    }

    /// Lets flows that have credit again send, in the order in which they have waited.
    pub(crate) fn place_writable(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let mut writable = std::mem::take(&mut connection.streams.writable);
        writable.sort_unstable();
        for (_, flow) in writable.drain(..) {
            if self.flows.get(flow).is_some_and(|entry| entry.is_on(key)) {
                self.want_outbound(flow);
            }
        }
        if let Some(connection) = self.connections.get_mut(key) {
            connection.streams.writable = writable;
        }
    }

    pub(crate) fn handle_stopped(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        stream: StreamId,
        code: u64,
    ) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if connection.is_control(stream) {
            return self.lose_control(now, key);
        }
        let Some(flow) = connection.streams.flow(stream) else {
            return;
        };
        let (code_sent, entry) = (FlowCode::from_u64(code), self.flows.get(flow));
        let unanswered = entry.is_some_and(|entry| entry.phase.is_unanswered());
        if unanswered && code_sent == Some(FlowCode::ShuttingDown) {
            // The refusal resets the stream, too, and is read as the answer.
            return;
        }
        // So is a refused MOVE.
        let moving = entry.is_some_and(FlowEntry::is_moving);
        if code_sent == Some(FlowCode::Moved) && !moving {
            self.accept_left(now, flow);
            if self.leave_leg(now, flow) || self.is_detached(flow) {
                return;
            }
        }
        let (Some(connection), key) = (self.connections.get_mut(key), flow) else {
            return;
        };
        match self.flows.get_mut(key).and_then(|entry| entry.flow_mut()) {
            Some(flow) => {
                flow.handle_stopped(&mut connection.stream(stream), code);
                self.note_arrived(now, key);
                self.settle_flow(now, key);
            }
            // The client gave up before the server had answered.
            None => self.refuse_flow(now, key, FlowCode::AppReset),
        }
    }

    pub(super) fn pump_to_app(&mut self, now: Instant, key: FlowKey) {
        self.pump_to_app_by(now, key, None);
    }

    /// Gives turns to the flows that wait for their client's rate.
    pub(crate) fn serve_shaped(&mut self, now: Instant, key: ConnectionKey) {
        for _ in 0..TURNS {
            let connection = self.connections.get_mut(key);
            let next = connection.and_then(|connection| connection.shaping.next(now));
            let Some((flow, bytes)) = next else {
                break;
            };
            let entry = self.flows.get_mut(flow);
            // The flow may have left the connection.
            if entry.is_some_and(|entry| entry.is_on(key) && entry.leave_rate()) {
                self.pump_to_app_by(now, flow, Some(bytes));
                self.settle_flow(now, flow);
            }
        }
        if let Some(connection) = self.connections.get_mut(key) {
            connection.shaping.plan(now);
        }
        self.connections.want_transmit(key);
    }

    /// Delivers data to the application. `turn` is the number of bytes for a flow whose turn it is.
    fn pump_to_app_by(&mut self, now: Instant, key: FlowKey, turn: Option<u64>) {
        let Some((entry, connection, stream)) =
            attached(&mut self.flows, &mut self.connections, key)
        else {
            return;
        };
        let moving = entry.is_moving();
        let FlowPhase::Bridged {
            flow,
            answered: true,
        } = &mut entry.phase
        else {
            return;
        };
        let stand = |flow: &Flow<S>| (flow.bytes_to_app(), flow.arrived().buffered() as u64);
        let (written, buffered) = stand(flow);
        let mut budget = turn.unwrap_or_else(|| connection.shaping.may_deliver(now));
        // Bytes of a stream whose MOVE is not answered yet have no place in the flow. They follow with the answer.
        let drained = if moving {
            flow.pump_to_app_within(&mut NoStream, &mut budget)
        } else {
            flow.pump_to_app_within(&mut connection.stream(stream), &mut budget)
        };
        let after = stand(flow);
        connection.shaping.note_delivered(after.0 - written);
        if drained == ToAppStop::Budget && entry.wait_for_rate() {
            connection.shaping.wait(now, key);
        }
        let delivered = (after.0 + after.1).saturating_sub(written + buffered);
        let counted =
            TransferredBytes::new((written, after.0), connection.client(), entry.age(now));
        connection.credit.delivered += delivered;
        let moved = usize::try_from(delivered).unwrap_or(usize::MAX);
        self.talk.note_moved(now, &mut entry.inbound, moved);
        if delivered > 0 && entry.bonded.is_some() {
            connection.expect_more();
        }
        if let Some(next) = entry.take_end()
            && connection.speaks(Protocol::Native)
        {
            connection.control.note_seen(stream.number(), next);
            if let Some(bonded) = &mut entry.bonded {
                bonded.note_reported(next);
            }
        } else {
            self.note_arrived(now, key);
        }
        self.count_to_app(counted);
        self.charge_flow(now, key);
        if drained == ToAppStop::Left {
            self.leave_leg(now, key);
        } else if drained == ToAppStop::Ended && self.datagram_flows.contains(key) {
            self.want_outbound(key);
        }
    }
}
