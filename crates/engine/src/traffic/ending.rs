//! The end of flows: refusals, expired deadlines, removal.

use std::time::Instant;

use bytes::Bytes;
use quictun_flow::{
    ClientKey, ConnectionKey, DetachedState, Ending, Flow, FlowEntry, FlowKey, FlowPhase,
    FlowSummary, Leg, Salvage, Socket, Stream, WriteEnd,
};
use quictun_wire::code::FlowCode;
use quictun_wire::opening;

use super::Traffic;
use crate::connection::Connection;
use crate::event::Event;
use crate::grants::FLOW_COST;
use crate::report::Protocol;

impl<S: Socket> Traffic<S> {
    /// Refuses a flow that was not bridged yet, in the manner of its protocol.
    pub(super) fn refuse_flow(&mut self, now: Instant, key: FlowKey, how: impl Into<Ending>) {
        let how = how.into();
        let code = how.code();
        if let Some((entry, connection, id)) = self.attached(key) {
            let protocol = connection.stream_protocol();
            let read = match &entry.phase {
                FlowPhase::Reading(inlet) => inlet.header(opening::request_max(protocol)),
                _ => Vec::new(),
            };
            let mut answer = Bytes::from(opening::refusal(protocol, code, &read));
            let mut stream = connection.stream(id);
            if answer.is_empty() {
                stream.reset(code);
            } else {
                match stream.write(&mut answer) {
                    WriteEnd::Taken => stream.finish(),
                    // The client has stopped the stream, or there is no credit for the answer.
                    _ => stream.reset(code),
                }
            }
            stream.stop(code);
        }
        self.remove_flow(now, key, how);
    }

    /// Counts and reports a flow that is refused before it is added to the table of flows. `client` is the named client
    /// that it belongs to, if any.
    pub(super) fn report_refused(&mut self, summary: FlowSummary, client: Option<ClientKey>) {
        self.totals.flows_opened += 1;
        self.totals.flows_refused += 1;
        if let Some(totals) = self.clients.totals(client) {
            totals.flows_refused += 1;
        }
        self.events.push(Event::FlowClosed(summary));
    }

    pub(crate) fn refuse_waiting(&mut self, now: Instant, key: FlowKey, code: FlowCode) {
        if let Some(entry) = self.flows.get_mut(key)
            && let FlowPhase::Waiting(socket) = &mut entry.phase
        {
            socket.abort();
            self.remove_flow(now, key, Ending::Abandoned(code));
        }
    }

    /// Handles a flow whose deadline `due` has passed. Returns whether only the server's answer is late.
    pub(crate) fn expire_flow(&mut self, now: Instant, key: FlowKey, due: Instant) -> bool {
        let Some(entry) = self.flows.get_mut(key) else {
            return false;
        };
        let (stream_key, reopened) = (entry.stream_key(), entry.is_reopened());
        let mut late = false;
        match &mut entry.phase {
            FlowPhase::Waiting(socket) => {
                socket.abort();
                let ending = if reopened {
                    Ending::Abandoned(FlowCode::ConnectionLost)
                } else {
                    Ending::NoConnection
                };
                self.remove_flow(now, key, ending);
            }
            FlowPhase::Reading(_) => self.refuse_flow(now, key, FlowCode::BadOpen),
            FlowPhase::Dialing(_) => self.refuse_flow(now, key, FlowCode::DialTimeout),
            FlowPhase::Bridged { .. } => late = !self.handle_bridged_deadline(now, key, due),
        }
        if let Some(stream_key) = stream_key {
            self.connections.want_transmit(stream_key.connection);
        }
        late
    }

    /// Does what follows from a flow's latest change: continues its reset, takes it off a stream that the peer has
    /// reset, removes it if it has ended, or sets the time at which to look again.
    pub(super) fn settle_flow(&mut self, now: Instant, key: FlowKey) {
        let flow = self.flows.get(key).and_then(FlowEntry::flow);
        if !flow.is_some_and(Flow::is_at_end) {
            return;
        }
        self.poll_reset(now, key);
        self.leave_reset_stream(now, key);
        let carrier = self.flows.get(key).and_then(FlowEntry::stream_key);
        let carrier = carrier.and_then(|on| self.connections.get(on.connection));
        let silent = carrier.is_some_and(Connection::is_suspect);
        let Some(entry) = self.flows.get_mut(key) else {
            return;
        };
        if let Some(ending) = entry.ending() {
            if ending != Ending::Finished || !entry.lingers() {
                self.remove_flow(now, key, ending);
            }
        } else if let Some(at) = entry.next_check(now, silent) {
            // The flow has not ended. It only waits for its socket, or for its peer.
            self.flows.set_deadline(key, Some(at));
        }
    }

    pub(super) fn take_flow(&mut self, key: FlowKey) -> Option<FlowEntry<S>> {
        let mut entry = self.flows.remove(key)?;
        if entry.leave_rate() {
            if let Some(stream_key) = entry.stream_key() {
                if let Some(connection) = self.connections.get_mut(stream_key.connection) {
                    connection.shaping.forget(key);
                }
            } else if let Some(client) = self.leg_of(&entry).and_then(|it| it.client) {
                self.unattached.forget(client, key);
            }
        }
        self.memory.note_pinned(key, &mut entry, 0);
        self.unbonded.note(key, 0);
        self.memory.lease.release(FLOW_COST);
        Some(entry)
    }

    pub(super) fn release_stream(&mut self, now: Instant, entry: &FlowEntry<S>) {
        if let Some(stream_key) = entry.stream_key()
            && let Some(connection) = self.connections.get_mut(stream_key.connection)
        {
            connection.streams.remove(now, stream_key.stream);
            connection.credit.holding -= entry.backlog.holding;
            connection.update_memory_charge(&mut self.memory.lease);
        }
    }

    /// Removes a flow. Its socket closes here.
    pub(super) fn remove_flow(&mut self, now: Instant, key: FlowKey, ending: Ending) {
        let Some(mut entry) = self.take_flow(key) else {
            return;
        };
        if matches!(&entry.phase, FlowPhase::Reading(_)) {
            // The stream never sent its request. Until then it could have been the control stream.
            self.totals.flows_opened += 1;
        }
        let free = self.memory.lease.free_for_newcomers();
        let leg = self.leg_of(&entry);
        let client = leg.and_then(|leg| leg.client);
        let datagrams = self.datagram_flows.remove(key).unwrap_or_default();
        self.totals.flow_datagrams_dropped += datagrams.dropped;
        self.count_ended(now, &entry, client, ending);
        if let Some(stream_key) = entry.stream_key()
            && let Some(connection) = self.connections.get_mut(stream_key.connection)
        {
            if connection.speaks(Protocol::Native) {
                if let Some(next) = entry.unseen_end() {
                    connection
                        .control
                        .await_seen(stream_key.stream.number(), next, free);
                }
                if !entry.is_end_reported() {
                    connection
                        .control
                        .note_gone(stream_key.stream.number(), ending.code());
                }
            }
            if entry.has_open_stream() {
                // The stream to which the flow has moved did not end with the flow.
                connection.reset_stream(stream_key.stream, ending.code());
            }
            self.release_stream(now, &entry);
        } else if let Some((_, salvage)) = entry.salvaged() {
            salvage.release(&mut self.memory.lease);
        } else if let Some((_, detached)) = entry.detached_mut() {
            detached.release(&mut self.memory.lease);
        }
        let code = (ending != Ending::Finished).then(|| ending.code());
        self.leave_bond_of(&entry, code);
        let mut summary = entry.into_summary(now, ending, leg);
        summary.bytes_to_tunnel += datagrams.to_tunnel;
        summary.bytes_to_app += datagrams.to_app;
        self.events.push(Event::FlowClosed(summary));
    }

    pub(crate) fn leg_of(&self, entry: &FlowEntry<S>) -> Option<Leg> {
        let Some(stream_key) = entry.stream_key() else {
            let detached = entry.detached().map(DetachedState::leg);
            return detached.or_else(|| entry.salvage().map(Salvage::leg));
        };
        let connection = self.connections.get(stream_key.connection)?;
        Some(connection.leg(stream_key.stream))
    }

    /// Server: ends all flows of a connection. Returns their number.
    pub(crate) fn revoke_flows_of(&mut self, now: Instant, connection: ConnectionKey) -> usize {
        let flows = self.flows.iter();
        let flows = flows.filter(|(_, entry)| entry.is_on(connection));
        let keys: Vec<FlowKey> = flows.map(|(key, _)| key).collect();
        for &key in &keys {
            self.revoke(now, key, FlowCode::Revoked);
        }
        keys.len()
    }

    /// Server: ends a flow that is no longer allowed.
    pub(crate) fn revoke(&mut self, now: Instant, key: FlowKey, how: impl Into<Ending>) {
        let how = how.into();
        let stream_key = self.flows.get(key).and_then(FlowEntry::stream_key);
        if self.flows.get(key).and_then(FlowEntry::ending).is_some() {
            // Both directions have ended here, and the flow stays only because the peer may lack some of its bytes.
            if let Some((_, connection, stream)) = self.attached(key) {
                connection.reset_stream(stream, how.code());
            }
            self.remove_flow(now, key, how);
            if let Some(stream_key) = stream_key {
                self.connections.want_transmit(stream_key.connection);
            }
            return;
        }
        let Some(stream_key) = stream_key else {
            return self.abandon_salvaged(now, key, how);
        };
        let Some((entry, connection, stream)) = self.attached(key) else {
            return;
        };
        if let Some(flow) = entry.flow_mut() {
            flow.abandon(&mut connection.stream(stream), how);
            self.settle_flow(now, key);
        } else {
            self.refuse_flow(now, key, how);
        }
        self.connections.want_transmit(stream_key.connection);
    }
}
