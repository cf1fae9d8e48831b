//! Outbound direction: from applications into streams, and from streams into batches of datagrams.

use std::mem;
use std::time::Instant;

use fxhash::FxHashSet;
use quictun_flow::{ConnectionKey, FlowEntry, FlowKey, Socket, ToTunnelStop};

use super::byte_counters::TransferredBytes;
use super::{Traffic, attached};
use crate::datagrams::Datagrams;
use crate::loss::LossReason;
use crate::report::{Protocol, SendLimit};

/// Limit for the bytes that one flow sends before the next one has its turn.
const TURN: usize = 64 * 1024;

enum FillStep {
    NextFlow,
    Flush,
}

impl<S: Socket> Traffic<S> {
    pub(crate) fn poll_transmit(
        &mut self,
        now: Instant,
        buffer: &mut Vec<u8>,
    ) -> Option<Datagrams> {
        buffer.clear();
        if let Some(datagrams) = self.endpoint.poll_response(buffer) {
            self.count_batch(&datagrams);
            return Some(datagrams);
        }
        let mut next = mem::take(&mut self.next_batch);
        let taken = next.take(buffer);
        let first = taken.or_else(|| self.poll_connections(now, buffer));
        let batch = first.map(|mut batch| {
            let max_segments = self.transport.max_segments;
            next.share(&mut batch, buffer, max_segments, |buffer| {
                self.poll_connections(now, buffer)
            });
            self.count_batch(&batch);
            batch
        });
        self.next_batch = next;
        batch
    }

    /// Returns the next batch of one connection, in turn.
    fn poll_connections(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<Datagrams> {
        while let Some(key) = self.connections.next_to_send() {
            if let Some(datagrams) = self.poll_connection(now, key, buffer) {
                self.connections.end_turn();
                return Some(datagrams);
            }
            self.connections.go_idle();
            self.forget_stranger(now, key);
        }
        None
    }

    /// Lets the connections over TCP send that have something to send. The others keep their turns.
    pub(crate) fn transmit_over_tcp(&mut self, now: Instant) {
        for _ in 0..self.connections.sending() {
            let Some(key) = self.connections.next_to_send() else {
                return;
            };
            let connection = self.connections.get_mut(key);
            if connection.is_some_and(|connection| connection.carrier.as_tls().is_none()) {
                self.connections.end_turn();
                continue;
            }
            // A connection over TCP has no datagrams.
            let _none = self.poll_connection(now, key, &mut Vec::new());
            self.connections.go_idle();
            self.forget_stranger(now, key);
        }
    }

    fn count_batch(&mut self, datagrams: &Datagrams) {
        self.totals.batches_sent += 1;
        self.totals.datagrams_sent += datagrams.count() as u64;
    }

    /// Forgets the closed connection of a stranger as soon as its last packet has been sent, if half of the memory is
    /// taken.
    ///
    /// QUIC keeps closed connections for three probe timeouts, so that it can repeat that they are closed. A
    /// peer can extend this time at will by delaying acknowledgements. Without the connection, its packets get a
    /// stateless reset.
    fn forget_stranger(&mut self, now: Instant, key: ConnectionKey) {
        if let Some(connection) = self.connections.get(key)
            && connection.is_server()
            && connection.is_lost()
            && !connection.is_admitted()
            && self.memory.lease.is_half_full()
        {
            self.forget(now, key, LossReason::ClosedLocally);
        }
    }

    fn poll_connection(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        buffer: &mut Vec<u8>,
    ) -> Option<Datagrams> {
        if self.connections.get_mut(key)?.carrier.as_tls().is_some() {
            self.send_over_tcp(now, key);
            return None;
        }
        self.fill(now, key);
        let max_segments = self.transport.max_segments;
        let connection = self.connections.get_mut(key)?;
        let batch = connection.poll_transmit(now, max_segments, buffer)?;
        self.release_datagrams(key);
        Some(batch)
    }

    /// Takes about one batch of bytes, as far as window and pacer allow. Control frames come first. Those about flows that
    /// have just ended follow in the same packet.
    pub(super) fn fill(&mut self, now: Instant, key: ConnectionKey) {
        self.flush_control(now, key);
        self.fill_from_flows(now, key);
        self.flush_control(now, key);
    }

    fn flush_control(&mut self, now: Instant, key: ConnectionKey) {
        let connection = self.connections.get_mut(key);
        if connection.is_some_and(|connection| !connection.flush_control()) {
            self.violate(now, key, "too many unread control frames");
        }
    }

    fn fill_from_flows(&mut self, now: Instant, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let Some(room) = connection.begin_filling(now, self.sleeps) else {
            return;
        };
        let mut turns = connection.streams.outbound.len();
        let batch = room.min(connection.carrier.batch_max());
        let mut allowance = batch.saturating_sub(self.fill_datagrams(now, key, batch));
        while allowance > 0 && turns > 0 {
            turns -= 1;
            let Some(most) = self.reading_room(key) else {
                break;
            };
            if self.is_held_back(now, key) {
                break;
            }
            match self.fill_from_next(now, key, &mut allowance, most) {
                FillStep::NextFlow => {}
                FillStep::Flush => break,
            }
        }
        if allowance > 0 {
            // Datagrams take the part of the batch that streams do not need.
            self.fill_datagrams(now, key, allowance);
        }
        let restrained = self.memory.read_buffer.is_restrained();
        if let Some(connection) = self.connections.get_mut(key) {
            connection.end_filling(now, room, restrained);
        }
    }

    /// Returns whether the flow whose turn it is has to wait for its client's rate. The engine's own bytes, such as an
    /// answer, do not wait.
    fn is_held_back(&mut self, now: Instant, key: ConnectionKey) -> bool {
        let Some(connection) = self.connections.get_mut(key) else {
            return true;
        };
        if connection.shaping.may_send(now) > 0 {
            return false;
        }
        let next = connection.streams.outbound.front();
        let flow = next.and_then(|&next| self.flows.get(next)?.flow());
        flow.is_none_or(|flow| flow.prefix_left() == 0)
    }

    fn fill_from_next(
        &mut self,
        now: Instant,
        on: ConnectionKey,
        allowance: &mut usize,
        most: usize,
    ) -> FillStep {
        let Some(connection) = self.connections.get_mut(on) else {
            return FillStep::Flush;
        };
        let compat = connection.speaks(Protocol::Compat);
        let Some(key) = connection.streams.outbound.pop_front() else {
            return FillStep::Flush;
        };
        let Some(entry) = self.flows.get_mut(key) else {
            return FillStep::NextFlow;
        };
        let Some(stream_key) = entry
            .stream_key()
            .filter(|stream_key| stream_key.connection == on)
        else {
            return FillStep::NextFlow;
        };
        entry.dequeue();
        if entry.is_paused_by_peer() {
            return FillStep::NextFlow;
        }
        let early = entry.early_left(compat);
        let Some(flow) = entry.flow_mut() else {
            return FillStep::NextFlow;
        };
        // The original reads only the last piece of a token that arrives in several. With it, a token therefore travels
        // in a packet that carries nothing else.
        let alone = compat && flow.prefix_left() > 0;
        if alone && connection.carrier.has_unsent() {
            entry.enqueue();
            connection.streams.outbound.push_front(key);
            return FillStep::Flush;
        }
        let own = flow.prefix_left();
        let turn = if alone {
            own
        } else {
            let rate = usize::try_from(connection.shaping.may_send(now)).unwrap_or(usize::MAX);
            TURN.min(*allowance)
                .min(most)
                .min(early.min(rate).saturating_add(own))
        };
        let mut budget = turn;
        let before = flow.bytes_to_tunnel();
        let pumped = flow.pump_to_tunnel(
            &mut connection.stream(stream_key.stream),
            &mut self.memory.read_buffer,
            &mut budget,
        );
        let sent = (before, flow.bytes_to_tunnel());
        let own = own - flow.prefix_left();
        let failed = flow.has_failed();
        let moved = TransferredBytes::new(sent, connection.client(), entry.age(now));
        let taken = turn - budget;
        let place = connection.streams.next_place();
        entry.note_credit(taken, pumped == ToTunnelStop::Blocked, place);
        connection.carrier.note_written(taken);
        connection.shaping.note_sent((taken - own) as u64);
        self.talk.note_moved(now, &mut entry.outbound, taken);
        *allowance = allowance.saturating_sub(taken);
        match pumped {
            // Bytes held back until the answer are requested again when it comes.
            ToTunnelStop::Budget if entry.early_left(compat) == 0 => {}
            ToTunnelStop::Budget => {
                entry.enqueue();
                connection.streams.outbound.push_back(key);
            }
            ToTunnelStop::Blocked => connection.carrier.set_limit(SendLimit::ReceiveWindow),
            ToTunnelStop::Starved => {}
            ToTunnelStop::Ended => self.settle_flow(now, key),
        }
        if failed {
            self.settle_flow(now, key);
        }
        self.count_to_tunnel(moved);
        self.note_kept(key);
        self.limit_kept(now);
        if alone {
            FillStep::Flush
        } else {
            FillStep::NextFlow
        }
    }

    pub(crate) fn want_outbound(&mut self, key: FlowKey) {
        if let Some((entry, connection, _)) = attached(&mut self.flows, &mut self.connections, key)
            && entry.enqueue()
        {
            let own = entry.flow().is_some_and(|flow| flow.prefix_left() > 0);
            if own && connection.shaping.holds_back() {
                // An answer does not wait for the rate.
                connection.streams.outbound.push_front(key);
            } else {
                connection.streams.outbound.push_back(key);
            }
            if connection.streams.is_outbound_stale() {
                self.forget_stale_outbound(key);
            }
        }
    }

    /// Removes ended flows from the queue of the connection that carries `key`.
    fn forget_stale_outbound(&mut self, key: FlowKey) {
        let on = self.flows.get(key).and_then(FlowEntry::stream_key);
        let on = on.map(|stream_key| stream_key.connection);
        let Some((on, connection)) = on.and_then(|on| Some((on, self.connections.get_mut(on)?)))
        else {
            return;
        };
        // The key of an ended flow may be that of another flow by now.
        let (flows, mut kept) = (&self.flows, FxHashSet::default());
        let is_here = |key| flows.get(key).is_some_and(|entry| entry.is_on(on));
        let outbound = &mut connection.streams.outbound;
        outbound.retain(|&key| is_here(key) && kept.insert(key));
    }
}
