//! Memory accounting of a connection: its own state, and the maximum that its peer can make this side hold.
//!
//! [`InitialGrants::committed_memory`] is charged when a connection begins, and [`Connection::update_memory_charge`]
//! adjusts the charge from then on. Further streams are charged when they are permitted.

use std::time::Instant;

use quictun_flow::{Lease, window};
use quinn_proto::{Dir, VarInt};

use super::Connection;
use crate::grants::{CONNECTION_COST, ENDED_COST, FLOW_COST, InitialGrants, STREAM_COST};

/// Memory of a client's certificates as a multiple of their bytes: the TLS library keeps them and the buffer in which
/// they arrived.
const CERTIFICATES_PART: u64 = 2;

impl Connection {
    /// Gives the peer the initial limits of an admitted peer.
    pub(crate) fn grant_first(&mut self, first: InitialGrants) {
        self.streams.restart(first.flows);
        self.credit.restart(first);
        self.announce(0);
        let limit = VarInt::from_u32(first.flows);
        self.quic.set_max_concurrent_streams(Dir::Bi, limit);
    }

    /// Raises the limit of the peer's open flows to at least `flows`.
    pub(crate) fn grant_flows(&mut self, flows: u32) {
        if self.streams.limit < flows {
            self.streams.limit = flows;
            let limit = VarInt::from_u32(flows);
            self.quic.set_max_concurrent_streams(Dir::Bi, limit);
        }
    }

    pub(crate) fn announce(&mut self, floor: u64) {
        self.credit.announce(floor, &mut self.quic);
    }

    /// Adapts the windows of both directions to the path.
    pub(super) fn update_windows(&mut self, now: Instant, lease: &Lease) {
        let free = lease.free_for_newcomers() + self.credit.committed_memory();
        let shaped = self.shaping.window(self.quic.rtt());
        self.credit.set_shaped(shaped.is_some());
        let room = shaped.map_or(free, |window| free.min(window::room_for(window)));
        self.credit.update(now, room, lease, &mut self.quic);
        let kept = window::send_window(self.sending.gauge.window(), free / 2);
        self.quic.set_send_window(kept);
    }

    pub(crate) fn update_memory_charge(&mut self, lease: &mut Lease) {
        let committed = self.committed_memory();
        lease.adjust(&mut self.charged, committed);
    }

    pub(crate) fn release(&mut self, lease: &mut Lease) {
        lease.adjust(&mut self.charged, 0);
    }

    /// Returns the memory that the peer can make this side hold, in bytes. After the connection is lost, only the
    /// library's state is left.
    fn committed_memory(&mut self) -> u64 {
        let own = CONNECTION_COST + CERTIFICATES_PART * u64::from(self.admission.certificates);
        if self.lost {
            return own;
        }
        // One flow can be served, and one refused, however little memory there is: see `Traffic::admit_arrivals`.
        let more = u64::from(self.streams.more_than_first());
        let ended = self.ended_streams().max(more).max(1);
        let first = self.quic.side().is_server() && self.streams.is_empty();
        let streams = u64::from(self.streams.limit) * STREAM_COST
            + ended * ENDED_COST
            + u64::from(first) * FLOW_COST;
        let parked = self.credit.holding.parked as u64;
        own + streams + self.credit.committed_memory() + parked + self.control.kept()
    }
}
