//! The network path of a measurement's packets.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// A sender's view of the path.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Path {
    /// Smoothed round-trip time in microseconds.
    pub rtt_us: Option<u64>,
    /// Packets declared lost (QUIC), retransmitted (TCP), or missing and unanswered (UDP).
    pub lost_packets: u64,
    /// Number of packets sent.
    pub sent_packets: u64,
    /// Longest packet in bytes, IP header included.
    pub mtu: u32,
    /// Mean number of datagrams per send call.
    pub gso_segments_per_send: Option<f64>,
}

impl Path {
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.lost_packets += other.lost_packets;
        self.sent_packets += other.sent_packets;
        self
    }
}

/// Returns the bytes of the IP and UDP headers of a datagram to `remote`.
pub(crate) fn headers(remote: SocketAddr) -> u32 {
    if remote.is_ipv4() { 28 } else { 48 }
}

#[expect(clippy::cast_precision_loss, reason = "a ratio")]
pub(crate) fn ratio(a: u64, b: u64) -> Option<f64> {
    (b > 0).then(|| a as f64 / b as f64)
}
