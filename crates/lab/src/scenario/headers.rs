//! The payload that headers leave in a packet. QUIC's headers are longer than TCP's, so a tunnel that fills a link
//! carries slightly less than TCP does.
//!
//! The calculation uses the maximum length of each header field, so it does not depend on measurements. It covers no
//! other loss of a tunnel, such as acknowledgements, probes or pauses.

/// IP header lengths without options, in bytes.
const IPV4: u32 = 20;
const IPV6: u32 = 40;

/// Length of a TCP header with the timestamps that Linux sends in every segment (RFC 7323).
const TCP: u32 = 20 + 12;

const UDP: u32 = 8;

/// Length of a QUIC short header: flags, the engine's connection id, and a packet number (RFC 9000, 17.3.1).
const SHORT_HEADER: u32 = 1 + 8 + 4;

/// Length of the AEAD tag of a packet (RFC 9001, 5.3).
const TAG: u32 = 16;

/// Length of a STREAM frame's header: type, stream id, offset, and a length below 16384 (RFC 9000, 19.8).
const STREAM_FRAME: u32 = 1 + 8 + 8 + 2;

/// Stream payload of a full packet, for each protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PayloadRoom {
    /// Bytes of stream data in one packet of the tunnel.
    pub(crate) quic: u32,
    /// Bytes of stream data in one TCP segment.
    pub(crate) tcp: u32,
}

impl PayloadRoom {
    /// Computes the payload of packets of at most `mtu` bytes, including the IP header.
    pub(crate) fn new(mtu: u32, ipv6: bool) -> Self {
        let left = mtu.saturating_sub(if ipv6 { IPV6 } else { IPV4 });
        Self {
            quic: left.saturating_sub(UDP + SHORT_HEADER + TAG + STREAM_FRAME),
            tcp: left.saturating_sub(TCP),
        }
    }

    /// Returns the tunnel's throughput as a share of TCP's, if both fill the same link.
    pub(crate) fn ratio(self) -> f64 {
        f64::from(self.quic) / f64::from(self.tcp.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_payload_of_a_packet_is_its_length_without_headers() {
        let ethernet = PayloadRoom::new(1500, false);
        assert_eq!((ethernet.quic, ethernet.tcp), (1424, 1448));
        let ipv6 = PayloadRoom::new(1500, true);
        assert_eq!((ipv6.quic, ipv6.tcp), (1404, 1428));
        assert!((0.983..0.984).contains(&ethernet.ratio()));
        assert!(PayloadRoom::new(9000, false).ratio() > 0.996);
    }
}
