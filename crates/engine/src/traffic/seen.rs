//! SEEN of bonds: reports received data at intervals, so that the peer need not retain it (PROTOCOL BOND-14).

use std::time::Instant;

use quictun_flow::{ConnectionKey, Flow, FlowKey, SeenTiming, Socket};

use super::{Traffic, attached};
use crate::entries::FlowEntry;
use crate::quic_stream::stream_number;

/// Divisor of the budget for data that is retained for peers. Beyond this part, flows retain nothing of what they have
/// sent.
const RETAINED_PART: u64 = 4;

/// The same divisor while only the reserve is left.
const RETAINED_PART_SHORT: u64 = 32;

/// Bytes that a flow may retain while its client has not asked for a bond yet: what it is sent within a round trip or
/// two. The request for a bond arrives first.
const UNBONDED_MAX: u64 = 1 << 20;

impl<S: Socket> Traffic<S> {
    /// Records that bytes of a flow have arrived, and reports them to the peer at intervals.
    pub(super) fn note_arrived(&mut self, now: Instant, key: FlowKey) {
        let Some((entry, connection, stream)) =
            attached(&mut self.flows, &mut self.connections, key)
        else {
            return;
        };
        if entry.is_moving() || connection.bond.is_none() {
            return;
        }
        let next = entry.flow().map_or(0, Flow::next);
        let Some(bonded) = entry.bonded.as_mut().filter(|bonded| bonded.bond.is_some()) else {
            return;
        };
        match bonded.note_arrived(next) {
            SeenTiming::Nothing => {}
            SeenTiming::Soon => connection.pending_seen.push(now, key),
            SeenTiming::Now => connection.control.note_seen(stream_number(stream), next),
        }
    }

    /// Reports received data to the peer of a connection that has not been reported yet.
    pub(crate) fn send_pending_seen(&mut self, on: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(on) else {
            return;
        };
        for key in connection.pending_seen.take() {
            let Some(entry) = self.flows.get_mut(key) else {
                continue;
            };
            let Some(stream_key) = entry
                .stream_key()
                .filter(|stream_key| stream_key.connection == on)
            else {
                continue;
            };
            let next = entry.flow().map_or(0, Flow::next);
            if let Some(bonded) = &mut entry.bonded
                && bonded.take_turn(next)
            {
                connection
                    .control
                    .note_seen(stream_number(stream_key.stream), next);
            }
        }
        self.connections.want_transmit(on);
    }

    /// Updates the memory that a flow retains for its peer.
    pub(super) fn note_kept(&mut self, key: FlowKey) {
        let Some(entry) = self.flows.get_mut(key) else {
            return;
        };
        let Some(bonded) = entry.bonded else { return };
        let Some(flow) = entry.flow_mut() else { return };
        match bonded.bond {
            Some(bond) => self.bonds.note_kept(bond, bonded.number, flow.kept()),
            None if flow.kept() > UNBONDED_MAX => flow.forget_retained(),
            None => {}
        }
    }

    /// Records that a flow of a bond has a stream again.
    pub(super) fn note_attached(&mut self, key: FlowKey) {
        let entry = self.flows.get(key);
        let bonded = entry.and_then(|entry| entry.bonded.as_ref());
        if let Some(bonded) = bonded
            && let Some(bond) = bonded.bond
        {
            self.bonds.note_attached(bond, bonded.number);
        }
    }

    /// Reduces the data that flows retain if it exceeds its part of the budget: that of the client for which most is
    /// retained.
    pub(super) fn limit_kept(&mut self) {
        let short = self.lease.free_for_newcomers() == 0;
        let part = if short {
            RETAINED_PART_SHORT
        } else {
            RETAINED_PART
        };
        let most = self.transport.account.budget() / part;
        let mut before = u64::MAX;
        while self.bonds.kept() > most && self.bonds.kept() < before {
            before = self.bonds.kept();
            for key in self.bonds.largest_retainers() {
                if let Some(flow) = self.flows.get_mut(key).and_then(FlowEntry::flow_mut) {
                    flow.forget_retained();
                }
                self.note_kept(key);
            }
        }
    }
}
