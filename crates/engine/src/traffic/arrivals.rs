//! Streams that peers open, until each becomes a flow or is refused. Clients open streams, and servers do so for their
//! listeners.
//!
//! A refused stream takes memory until the peer ends its half, too. An honest peer does so within a round trip; a
//! malicious one may keep all halves open. While memory is short, a stream is therefore refused only after the peer has
//! ended those that were refused before. Until then the stream waits here, where it takes almost no memory.

use std::collections::VecDeque;
use std::time::Instant;

use quictun_flow::{ConnectionKey, Ending, FlowEntry, LocalLimit, Socket, StreamId, StreamKey};

use super::Traffic;
use crate::grants::{FLOW_COST, FLOWS_INITIAL};

/// Divisor of the free memory for further permitted streams while a client still has unused ones.
const AHEAD_PART: u64 = 256;

/// The same divisor once the client has used all its streams.
const USED_UP_PART: u64 = 2;

/// Divisor of the free memory for the flows that a peer may open at first. `FLOWS_MIN` is the minimum.
const FLOWS_PART: u64 = 1024;
const FLOWS_MIN: u32 = 16;

impl<S: Socket> Traffic<S> {
    pub(crate) fn first_flows(&self) -> u32 {
        let room = self.memory.lease.free() / (FLOW_COST * FLOWS_PART);
        let room = u32::try_from(room).unwrap_or(u32::MAX).max(FLOWS_MIN);
        FLOWS_INITIAL.min(room).min(self.transport.max_flows)
    }

    pub(crate) fn accept_streams(&mut self, now: Instant, key: ConnectionKey) {
        if let Some(connection) = self.connections.get_mut(key)
            && !connection.is_lost()
        {
            connection.accept_streams();
            self.admit_arrivals(now, key);
        }
    }

    /// Turns the waiting streams into flows, and refuses those for which there is no memory.
    pub(super) fn admit_arrivals(&mut self, now: Instant, key: ConnectionKey) {
        while let Some(connection) = self.connections.get_mut(key)
            && let Some(stream) = connection.streams.arrivals.front().copied()
        {
            // A peer with many flows is refused before a peer with few.
            let own = FLOW_COST * (connection.streams.len() as u64 + 1);
            let charged = if connection.is_server() && connection.streams.is_empty() {
                connection.discharge(FLOW_COST);
                true
            } else {
                self.memory.lease.has_room(own) && self.memory.lease.try_charge(FLOW_COST)
            };
            if charged {
                connection.streams.arrivals.pop_front();
                self.admit_stream(now, key, stream);
                continue;
            }
            if self.free_for_arrival(now, key) {
                continue;
            }
            let Some(connection) = self.connections.get_mut(key) else {
                return;
            };
            let short = self.memory.lease.free() < self.memory.lease.reserve() / 2;
            if short && connection.ended_streams() > 0 {
                return;
            }
            connection.streams.arrivals.pop_front();
            self.refuse_arrival(now, key, stream);
        }
    }

    /// Server: ends the flow of the same client that has waited for longest for a connection, and turns the next waiting
    /// stream into a flow in its place. Returns false if there is none.
    fn free_for_arrival(&mut self, now: Instant, key: ConnectionKey) -> bool {
        let Some(connection) = self.connections.get(key).filter(|it| it.is_server()) else {
            return false;
        };
        let oldest = connection
            .bond
            .and_then(|bond| self.bonds.oldest_left(bond));
        let Some(oldest) = oldest else {
            return false;
        };
        self.revoke(now, oldest, LocalLimit::GaveWay);
        if !self.memory.lease.try_charge(FLOW_COST) {
            return false;
        }
        let arrivals = self
            .connections
            .get_mut(key)
            .map(|it| &mut it.streams.arrivals);
        if let Some(stream) = arrivals.and_then(VecDeque::pop_front) {
            self.admit_stream(now, key, stream);
        }
        true
    }

    /// Refuses a stream whose request was not read, because there is no memory for another flow. Between two calls of
    /// the engine, a peer causes at most one refusal for each stream that it may open.
    fn refuse_arrival(&mut self, now: Instant, key: ConnectionKey, stream: StreamId) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        let ending = Ending::LimitReached(LocalLimit::Memory);
        connection.reset_stream(stream, ending.code());
        let leg = connection.leg(stream);
        let stream_key = StreamKey {
            connection: key,
            stream,
        };
        let id = self.flows.next_id(&mut self.ids);
        let entry = FlowEntry::<S>::reading(id, stream_key, now);
        let summary = entry.into_summary(now, ending, Some(leg));
        self.report_refused(summary, leg.client);
    }

    /// Turns a stream into a flow, for which memory has been charged.
    fn admit_stream(&mut self, now: Instant, connection: ConnectionKey, stream: StreamId) {
        self.talk.note_opening(now);
        let stream_key = StreamKey { connection, stream };
        let deadline = now + self.open_timeout;
        let max_flows = self.transport.max_flows;
        // Every flow that a client may open must find memory.
        let free_streams = self.memory.lease.free() / FLOW_COST;
        let make = |id| FlowEntry::reading(id, stream_key, now);
        let key = self.flows.insert(&mut self.ids, deadline, make);
        let Some(connection) = self.connections.get_mut(connection) else {
            return;
        };
        connection.streams.insert(stream, key);
        connection.streams.push_inbound(key);
        if !connection.is_admitted() {
            return;
        }
        let most = max_flows.min(u32::try_from(free_streams).unwrap_or(u32::MAX));
        let cost = connection.streams.cost_of_more(most);
        let part = if connection.has_streams_left() {
            AHEAD_PART
        } else {
            USED_UP_PART
        };
        if cost > 0 && cost < self.memory.lease.free_for_newcomers() / part {
            // The cost is below the free memory, so the charge stays within the budget.
            connection.charge(cost);
            self.memory.lease.charge(cost);
            connection.grant_more_flows(most);
        }
    }
}
