//! Accounting of the data that flows hold, and its consequences. The connection's window shrinks; flows whose
//! applications do not read are stopped by HOLD; flows that send tiny pieces to make this side hold much are ended.

use std::time::Instant;

use quictun_flow::{ConnectionKey, FlowKey, FlowPhase, Holding, LocalLimit, Socket};

use super::{Traffic, attached};
use crate::report::Protocol;

/// Limit for what a flow may hold outside the connection's window while its application does not read. The actual limit
/// is the smaller of `SHARE_MAX` and the free memory divided by `SHARE_PART`.
const SHARE_MAX: u64 = 256 * 1024;
const SHARE_PART: u64 = 1024;

/// Divisor of the free memory for what the flows of one connection may hold outside its window, behind gaps and while
/// they are on hold. Heavy loss leaves many times the data in flight behind gaps. A flow on hold holds what arrived
/// before the peer obeyed HOLD: one or two windows.
const POOL_PART: u64 = 4;

/// Bytes that a flow may receive after HOLD beyond the credit at that time, in units of [`Lease::floor`]. An honest
/// peer sends for one more round trip, or for a few if the frame is lost.
///
/// [`Lease::floor`]: quictun_flow::Lease::floor
const HOLD_SLACK: u64 = 8;

impl<S: Socket> Traffic<S> {
    pub(super) fn charge_flow(&mut self, now: Instant, key: FlowKey) {
        self.note_pinned(key);
        let free = self.memory.lease.free_for_newcomers();
        // Limit for what the flow may hold outside its connection's window while its application does not read.
        let share = SHARE_MAX.min(free / SHARE_PART);
        let share = usize::try_from(share).unwrap_or(usize::MAX);
        let pool = usize::try_from(free / POOL_PART).unwrap_or(usize::MAX);
        let floor = self.memory.lease.floor();
        let attached = attached(&mut self.flows, &mut self.connections, key);
        let Some((entry, connection, stream)) = attached else {
            return;
        };
        // A server that has not read MOVE does not know the stream, and ignores HOLD.
        let can_hold = connection.control.is_open() && !entry.is_moving();
        let received = entry.received();
        let (stream_key, backlog) = (entry.stream_key(), &mut entry.backlog);
        connection
            .carrier
            .note_taken(backlog.note_taken(received.taken));
        let mut hold_change = None;
        if can_hold {
            let rtt = connection.path().min_rtt;
            let (urgent, allowance) = (
                connection.credit.is_exhausted(),
                connection.committed_to_credit() + HOLD_SLACK * floor,
            );
            hold_change = backlog.judge(now, rtt, received, share, urgent, allowance);
        }
        let before = backlog.holding;
        let others = connection.credit.holding.parked - before.parked;
        let most = if !connection.is_admitted() {
            0
        } else if received.shaped && !received.parked {
            // A shaped flow takes credit from its client's other flows, because they wait for the same rate.
            0
        } else if !received.parked {
            pool.saturating_sub(others)
        } else if backlog.is_on_hold() || connection.speaks(Protocol::Http2) {
            share.max(pool.saturating_sub(others))
        } else {
            share
        };
        // The flow keeps its parked part until the data is consumed. Taking the part back and giving it again would
        // create credit: QUIC grants growth of a window at once, and cannot take it back.
        let mut part = received.held.min(most.max(before.parked));
        let more = part.saturating_sub(before.parked) as u64;
        if self.memory.lease.try_charge(more) {
            connection.charge(more);
        } else {
            part = before.parked;
        }
        let after = Holding {
            held: received.held,
            parked: part,
            overhead: received.overhead,
        };
        backlog.holding = after;
        connection.carrier.note_held(stream, received.held as u64);
        connection.credit.note_holding(before, after);
        connection.announce(floor);
        if let Some(hold) = hold_change {
            connection.control.hold(stream.number(), hold);
        }
        let flows = connection.streams.len();
        let tiny = backlog.is_tiny_pieces() && connection.credit.has_excess_overhead(flows);
        if tiny || (backlog.ignores_hold() && connection.credit.is_exhausted()) {
            self.cut_off(now, key);
        }
        if let (Some(_), Some(stream_key)) = (hold_change, stream_key) {
            self.connections.want_transmit(stream_key.connection);
        }
    }

    /// Charges what the peer of a connection can make this side hold, and what its flows hold beyond that. Flows that
    /// moved to the connection may have brought data.
    pub(super) fn charge_connection(&mut self, key: ConnectionKey) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.update_memory_charge(&mut self.memory.lease);
        }
    }

    /// Ends a flow whose peer makes this side hold more than its credit accounts for, in pieces that cost more than
    /// they carry.
    fn cut_off(&mut self, now: Instant, key: FlowKey) {
        let Some((entry, connection, stream)) = self.attached(key) else {
            return;
        };
        match &mut entry.phase {
            FlowPhase::Bridged { flow, .. } => {
                flow.abandon(&mut connection.stream(stream), LocalLimit::ReceivedPieces);
                self.settle_flow(now, key);
            }
            FlowPhase::Reading(_) | FlowPhase::Dialing(_) => {
                self.refuse_flow(now, key, LocalLimit::ReceivedPieces);
            }
            FlowPhase::Waiting(_) => {}
        }
    }

    /// Counts the receive batches that a flow keeps. If all flows together keep too many, copies data so that batches
    /// are released.
    pub(super) fn note_pinned(&mut self, key: FlowKey) {
        if let Some(entry) = self.flows.get_mut(key) {
            let batches = entry.inlet_mut().map_or(0, |inlet| inlet.batches());
            self.memory.note_pinned(key, entry, batches);
        }
        while let Some(key) = self.memory.first_pinned()
            && let Some(entry) = self.flows.get_mut(key)
        {
            if let Some(inlet) = entry.inlet_mut() {
                inlet.detach();
            }
            self.memory.note_pinned(key, entry, 0);
        }
    }

    /// Charges the memory of data that is kept for sending, of the role, of answers and of bonds.
    pub(crate) fn charge_kept(&mut self) {
        let others = self.endpoint.held() as u64 + self.bonds.memory();
        self.memory.charge_kept(others + self.datagram_flows.held());
    }

    /// Returns how much the next flow of a connection may read: see [`Memory::reading_room`].
    ///
    /// [`Memory::reading_room`]: super::memory::Memory::reading_room
    pub(super) fn reading_room(&mut self, key: ConnectionKey) -> Option<usize> {
        self.charge_kept();
        let connection = self.connections.get(key)?;
        self.memory.reading_room(|| connection.carrier.is_idle())
    }
}
