//! Flows of bonds without a connection: the application still gets received data, and everything else waits.

use std::time::{Duration, Instant};

use quictun_flow::{
    BondKey, Ending, FlowEntry, FlowKey, LocalLimit, LostStream, NoStream, Socket, StreamKey,
    passed_asleep,
};
use quictun_wire::code::FlowCode;

use super::byte_counters::TransferredBytes;
use super::moving::MOVE_TIMEOUT;
use super::{Traffic, attached};
use crate::connection::Connection;
use crate::grants::FLOW_COST;

/// Pause between two flows that end because memory is short. Each requires a search over all clients.
const FREE_MEMORY_INTERVAL: Duration = Duration::from_millis(10);

impl<S: Socket> Traffic<S> {
    pub(super) fn is_detached(&self, key: FlowKey) -> bool {
        let entry = self.flows.get(key);
        entry.is_some_and(|entry| entry.detached().is_some())
    }

    /// Returns the flow's bond, if the peer has agreed to it and the flow can wait for another connection.
    pub(super) fn bond_to_wait_in(&self, key: FlowKey) -> Option<BondKey> {
        let entry = self.flows.get(key).filter(|entry| entry.can_move())?;
        let bond = entry.bonded.as_ref()?.bond?;
        let found = self.bonds.get(bond)?;
        (found.granted && !found.ttl.is_zero()).then_some(bond)
    }

    /// Takes a flow off its connection, so that it waits for another one.
    pub(super) fn detach_flow(&mut self, now: Instant, key: FlowKey, bond: BondKey) {
        let ttl = self.bonds.get(bond).map_or(Duration::ZERO, |bond| bond.ttl);
        let Some((entry, connection, stream)) =
            attached(&mut self.flows, &mut self.connections, key)
        else {
            return;
        };
        let moving = entry.is_moving();
        let Some(flow) = entry.flow_mut() else { return };
        if moving {
            // Without the answer to MOVE, the stream's bytes have no place in the flow.
            flow.detach(&mut NoStream);
        } else {
            flow.detach(&mut connection.stream(stream));
        }
        flow.inlet().pack();
        let taken = entry.received().taken;
        entry.backlog.note_taken(taken);
        connection.credit.holding -= std::mem::take(&mut entry.backlog.holding);
        connection.streams.remove(now, stream);
        let (leg, until) = (connection.leg(stream), now + ttl);
        connection.update_memory_charge(&mut self.memory.lease);
        if let Some(bonded) = &mut entry.bonded {
            bonded.stall(connection.stalled_since(now));
        }
        entry.detach(leg, until);
        let number = entry.bonded.as_ref().map(|bonded| bonded.number);
        self.flows.set_deadline(key, Some(until));
        self.note_pinned(key);
        // The flow has no stream on which to send bytes again.
        self.note_kept(key);
        // A client that moves its flows to a new connection takes all of them off the old one first.
        let most = self.transport.max_flows as usize;
        let excess = number.and_then(|number| self.bonds.note_detached(bond, number, most));
        self.pump_detached(now, key, None);
        // Flows that another process continues do not wait here for long, so their number has no limit.
        let excess = excess.filter(|&excess| !self.handing_over && self.is_detached(excess));
        if let Some(excess) = excess {
            self.give_up(now, excess, LocalLimit::DetachedFlows);
        }
    }

    /// Ends the oldest flows of a bond that has lost a connection, if too many of its client's flows wait.
    pub(super) fn end_excess(&mut self, now: Instant, bond: BondKey) {
        while let Some(excess) = self.bonds.excess(bond)
            && self.is_detached(excess)
        {
            self.give_up(now, excess, LocalLimit::DetachedFlows);
        }
    }

    /// Takes a flow off its stream, to continue on another one. Returns false if the flow cannot wait for that.
    pub(super) fn leave_leg(&mut self, now: Instant, key: FlowKey) -> bool {
        let stream_key = self.flows.get(key).and_then(FlowEntry::stream_key);
        let (Some(bond), Some(stream_key)) = (self.bond_to_wait_in(key), stream_key) else {
            return false;
        };
        self.leave_stream(now, key, bond, stream_key);
        true
    }

    /// Takes a flow off its stream, and resets the stream in both directions.
    pub(super) fn leave_stream(
        &mut self,
        now: Instant,
        key: FlowKey,
        bond: BondKey,
        stream_key: StreamKey,
    ) {
        self.detach_flow(now, key, bond);
        if let Some(connection) = self.connections.get_mut(stream_key.connection) {
            connection.reset_stream(stream_key.stream, FlowCode::Moved);
            self.connections.want_transmit(stream_key.connection);
        }
    }

    /// Writes as much received data as the application takes and the client's rate permits. `turn` is the number of
    /// bytes for a flow whose turn it is.
    pub(super) fn pump_detached(&mut self, now: Instant, key: FlowKey, turn: Option<u64>) {
        let detached = self.flows.get(key).and_then(FlowEntry::detached);
        let Some(client) = detached.map(|detached| detached.leg().client) else {
            return;
        };
        let mut budget = turn.unwrap_or_else(|| self.may_deliver_unattached(now, client));
        let Some(entry) = self.flows.get_mut(key) else {
            return;
        };
        let age = entry.age(now);
        let Some((flow, detached)) = entry.detached_mut() else {
            return;
        };
        let before = flow.bytes_to_app();
        let stopped = flow.pump_to_app_within(&mut NoStream, &mut budget);
        let (delivered, held) = (flow.bytes_to_app(), flow.arrived().held());
        detached.charge(held, &mut self.memory.lease);
        let bonded = entry.bonded.as_ref();
        if let Some((bond, number)) = bonded.and_then(|it| Some((it.bond?, it.number))) {
            self.bonds.note_held(bond, number, held as u64);
        }
        self.charge_unattached(now, key, client, (delivered - before, stopped));
        self.count_to_app(TransferredBytes::new((before, delivered), client, age));
        self.settle_flow(now, key);
    }

    /// Ends the wait of a flow for another connection. The flow continues like one whose connection is lost for good.
    pub(super) fn give_up(&mut self, now: Instant, key: FlowKey, how: impl Into<Ending>) {
        let how = how.into();
        let code = how.code();
        let dialing = |entry: &FlowEntry<S>| entry.flow().is_none();
        if self.flows.get(key).is_some_and(dialing) {
            return self.refuse_flow(now, key, how);
        }
        if let Some((entry, connection, stream)) =
            attached(&mut self.flows, &mut self.connections, key)
        {
            connection.credit.holding -= std::mem::take(&mut entry.backlog.holding);
            connection.streams.remove(now, stream);
            connection.reset_stream(stream, code);
            if !entry.is_end_reported() {
                // The peer waits for a report about what it has sent.
                connection.control.note_gone(stream.number(), code);
            }
            let leg = connection.leg(stream);
            connection.update_memory_charge(&mut self.memory.lease);
            entry.detach(leg, now);
        }
        let Some(entry) = self.flows.get_mut(key) else {
            return;
        };
        if let Some(ending) = entry.ending() {
            // The peer can no longer get the sent bytes that it lacks.
            let ending = entry.unseen_end().map_or(ending, |_| how);
            return self.remove_flow(now, key, ending);
        }
        let Some(flow) = entry.flow_mut() else { return };
        flow.handle_connection_lost(&mut LostStream, how);
        if flow.ending().is_some() {
            return self.settle_flow(now, key);
        }
        self.leave_bond_lost(now, key, code);
        self.pump_salvaged(now, key, None);
    }

    /// Handles the deadline `due` of a flow that waits for another connection, or for the answer to MOVE. Returns false
    /// if it waits for neither.
    pub(super) fn expire_move(&mut self, now: Instant, key: FlowKey, due: Instant) -> bool {
        let Some(entry) = self.flows.get(key) else {
            return false;
        };
        let moving = entry.is_moving();
        if !moving && entry.detached().is_none() {
            return false;
        }
        let carrier = entry
            .stream_key()
            .and_then(|stream_key| self.connections.get(stream_key.connection));
        let silent = |carrier: &Connection| carrier.is_to_leave() || carrier.is_closed();
        if carrier.is_some_and(silent) || moving && passed_asleep(due, now) {
            // The path was silent, or this process slept; the server need not be at fault. Either the connection
            // recovers, or its end detaches the flow.
            self.flows.set_deadline(key, Some(now + MOVE_TIMEOUT));
        } else {
            self.give_up(now, key, FlowCode::ConnectionLost);
        }
        true
    }

    /// Ends a waiting flow if memory is short: the one that has waited for longest, of the client that keeps the most
    /// memory.
    pub(crate) fn free_memory(&mut self, now: Instant) {
        if !self.memory.takes_flow(now, FREE_MEMORY_INTERVAL) {
            return;
        }
        self.limit_kept(now);
        if let Some(key) = self.bonds.first_to_end(FLOW_COST) {
            self.give_up(now, key, LocalLimit::DetachedMemory);
        }
    }

    /// Client: ends the waiting flows of a bond with `code`, because no connection will come for them.
    pub(crate) fn give_up_waiting(&mut self, now: Instant, bond: BondKey, code: FlowCode) {
        let found = self.bonds.get(bond);
        let flows: Vec<FlowKey> = found.map_or_else(Vec::new, |bond| bond.flows().collect());
        for flow in flows {
            if self.is_detached(flow) {
                self.give_up(now, flow, code);
            }
        }
    }

    /// Ends all flows that wait for another connection.
    pub(crate) fn abandon_all_detached(&mut self, now: Instant) {
        let flows = self.flows.iter();
        let waiting = flows.filter(|(_, entry)| entry.detached().is_some());
        let keys: Vec<FlowKey> = waiting.map(|(key, _)| key).collect();
        for key in keys {
            if let Some(flow) = self.flows.get_mut(key).and_then(FlowEntry::flow_mut) {
                flow.abandon(&mut NoStream, FlowCode::ShuttingDown);
            }
            let ending = self.flows.get(key).and_then(FlowEntry::ending);
            if let Some(ending) = ending {
                self.remove_flow(now, key, ending);
            }
        }
    }
}
