//! The state of a connection, for reports.

use super::Connection;
use crate::report::{BondId, ConnectionReport, Totals};

impl Connection {
    /// Returns the state of the connection. `bond` is the short id of its bond.
    pub(crate) fn report(&self, bond: Option<BondId>) -> ConnectionReport {
        let stats = self.quic.stats();
        let (gauge, counters) = (&self.sending.gauge, self.sending.counters);
        let rate = gauge.limits().rate;
        ConnectionReport {
            id: self.id,
            remote: self.remote,
            protocol: self.protocol,
            peer: self.peer.as_ref().map(|(name, _)| name.clone()),
            bond,
            admitted: self.is_admitted(),
            opened: self.opened,
            flows: self.streams.len(),
            rtt: self.quic.rtt(),
            congestion_window: gauge.window(),
            in_flight: gauge.in_flight(),
            controller: gauge.view(),
            limit: self.sending.limit,
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a rate"
            )]
            pacing_bytes_per_s: rate.map(|rate| rate as u64),
            mtu: self.quic.current_mtu(),
            packets_sent: stats.path.sent_packets,
            packets_lost: stats.path.lost_packets,
            congestion_events: gauge.events(),
            bytes_sent: stats.udp_tx.bytes,
            bytes_received: stats.udp_rx.bytes,
            batches_sent: counters.batches,
            datagrams_sent: counters.datagrams,
            datagrams_repeated: counters.repeated,
            datagrams_received: self.datagrams_received,
            receive_window: self.credit.window(),
            unresponsive: self.is_unresponsive(),
            migrations: self.migrations,
        }
    }

    /// Adds the packet counts of this connection to `totals`.
    pub(crate) fn count_packets(&self, totals: &mut Totals) {
        let path = self.quic.stats().path;
        totals.packets_sent += path.sent_packets;
        totals.packets_lost += path.lost_packets;
    }
}
