//! Memory accounting of a connection: its own state, and the maximum that its peer can make this side hold.
//!
//! [`InitialGrants::committed_memory`] is charged when a connection begins, and [`Connection::update_memory_charge`]
//! adjusts the charge from then on. Further streams are charged when they are permitted.

use std::time::Instant;

use quictun_flow::{Lease, window};

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
        self.carrier.grant_streams(first.flows);
    }

    /// Raises the limit of the peer's open flows to at least `flows`.
    pub(crate) fn grant_flows(&mut self, flows: u32) {
        if self.streams.limit < flows {
            self.streams.limit = flows;
            self.carrier.grant_streams(flows);
        }
    }

    /// Gives the peer the credit that its flows leave it.
    pub(crate) fn announce(&mut self, floor: u64) {
        self.carrier.grant(self.credit.offer(floor));
    }

    /// Returns the memory that the peer can make this side hold with its credit, in bytes.
    pub(crate) fn committed_to_credit(&self) -> u64 {
        self.credit.committed_memory(self.carrier.granted())
    }

    /// Adapts the windows of both directions to the path.
    pub(super) fn update_windows(&mut self, now: Instant, lease: &Lease) {
        let path = self.carrier.path();
        let free = lease.free_for_newcomers() + self.committed_to_credit();
        let shaped = self.shaping.window(path.rtt);
        self.credit.set_shaped(shaped.is_some());
        let room = shaped.map_or(free, |window| free.min(window::room_for(window)));
        let measured = self.credit.update(now, path.min_rtt, room, lease);
        if measured && lease.is_plenty() {
            self.carrier.forgive();
        }
        let offer = self.credit.offer(lease.floor());
        self.carrier.grant(offer);
        self.carrier.answer_blocked(offer);
        self.carrier
            .set_kept(window::send_window(path.window, free / 2));
    }

    pub(crate) fn update_memory_charge(&mut self, lease: &mut Lease) {
        let committed = self.committed_memory();
        lease.adjust(&mut self.charged, committed);
    }

    pub(crate) fn release(&mut self, lease: &mut Lease) {
        lease.adjust(&mut self.charged, 0);
    }

    /// Returns the memory that the peer can make this side hold, in bytes. After the connection is lost, only the
    /// carrier's state is left.
    fn committed_memory(&mut self) -> u64 {
        let own = CONNECTION_COST
            + CERTIFICATES_PART * u64::from(self.admission.certificates)
            + self.carrier.held();
        if self.lost {
            return own;
        }
        // One flow can be served, and one refused, however little memory there is: see `Traffic::admit_arrivals`.
        let more = u64::from(self.streams.more_than_first());
        let ended = self.ended_streams().max(more).max(1);
        let first = self.is_server() && self.streams.is_empty();
        let streams = u64::from(self.streams.limit) * STREAM_COST
            + ended * ENDED_COST
            + u64::from(first) * FLOW_COST;
        let parked = self.credit.holding.parked as u64;
        own + streams + self.committed_to_credit() + parked + self.control.kept()
    }
}
