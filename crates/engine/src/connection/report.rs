//! A connection as it is now, for reports and leak checks.

use quinn_proto::Dir;

use super::Connection;
use crate::report::ConnectionReport;
use crate::residue::Residue;

impl Connection {
    pub(crate) fn report(&self) -> ConnectionReport {
        let stats = self.quic.stats();
        let (gauge, sent) = (self.sending.gauge(), self.sending.sent());
        let rate = gauge.limits().rate;
        ConnectionReport {
            id: self.id,
            remote: self.quic.remote_address(),
            protocol: self.protocol,
            peer: self.peer.clone(),
            admitted: self.is_admitted(),
            opened: self.opened,
            flows: self.streams.len(),
            rtt: self.quic.rtt(),
            congestion_window: gauge.window(),
            in_flight: gauge.in_flight(),
            controller: gauge.view(),
            limit: self.sending.limit(),
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
            batches_sent: sent.batches,
            datagrams_sent: sent.datagrams,
            datagrams_repeated: sent.repeated,
            datagrams_received: self.datagrams_received,
            receive_window: self.credit.window(),
            unresponsive: self.is_unresponsive(),
            migrations: self.migrations,
        }
    }

    /// Adds what is left of flows to `residue`.
    pub(crate) fn add_residue(&mut self, residue: &mut Residue) {
        let holding = self.credit.holding();
        residue.streams += self.streams.len();
        residue.parked += holding.parked;
        residue.received += holding.held;
        residue.queued += self.streams.queued();
        if !self.quic.is_closed() {
            let control = self.control.streams();
            let server = self.quic.side().is_server();
            let streams = self.quic.streams();
            residue.unacknowledged += streams.send_streams().saturating_sub(control);
            let open = streams.remote_open_streams(Dir::Bi);
            let open = usize::try_from(open).unwrap_or(usize::MAX);
            residue.peer_streams += open.saturating_sub(if server { control } else { 0 });
            residue.unconfirmed += self.control.unconfirmed();
        }
    }
}
