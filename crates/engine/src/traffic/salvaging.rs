//! Flows that outlive their connection, or their stream, until what they have received in order is delivered (PROTOCOL
//! CLOSE-4, CLOSE-12), and sockets that send all they hold before they are reset.
//!
//! ```text
//! connection lost ─┬─► salvaged: written as the application reads ─► whole ─► FIN ─┐ (the other direction was cut)
//! RESET_STREAM ────┘                                          └─► a byte is missing ┤
//!                        STOP_SENDING after the FIN ─► parting: the socket sends its rest
//!                                                         └─► reset
//! ```

use std::time::Instant;

use quictun_flow::{Ending, Flow, FlowEntry, FlowKey, FlowPhase, LostStream, Socket, ToAppStop};
use quictun_wire::code::FlowCode;

use super::Traffic;
use super::byte_counters::TransferredBytes;

impl<S: Socket> Traffic<S> {
    /// Reads the answer to a flow that this side has opened, and the data after it, from what a lost connection has
    /// delivered.
    pub(super) fn read_last_answer(&mut self, now: Instant, key: FlowKey) {
        let entry = self.flows.get(key);
        if entry.is_some_and(|entry| entry.phase.is_unanswered()) {
            self.read_answer(now, key);
        }
    }

    /// Handles the loss of a flow's connection, which ends the flow in the way of `how`. Returns whether the flow
    /// continues without it.
    /// Call [`Traffic::read_last_answer`] first.
    pub(super) fn lose_flow(&mut self, now: Instant, key: FlowKey, how: Ending) -> bool {
        let Some((entry, connection, stream)) = self.attached(key) else {
            return false;
        };
        let moving = entry.is_moving();
        let FlowPhase::Bridged {
            flow,
            answered: true,
        } = &mut entry.phase
        else {
            if let Some(flow) = entry.flow_mut() {
                flow.cut(how);
            }
            self.remove_flow(now, key, how);
            return false;
        };
        if moving {
            flow.handle_connection_lost(&mut LostStream, how);
        } else {
            flow.handle_connection_lost(&mut connection.stream(stream), how);
        }
        if let Some(ending) = flow.ending() {
            // This includes a flow that only waited for the peer's confirmation.
            self.remove_flow(now, key, ending);
            return false;
        }
        connection.credit.holding -= std::mem::take(&mut entry.backlog.holding);
        let leg = connection.leg(stream);
        entry.begin_salvage(now, leg);
        self.pump_salvaged(now, key, None);
        self.flows.contains(key)
    }

    /// Writes as much as the application takes and the client's rate permits, and sets the next deadline. `turn` is the
    /// number of bytes for a flow whose turn it is.
    pub(super) fn pump_salvaged(&mut self, now: Instant, key: FlowKey, turn: Option<u64>) {
        let salvage = self.flows.get(key).and_then(FlowEntry::salvage);
        let Some(client) = salvage.map(|salvage| salvage.leg().client) else {
            return;
        };
        let mut budget = turn.unwrap_or_else(|| self.may_deliver_unattached(now, client));
        let Some(entry) = self.flows.get_mut(key) else {
            return;
        };
        let age = entry.age(now);
        let Some((flow, salvage)) = entry.salvaged() else {
            return;
        };
        let before = flow.bytes_to_app();
        let stopped = flow.pump_to_app_within(&mut LostStream, &mut budget);
        let (delivered, held) = (flow.bytes_to_app(), flow.arrived().held());
        // A flow that only waits for its socket has limits of its own.
        let active = delivered > before || stopped == ToAppStop::Budget || flow.is_parting();
        let until = salvage.update(now, active, held, &mut self.memory.lease);
        if now >= until {
            flow.abandon(&mut LostStream, FlowCode::ConnectionLost);
        }
        self.charge_unattached(now, key, client, (delivered - before, stopped));
        self.count_to_app(TransferredBytes::new((before, delivered), client, age));
        self.flows.set_deadline(key, Some(until));
        self.settle_flow(now, key);
    }

    /// Handles the deadline `due` of a bridged flow. Returns false if the flow waits only for its server's answer.
    pub(super) fn handle_bridged_deadline(
        &mut self,
        now: Instant,
        key: FlowKey,
        due: Instant,
    ) -> bool {
        if self.expire_move(now, key, due) {
            return true;
        }
        let Some(entry) = self.flows.get_mut(key) else {
            return false;
        };
        let waits = entry.flow().is_some_and(Flow::is_parting) || entry.has_failed();
        let salvaged = entry.salvage().is_some();
        // A failed flow without an answer waits for the answer.
        let waits = waits && !entry.phase.is_unanswered();
        entry.poll_parting(now);
        if salvaged {
            self.pump_salvaged(now, key, None);
        } else if waits {
            self.settle_flow(now, key);
        }
        waits || salvaged
    }

    pub(crate) fn abandon_all_salvaged(&mut self, now: Instant) {
        let flows = self.flows.iter();
        let salvaged = flows.filter(|(_, entry)| entry.salvage().is_some());
        let keys: Vec<FlowKey> = salvaged.map(|(key, _)| key).collect();
        for key in keys {
            self.abandon_salvaged(now, key, FlowCode::ShuttingDown);
        }
    }

    pub(super) fn abandon_salvaged(&mut self, now: Instant, key: FlowKey, how: impl Into<Ending>) {
        if let Some(flow) = self.flows.get_mut(key).and_then(|entry| entry.flow_mut()) {
            flow.abandon(&mut LostStream, how);
            self.settle_flow(now, key);
        }
    }
}
