//! A frame, and the packets on the wire that it stands for.

use bytes::Bytes;
use quictun_sys::VnetHeader;

#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) header: VnetHeader,
    pub(crate) bytes: Bytes,
    pub(crate) shape: FrameLayout,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameLayout {
    /// Offset of the network header.
    pub(crate) network: usize,
    pub(crate) protocol: Protocol,
    /// True if the network header is ECN-capable, so that the packet may be marked.
    pub(crate) ecn_capable: bool,
    pub(crate) cut: Option<Segmentation>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Ipv4,
    Ipv6,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segmentation {
    /// Offset of the transport header.
    pub(crate) transport: usize,
    pub(crate) is_tcp: bool,
    /// Offset of the payload.
    pub(crate) payload: usize,
    /// Payload of each segment except the last, in bytes; not 0.
    pub(crate) size: usize,
    pub(crate) count: usize,
    /// Bytes after the IPv6 header that only a super-packet has: the jumbo payload option.
    pub(crate) jumbo: usize,
}

/// The error for a super-packet that cannot be cut: its headers contradict each other or are of an unknown kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

impl Frame {
    pub(crate) fn new(header: VnetHeader, bytes: Bytes) -> Result<Self, Malformed> {
        let shape = FrameLayout::of(header, &bytes)?;
        Ok(Self {
            header,
            bytes,
            shape,
        })
    }

    pub(crate) fn segments(&self) -> usize {
        self.shape.cut.map_or(1, |cut| cut.count)
    }

    /// Returns the maximum number of segments in a frame of at most [`PACKET_MAX`] bytes.
    pub(crate) fn segments_max(&self) -> usize {
        self.shape.cut.map_or(1, |cut| {
            let headers = cut.payload - cut.jumbo - self.shape.network;
            (PACKET_MAX - headers) / cut.size
        })
    }

    /// Returns whether the frame is longer than the IP length field allows (BIG TCP). Not every device accepts such a
    /// frame.
    pub(crate) fn is_big(&self) -> bool {
        let jumbo = self.shape.cut.is_some_and(|cut| cut.jumbo > 0);
        jumbo || self.bytes.len() - self.shape.network > PACKET_MAX
    }

    /// Returns the length of packet `index`, from the network header on.
    pub(crate) fn wire_length(&self, index: usize) -> usize {
        let Some(cut) = self.shape.cut else {
            return self.bytes.len() - self.shape.network;
        };
        let payload = self.bytes.len() - cut.payload;
        let before = cut.size * index;
        let headers = cut.payload - cut.jumbo - self.shape.network;
        headers + cut.size.min(payload - before.min(payload))
    }
}

impl FrameLayout {
    /// Determines the shape of a frame. Only super-packets can be malformed; any other frame has a shape.
    pub(crate) fn of(header: VnetHeader, bytes: &[u8]) -> Result<Self, Malformed> {
        let (network, protocol) = network(bytes);
        let mut shape = Self {
            network,
            protocol,
            ecn_capable: ecn(protocol, &bytes[network..]) != 0,
            cut: None,
        };
        if header.gso_type != VnetHeader::GSO_NONE {
            let cut = shape.cut(header, bytes).ok_or(Malformed)?;
            shape.cut = Some(cut);
        }
        Ok(shape)
    }

    fn cut(&self, header: VnetHeader, bytes: &[u8]) -> Option<Segmentation> {
        let is_tcp = match header.gso_type & !VnetHeader::GSO_ECN {
            VnetHeader::GSO_TCPV4 if self.protocol == Protocol::Ipv4 => true,
            VnetHeader::GSO_TCPV6 if self.protocol == Protocol::Ipv6 => true,
            VnetHeader::GSO_UDP_L4 if self.protocol != Protocol::Other => false,
            _ => return None,
        };
        let jumbo = match self.protocol {
            Protocol::Ipv6 => jumbo(&bytes[self.network..]),
            _ => 0,
        };
        let transport = if header.flags & VnetHeader::NEEDS_CSUM != 0 {
            // This field gives the end of the extension headers without walking over them.
            usize::from(header.csum_start)
        } else {
            let first = *bytes.get(self.network)?;
            match self.protocol {
                Protocol::Ipv4 => self.network + usize::from(first & 0xf) * 4,
                _ => self.network + IPV6_HEADER + jumbo,
            }
        };
        let least = match self.protocol {
            Protocol::Ipv4 => IPV4_HEADER,
            _ => IPV6_HEADER + jumbo,
        };
        let payload = if is_tcp {
            let words = usize::from(bytes.get(transport + TCP_OFFSET)? >> 4);
            transport + words.max(TCP_HEADER / 4) * 4
        } else {
            transport + UDP_HEADER
        };
        let size = usize::from(header.gso_size);
        let sensible = transport >= self.network + least && payload <= HEADERS_MAX;
        let length = bytes.len().checked_sub(payload)?;
        if !sensible || size == 0 || length == 0 {
            return None;
        }
        let count = length.div_ceil(size);
        // A single segment must fit a packet; otherwise no part of the frame could be sent.
        let fits = payload - self.network + size <= PACKET_MAX;
        (count <= SEGMENTS_MAX && fits).then_some(Segmentation {
            transport,
            is_tcp,
            payload,
            size,
            count,
            jumbo,
        })
    }
}

/// Size of the largest IP packet without a jumbo payload option.
const PACKET_MAX: usize = u16::MAX as usize;

/// Maximum length of a super-packet's headers: two VLAN tags, IPv6 with 100 bytes of options, and the longest TCP
/// header.
pub(crate) const HEADERS_MAX: usize = 256;

/// Maximum number of segments in a super-packet. A BIG TCP super-packet of 512 kB has 1000 segments of the smallest
/// size that IPv4 guarantees to carry.
const SEGMENTS_MAX: usize = 4096;

pub(crate) const IPV4_HEADER: usize = 20;
pub(crate) const IPV6_HEADER: usize = 40;
const TCP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;

/// Offset of the byte of the TCP header that holds the header's length.
const TCP_OFFSET: usize = 12;

const ETHERNET_HEADER: usize = 14;
const VLAN_TAG: usize = 4;
const TAGS_MAX: usize = 2;

fn network(bytes: &[u8]) -> (usize, Protocol) {
    let mut at = ETHERNET_HEADER;
    for _ in 0..=TAGS_MAX {
        let kind = match bytes.get(at - 2..at) {
            Some(&[a, b]) => u16::from_be_bytes([a, b]),
            _ => return (bytes.len().min(ETHERNET_HEADER), Protocol::Other),
        };
        let rest = bytes.get(at..).unwrap_or_default();
        let version = rest.first().map_or(0, |first| first >> 4);
        match (kind, version) {
            (0x0800, 4) if rest.len() >= IPV4_HEADER => return (at, Protocol::Ipv4),
            (0x86dd, 6) if rest.len() >= IPV6_HEADER => return (at, Protocol::Ipv6),
            (0x8100 | 0x88a8, _) if rest.len() >= VLAN_TAG => at += VLAN_TAG,
            _ => return (at, Protocol::Other),
        }
    }
    (at, Protocol::Other)
}

/// Returns the two ECN bits of RFC 3168.
fn ecn(protocol: Protocol, packet: &[u8]) -> u8 {
    match (protocol, packet) {
        (Protocol::Ipv4, &[_, tos, ..]) => tos & 3,
        (Protocol::Ipv6, &[_, class, ..]) => class >> 4 & 3,
        _ => 0,
    }
}

/// Returns the length of a hop-by-hop header that holds only the jumbo payload option (RFC 2675), as Linux writes it,
/// or 0.
fn jumbo(packet: &[u8]) -> usize {
    const HOP_BY_HOP: u8 = 0;
    const NEXT_HEADER: usize = 6;
    const JUMBO_OPTION: [u8; 2] = [0xc2, 4];
    let is_there = packet.get(NEXT_HEADER) == Some(&HOP_BY_HOP)
        && packet.get(IPV6_HEADER + 1..IPV6_HEADER + 4)
            == Some(&[0, JUMBO_OPTION[0], JUMBO_OPTION[1]]);
    if is_there { 8 } else { 0 }
}
