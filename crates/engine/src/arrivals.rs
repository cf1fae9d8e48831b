//! Streams that clients open, until each is a flow or refused.
//!
//! A refused stream takes memory until the client ends its half, too. An honest client does so within a round trip; another
//! one may keep all halves open. While memory is short, a stream is therefore refused only once the client has ended those
//! that were refused before. Until then it waits here, where it takes next to nothing.

use std::time::Instant;

use quictun_flow::{Inlet, Socket, Stream};
use quictun_wire::code::FlowCode;
use quinn_proto::{Dir, StreamId};

use crate::FlowId;
use crate::charges::FLOW_COST;
use crate::engine::{Engine, Role};
use crate::flow_entry::{FlowEntry, Phase, Place};
use crate::quic_stream::QuicStream;

/// Part of the free memory that further permitted streams may take while a client still has some.
const AHEAD_PART: u64 = 256;

/// The same once it has used them all.
const USED_UP_PART: u64 = 2;

impl<S: Socket> Engine<S> {
    /// Takes the streams that a client has opened.
    pub(crate) fn accept_streams(&mut self, now: Instant, handle: usize) {
        let slot = self.connections.get_mut(handle);
        if let (Role::Server(_), Some(Some(connection))) = (&self.role, slot)
            && !connection.lost
        {
            while let Some(stream) = connection.quic.streams().accept(Dir::Bi) {
                connection.arrivals.push_back(stream);
            }
            self.admit_arrivals(now, handle);
        }
    }

    /// Turns the streams that wait into flows, and refuses those for which there is no memory.
    pub(crate) fn admit_arrivals(&mut self, now: Instant, handle: usize) {
        loop {
            let Some(Some(connection)) = self.connections.get_mut(handle) else {
                return;
            };
            let Some(&stream) = connection.arrivals.front() else {
                return;
            };
            // A peer with many flows is refused before one with few.
            let own = FLOW_COST * (connection.streams.len() as u64 + 1);
            let charged = if connection.streams.is_empty() {
                connection.memory -= FLOW_COST;
                true
            } else {
                self.lease.has_room(own) && self.lease.try_charge(FLOW_COST)
            };
            if charged {
                connection.arrivals.pop_front();
                self.admit_stream(now, handle, stream);
                continue;
            }
            let short = self.lease.free() < self.lease.reserve() / 2;
            if short && connection.ended_streams() > 0 {
                return;
            }
            connection.arrivals.pop_front();
            self.refuse_stream(handle, stream);
        }
    }

    /// Turns a stream into a flow; its memory has been charged.
    fn admit_stream(&mut self, now: Instant, handle: usize, stream: StreamId) {
        let (Role::Server(server), max_flows) = (&self.role, self.transport.max_flows) else {
            return;
        };
        let deadline = now + server.open_timeout();
        // There is memory for every flow that a client may open.
        let free_streams = self.lease.free() / FLOW_COST;
        let slot = self.flows.vacant_key();
        let id = FlowId(self.next_id(slot));
        let mut entry = FlowEntry::new(id, Phase::Reading(Inlet::new()), now);
        entry.place = Some(Place { handle, stream });
        let key = self.flows.insert(entry);
        self.flow_timers
            .set(key, &mut self.flows[key].deadline, Some(deadline));
        if let Some(Some(connection)) = self.connections.get_mut(handle) {
            connection.streams.insert(stream, key);
            connection.inbound.push(key);
            connection.idle_since = None;
            let most = max_flows.min(u32::try_from(free_streams).unwrap_or(u32::MAX));
            let cost = connection.cost_of_more_flows(most);
            let part = if connection.has_streams_left() {
                AHEAD_PART
            } else {
                USED_UP_PART
            };
            if cost > 0 && cost < self.lease.free_for_newcomers() / part {
                // Less than what is free: the charge stays within the budget.
                connection.memory += cost;
                self.lease.charge(cost);
                connection.grant_more_flows(most);
            }
        }
    }

    fn refuse_stream(&mut self, handle: usize, id: StreamId) {
        if let Some(Some(connection)) = self.connections.get_mut(handle) {
            let mut stream = QuicStream {
                quic: &mut connection.quic,
                id,
            };
            stream.reset(FlowCode::Limit);
            stream.stop(FlowCode::Limit);
        }
        self.totals.flows_opened += 1;
        self.totals.flows_refused += 1;
    }
}
