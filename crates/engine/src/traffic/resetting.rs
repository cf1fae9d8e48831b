//! Resets follow the bytes that came before them (PROTOCOL CLOSE-3, CLOSE-4).
//!
//! ```text
//! application resets ─► STOP_SENDING, and its bytes are read and sent ─► confirmed by the peer ─► RESET_STREAM
//! RESET_STREAM arrives ─► delivered without the stream: `salvaging.rs` ─► the application is reset
//! ```

use std::time::Instant;

use quictun_flow::{ConnectionKey, Flow, FlowKey, NoStream, Socket};
use quictun_wire::code::FlowCode;

use super::{Traffic, attached};
use crate::report::Side;

impl<S: Socket> Traffic<S> {
    /// Continues the reset of a flow whose application has reset its connection, as far as the peer has confirmed what
    /// the application sent before.
    pub(super) fn poll_reset(&mut self, now: Instant, key: FlowKey) {
        let Some(entry) = self.flows.get_mut(key).filter(|entry| entry.has_failed()) else {
            return;
        };
        if entry.detached().is_some() {
            return self.poll_detached_reset(key);
        }
        let (late, moving) = (entry.is_late(now), entry.is_moving());
        let Some((entry, connection, stream)) =
            attached(&mut self.flows, &mut self.connections, key)
        else {
            return;
        };
        if moving {
            // The peer reads neither a stop nor a reset before the answer to MOVE.
            return;
        }
        let answered = !entry.phase.is_unanswered();
        let confirmed = entry.is_confirmed();
        let Some(flow) = entry.flow_mut() else { return };
        flow.poll_reset(&mut connection.stream(stream), answered, confirmed);
        if late {
            flow.give_up_failed(&mut connection.stream(stream));
        }
        if flow.ending().is_none() {
            let read_out = flow.is_read_out();
            connection.streams.resetting.insert(key);
            if !read_out {
                self.want_outbound(key);
            }
        }
    }

    /// Ends a flow without a connection whose application has reset its connection, if the peer lacks nothing that the
    /// application had sent. Otherwise the reset follows on the next connection (PROTOCOL BOND-15).
    fn poll_detached_reset(&mut self, key: FlowKey) {
        let entry = self.flows.get_mut(key);
        let Some(entry) = entry.filter(|entry| entry.is_confirmed()) else {
            return;
        };
        if let Some(flow) = entry.flow_mut()
            && (flow.is_read_out() || !flow.socket().has_unread())
        {
            flow.give_up_failed(&mut NoStream);
        }
    }

    /// Continues the resets that wait for confirmations of the peer of a connection.
    pub(crate) fn poll_resets(&mut self, now: Instant, on: ConnectionKey) {
        let connection = self.connections.get_mut(on);
        let Some(connection) = connection.filter(|it| !it.streams.resetting.is_empty()) else {
            return;
        };
        for key in std::mem::take(&mut connection.streams.resetting) {
            if self.flows.get(key).is_some_and(|entry| entry.is_on(on)) {
                self.settle_flow(now, key);
            }
        }
    }

    /// Takes a flow off its stream, which the peer has reset, so that the application still gets what has arrived.
    pub(super) fn leave_reset_stream(&mut self, now: Instant, key: FlowKey) {
        let Some(entry) = self.flows.get(key) else {
            return;
        };
        let Some(how) = entry.flow().and_then(Flow::lost) else {
            return;
        };
        if entry.salvage().is_some() || entry.ending().is_some() {
            return;
        }
        let attached = attached(&mut self.flows, &mut self.connections, key);
        if let Some((entry, connection, stream)) = attached {
            connection.credit.holding -= std::mem::take(&mut entry.backlog.holding);
            connection.streams.remove(now, stream);
            if !entry.is_end_reported() {
                connection.control.note_gone(stream.number(), how.code());
            }
            let leg = connection.leg(stream);
            connection.update_memory_charge(&mut self.memory.lease);
            entry.begin_salvage(now, leg);
        }
        self.leave_bond_lost(now, key, how.code());
        self.pump_salvaged(now, key, None);
    }

    /// Takes a flow out of its bond that only delivers what has arrived.
    pub(super) fn leave_bond_lost(&mut self, now: Instant, key: FlowKey, code: FlowCode) {
        let Some(entry) = self.flows.get_mut(key) else {
            return;
        };
        let bonded = entry.bonded.take();
        if let Some(mut detached) = entry.abandon_move(now) {
            detached.release(&mut self.memory.lease);
        }
        if let Some((bond, number)) = bonded.and_then(|bonded| Some((bonded.bond?, bonded.number)))
        {
            self.bonds.end(bond, number, Some(code));
            if self.side == Side::Server {
                self.bonds.remove_unused(bond);
            }
        }
    }
}
