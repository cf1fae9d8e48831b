//! What headers leave of a packet: why a tunnel that fills a link as TCP does carries a little less than TCP.
//!
//! Counted is what the formats take at their longest, so that nothing of it depends on what was measured. Whatever
//! else a tunnel loses, to acknowledgements, probes or pauses, is no header and not allowed for.

/// IP headers without options.
const IPV4: u32 = 20;
const IPV6: u32 = 40;

/// TCP's, with the time stamps that Linux sends in every segment (RFC 7323).
const TCP: u32 = 20 + 12;

const UDP: u32 = 8;

/// QUIC's short header: flags, the engine's connection id, a packet number (RFC 9000, 17.3.1).
const SHORT_HEADER: u32 = 1 + 8 + 4;

/// What authenticates a packet (RFC 9001, 5.3).
const TAG: u32 = 16;

/// A STREAM frame's type, stream, offset, and a length of less than 16384 (RFC 9000, 19.8).
const STREAM_FRAME: u32 = 1 + 8 + 8 + 2;

/// Payload in a full packet of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Bytes of a stream in one packet of the tunnel.
    pub(crate) quic: u32,
    /// Bytes of a stream in one packet of TCP.
    pub(crate) tcp: u32,
}

impl Room {
    /// In packets of at most `mtu` bytes, IP header included.
    pub(crate) fn new(mtu: u32, ipv6: bool) -> Self {
        let left = mtu.saturating_sub(if ipv6 { IPV6 } else { IPV4 });
        Self {
            quic: left.saturating_sub(UDP + SHORT_HEADER + TAG + STREAM_FRAME),
            tcp: left.saturating_sub(TCP),
        }
    }

    /// What the tunnel carries where TCP carries one, if both fill the same link.
    pub(crate) fn ratio(self) -> f64 {
        f64::from(self.quic) / f64::from(self.tcp.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_in_a_packet_is_what_its_headers_leave() {
        let ethernet = Room::new(1500, false);
        assert_eq!((ethernet.quic, ethernet.tcp), (1424, 1448));
        let ipv6 = Room::new(1500, true);
        assert_eq!((ipv6.quic, ipv6.tcp), (1404, 1428));
        assert!((0.983..0.984).contains(&ethernet.ratio()));
        assert!(Room::new(9000, false).ratio() > 0.996);
    }
}
