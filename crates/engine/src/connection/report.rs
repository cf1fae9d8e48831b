//! The state of a connection, for reports.

use super::Connection;
use crate::report::{BondId, ConnectionReport, Totals};

impl Connection {
    /// Returns the state of the connection. `bond` is the short id of its bond.
    pub(crate) fn report(&self, bond: Option<BondId>) -> ConnectionReport {
        let (path, counters) = (self.carrier.path(), self.carrier.counters());
        ConnectionReport {
            id: self.id,
            remote: self.remote,
            carrier: self.carrier.kind(),
            protocol: self.protocol,
            peer: self.peer.as_ref().map(|(name, _)| name.clone()),
            bond,
            admitted: self.is_admitted(),
            opened: self.opened,
            flows: self.streams.len(),
            rtt: path.rtt,
            congestion_window: counters.congestion_window,
            in_flight: self.carrier.in_flight(),
            controller: self.carrier.controller(),
            limit: self.carrier.limit(),
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a rate"
            )]
            pacing_bytes_per_s: counters.pacing_rate.map(|rate| rate as u64),
            mtu: counters.mtu,
            packets_sent: counters.packets_sent,
            packets_lost: counters.packets_lost,
            congestion_events: counters.congestion_events,
            bytes_sent: counters.bytes_sent,
            bytes_received: counters.bytes_received,
            batches_sent: counters.batches,
            datagrams_sent: counters.datagrams,
            datagrams_repeated: counters.repeated,
            datagrams_received: self.carrier.arrivals(),
            receive_window: self.credit.window(),
            unresponsive: self.is_unresponsive(),
            migrations: self.migrations,
        }
    }

    /// Adds the packet counts of this connection to `totals`.
    pub(crate) fn count_packets(&self, totals: &mut Totals) {
        let counters = self.carrier.counters();
        totals.packets_sent += counters.packets_sent;
        totals.packets_lost += counters.packets_lost;
    }
}
