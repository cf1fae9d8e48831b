//! Received TCP segments, parsed once. No other module inspects raw headers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

use crate::checksum;
use crate::config::MAX_PACKET;
use crate::counters::PacketRefusal;

/// The headers of a packet that carries TCP, with the positions of its parts.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    /// Offset of the TCP header.
    pub(crate) tcp: usize,
    pub(crate) payload: Range<usize>,
    pub(crate) seq: u32,
    /// Acknowledgement number, valid only if [`ACK`] is set.
    pub(crate) ack: u32,
    pub(crate) flags: u8,
    pub(crate) window: u16,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SynOptions {
    pub(crate) mss: Option<u16>,
    pub(crate) window_scale: Option<u8>,
    pub(crate) sack_permitted: bool,
}

pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const ACK: u8 = 0x10;

impl Segment {
    /// Parses the headers of an IP packet. The packet's own length field is authoritative; further bytes are padding.
    pub(crate) fn parse(packet: &[u8]) -> Result<Self, PacketRefusal> {
        if packet.len() > MAX_PACKET {
            return Err(PacketRefusal::Oversized);
        }
        let IpPayload {
            from,
            to,
            place: ip,
            fragment,
        } = ip_payload(TCP, packet)?;
        if fragment.is_some() {
            return Err(PacketRefusal::Fragment);
        }
        let tcp = packet.get(ip.clone()).ok_or(PacketRefusal::Malformed)?;
        let header: &[u8; 20] = tcp.first_chunk().ok_or(PacketRefusal::Malformed)?;
        let length = usize::from(header[12] >> 4) * 4;
        if length < 20 || length > tcp.len() {
            return Err(PacketRefusal::Malformed);
        }
        let segment = Self {
            from: SocketAddr::new(from, u16::from_be_bytes([header[0], header[1]])),
            to: SocketAddr::new(to, u16::from_be_bytes([header[2], header[3]])),
            tcp: ip.start,
            payload: ip.start + length..ip.end,
            seq: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
            ack: u32::from_be_bytes([header[8], header[9], header[10], header[11]]),
            flags: header[13],
            window: u16::from_be_bytes([header[14], header[15]]),
        };
        check_addresses(segment.from, segment.to)?;
        Ok(segment)
    }

    /// Returns whether all of `flags` are set.
    pub(crate) fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// Returns the segment's length in sequence space.
    pub(crate) fn sequence_length(&self) -> u32 {
        // The payload of an IP packet has a 16-bit length.
        let payload = u32::try_from(self.payload.len()).unwrap_or(u32::MAX);
        payload + u32::from(self.has(SYN)) + u32::from(self.has(FIN))
    }

    pub(crate) fn checksum_holds(&self, packet: &[u8]) -> bool {
        let tcp = &packet[self.tcp..self.payload.end];
        checksum::fold(
            checksum::pseudo(TCP, self.from.ip(), self.to.ip(), tcp.len()) + checksum::sum(tcp),
        ) == 0xffff
    }

    /// Returns the options of a SYN. Unknown and malformed options are ignored.
    pub(crate) fn syn_options(&self, packet: &[u8]) -> SynOptions {
        let mut found = SynOptions::default();
        let mut rest = &packet[self.tcp + 20..self.payload.start];
        while let [kind, tail @ ..] = rest {
            rest = match (kind, tail) {
                (0, _) => break,
                (1, tail) => tail,
                (kind, [length, ..]) if (2..=rest.len()).contains(&usize::from(*length)) => {
                    let (option, after) = rest.split_at(usize::from(*length));
                    match (kind, &option[2..]) {
                        (2, &[a, b]) => found.mss = Some(u16::from_be_bytes([a, b])),
                        // RFC 7323 section 2.3: a shift of more than 14 counts as 14.
                        (3, &[shift]) => found.window_scale = Some(shift.min(14)),
                        (4, []) => found.sack_permitted = true,
                        _ => {}
                    }
                    after
                }
                _ => break,
            };
        }
        found
    }
}

pub(crate) fn check_addresses(from: SocketAddr, to: SocketAddr) -> Result<(), PacketRefusal> {
    if from.port() == 0 || to.port() == 0 || from == to {
        return Err(PacketRefusal::Spoofed);
    }
    if is_host_address(from.ip()) && is_host_address(to.ip()) {
        Ok(())
    } else {
        Err(PacketRefusal::Spoofed)
    }
}

fn is_host_address(address: IpAddr) -> bool {
    let wrong = match address {
        IpAddr::V4(v4) => v4.is_broadcast() || v4.octets()[0] == 0,
        // A mapped address would be a second name for an IPv4 flow.
        IpAddr::V6(v6) => v6.to_ipv4_mapped().is_some(),
    };
    !wrong && !address.is_unspecified() && !address.is_multicast() && !address.is_loopback()
}

/// The payload of an IP packet.
#[derive(Clone, Debug)]
pub(crate) struct IpPayload {
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
    /// The payload's place in the packet.
    pub(crate) place: Range<usize>,
    /// Set if the payload is a part of a longer one.
    pub(crate) fragment: Option<IpFragment>,
}

/// The place of a fragment in the payload that was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IpFragment {
    pub(crate) id: u32,
    /// Number of the payload's bytes before the fragment.
    pub(crate) offset: usize,
    /// True if the payload goes on after the fragment.
    pub(crate) more: bool,
}

/// Returns the payload of a packet of this protocol.
pub(crate) fn ip_payload(protocol: u8, packet: &[u8]) -> Result<IpPayload, PacketRefusal> {
    match packet.first().map(|byte| byte >> 4) {
        Some(4) => ipv4(protocol, packet),
        Some(6) => ipv6(protocol, packet),
        _ => Err(PacketRefusal::Malformed),
    }
}

fn ipv4(protocol: u8, packet: &[u8]) -> Result<IpPayload, PacketRefusal> {
    let header: &[u8; 20] = packet.first_chunk().ok_or(PacketRefusal::Malformed)?;
    let length = usize::from(header[0] & 0xf) * 4;
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if length < 20 || total < length || total > packet.len() {
        return Err(PacketRefusal::Malformed);
    }
    if checksum::fold(checksum::sum(&packet[..length])) != 0xffff {
        return Err(PacketRefusal::Checksum);
    }
    let place = u16::from_be_bytes([header[6], header[7]]);
    // The packet has more fragments, or is not the first.
    let fragment = (place & 0x3fff != 0).then(|| IpFragment {
        id: u16::from_be_bytes([header[4], header[5]]).into(),
        offset: usize::from(place & 0x1fff) * 8,
        more: place & 0x2000 != 0,
    });
    if header[9] != protocol {
        return Err(PacketRefusal::NotTcp);
    }
    let address = |at: usize| {
        IpAddr::V4(Ipv4Addr::new(
            header[at],
            header[at + 1],
            header[at + 2],
            header[at + 3],
        ))
    };
    Ok(IpPayload {
        from: address(12),
        to: address(16),
        place: length..total,
        fragment,
    })
}

fn ipv6(protocol: u8, packet: &[u8]) -> Result<IpPayload, PacketRefusal> {
    let header: &[u8; 40] = packet.first_chunk().ok_or(PacketRefusal::Malformed)?;
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    if length == 0 || 40 + length > packet.len() {
        return Err(PacketRefusal::Malformed);
    }
    let (next, start, fragment) = match header[6] {
        FRAGMENT => {
            let header = packet[40..40 + length].first_chunk();
            let &[next, _, p0, p1, i0, i1, i2, i3] = header.ok_or(PacketRefusal::Malformed)?;
            let place = u16::from_be_bytes([p0, p1]);
            let fragment = IpFragment {
                id: u32::from_be_bytes([i0, i1, i2, i3]),
                offset: usize::from(place & !7),
                more: place & 1 != 0,
            };
            (next, 48, Some(fragment))
        }
        next => (next, 40, None),
    };
    if next != protocol {
        return Err(PacketRefusal::NotTcp);
    }
    let address = |at: usize| {
        let octets: [u8; 16] = std::array::from_fn(|i| header[at + i]);
        IpAddr::V6(Ipv6Addr::from(octets))
    };
    Ok(IpPayload {
        from: address(8),
        to: address(24),
        place: start..40 + length,
        fragment,
    })
}

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const FRAGMENT: u8 = 44;

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7323 section 2.3: larger shifts count as 14.
    #[test]
    fn a_window_is_scaled_by_14_bits_at_most() {
        let scale = |shift: u8| {
            let mut packet = vec![0; 28];
            packet[20..].copy_from_slice(&[1, 3, 3, shift, 4, 2, 0, 0]);
            let segment = Segment {
                from: SocketAddr::from(([10, 0, 0, 1], 1)),
                to: SocketAddr::from(([10, 0, 0, 2], 2)),
                tcp: 0,
                payload: 28..28,
                seq: 0,
                ack: 0,
                flags: SYN,
                window: 0,
            };
            segment.syn_options(&packet).window_scale
        };
        assert_eq!(scale(7), Some(7));
        assert_eq!(scale(14), Some(14));
        assert_eq!(scale(255), Some(14));
    }
}
