//! SEEN of bonds: reports received data at intervals, so that the peer need not retain it (PROTOCOL BOND-14).

use std::time::Instant;

use fxhash::FxHashMap;
use quictun_flow::{ConnectionKey, Flow, FlowEntry, FlowKey, SeenTiming, Socket};
use quictun_wire::code::FlowCode;

use super::{Traffic, attached};
use crate::bonds::{KeptMemory, KeptPart};
use crate::report::Side;

/// Divisor of the budget for data that is retained for peers. Beyond this part, flows retain nothing of what they have
/// sent.
const RETAINED_PART: u64 = 4;

/// The same divisor while only the reserve is left.
const RETAINED_PART_SHORT: u64 = 32;

/// Bytes that a flow may retain while its client has not asked for a bond yet: what it is sent within a round trip or
/// two. The request for a bond arrives first.
const UNBONDED_MAX: u64 = 1 << 20;

/// Divisor of the budget for what all these flows of one worker retain together.
const UNBONDED_PART: u64 = 32;

/// The memory that flows retain for clients that have not asked for a bond yet, in bytes.
#[derive(Debug, Default)]
pub(super) struct UnbondedRetention {
    by_flow: FxHashMap<FlowKey, u64>,
    sum: u64,
}

impl UnbondedRetention {
    /// Sets how much memory a flow retains; 0 if it has ended, or is in a bond by now.
    pub(super) fn note(&mut self, flow: FlowKey, kept: u64) {
        let before = match kept {
            0 if self.by_flow.is_empty() => return,
            0 => self.by_flow.remove(&flow),
            _ => self.by_flow.insert(flow, kept),
        };
        self.sum = self.sum - before.unwrap_or_default() + kept;
    }
}

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
        // A peer that stops this side may wait with a reset until everything before it is confirmed.
        let stopped = entry.flow().is_some_and(Flow::is_stopped);
        let answers = (self.side == Side::Server) != entry.is_incoming();
        let Some(bonded) = entry.bonded.as_mut().filter(|bonded| bonded.bond.is_some()) else {
            return;
        };
        // The side that answers a flow confirms its first bytes at once, mostly in the packet of the answer. The reset of a
        // short flow then need not wait.
        let first = answers && bonded.has_confirmed_nothing();
        match bonded.note_arrived(next, stopped || first) {
            SeenTiming::Nothing => {}
            SeenTiming::Soon => connection.pending_seen.push(now, key),
            SeenTiming::Now => connection.control.note_seen(stream.number(), next),
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
                    .note_seen(stream_key.stream.number(), next);
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
        if let Some(bond) = bonded.bond {
            self.unbonded.note(key, 0);
            let to_repeat = flow.kept_to_repeat();
            let sent = flow.kept() - to_repeat;
            let kept = KeptMemory { sent, to_repeat };
            self.bonds.note_kept(bond, bonded.number, kept);
            return;
        }
        self.unbonded.note(key, flow.kept());
        let most = self.transport.account.budget() / UNBONDED_PART;
        if flow.kept() > UNBONDED_MAX || self.unbonded.sum > most {
            flow.forget_retained();
            self.unbonded.note(key, flow.kept());
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
    ///
    /// Bytes that flows have to send again after a move are limited separately. A client that takes none of them would
    /// otherwise use up the limit of the others, whose bytes can be forgotten. The limit of these bytes stays if memory is
    /// short: flows end at it, and many honest clients may have moved at once.
    pub(super) fn limit_kept(&mut self, now: Instant) {
        let short = self.memory.lease.free_for_newcomers() == 0;
        let part = if short {
            RETAINED_PART_SHORT
        } else {
            RETAINED_PART
        };
        let budget = self.transport.account.budget();
        for key in self.bonds.flows_to_relieve(KeptPart::Sent, budget / part) {
            if let Some(flow) = self.flows.get_mut(key).and_then(FlowEntry::flow_mut) {
                flow.forget_retained();
            }
            self.note_kept(key);
        }
        let to_repeat = budget / RETAINED_PART;
        for key in self.bonds.flows_to_relieve(KeptPart::ToRepeat, to_repeat) {
            let on = self.flows.get(key).and_then(FlowEntry::stream_key);
            self.give_up(now, key, FlowCode::TooOld);
            if let Some(on) = on {
                self.connections.want_transmit(on.connection);
            }
        }
    }
}
