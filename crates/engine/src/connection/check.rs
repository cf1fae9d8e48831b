//! Test access to what a connection holds, and a way to break it: see `crate::engine::check`.

use std::time::Instant;

use bytes::Bytes;
use quictun_wire::code::CloseCode;

use super::Connection;
use crate::engine::check::FlowResources;
use crate::grants::{CONNECTION_COST, ENDED_COST};

impl Connection {
    /// Closes the connection as by an internal error. The library offers no such call, and a close by the application
    /// comes closest.
    pub(crate) fn break_off(&mut self, now: Instant) {
        self.close(now, CloseCode::Done, Bytes::new());
    }

    pub(crate) fn charged(&self) -> u64 {
        self.charged
    }

    /// Returns the memory of the connection without its flows, as far as it can be counted, in bytes.
    pub(crate) fn held_for_itself(&mut self) -> u64 {
        let ended = self.ended_streams() * ENDED_COST;
        CONNECTION_COST + self.control.received() + self.control.kept() + ended
    }

    /// Adds the remains of flows to `flow_resources`.
    pub(crate) fn add_resources(&mut self, flow_resources: &mut FlowResources) {
        let holding = self.credit.holding;
        flow_resources.streams += self.streams.len();
        flow_resources.parked += holding.parked;
        flow_resources.received += holding.held;
        flow_resources.queued += self.streams.outbound.len() + self.streams.inbound.len();
        flow_resources.queued += self.streams.datagrams.len();
        if !self.is_closed() {
            let control = self.control.streams();
            let server = self.is_server();
            flow_resources.unacknowledged += self.unsettled_streams();
            let open = self.carrier.peer_streams();
            let open = usize::try_from(open).unwrap_or(usize::MAX);
            flow_resources.peer_streams += open.saturating_sub(if server { control } else { 0 });
            flow_resources.unconfirmed += self.control.unconfirmed();
        }
    }
}
