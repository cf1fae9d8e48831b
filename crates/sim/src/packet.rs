//! The packets that links carry.

use std::fmt;
use std::net::{SocketAddr, SocketAddrV4};

use bytes::{Bytes, BytesMut};

use crate::tcp::TcpSegment;

/// Total length of the IPv4 and UDP headers, bytes.
pub(crate) const UDP_HEADERS: usize = 20 + 8;

/// Total length of the IPv4 and TCP headers, bytes, including the timestamp option that Linux sends.
pub(crate) const TCP_HEADERS: usize = 20 + 20 + 12;

/// The ECN codepoint CE, congestion experienced (RFC 3168 section 5).
pub(crate) const CE: u8 = 0b11;

#[derive(Clone, Debug)]
pub(crate) struct IpPacket {
    pub(crate) from: SocketAddrV4,
    pub(crate) to: SocketAddrV4,
    pub(crate) ecn: u8,
    pub(crate) body: PacketBody,
}

/// The payload of a packet. Only those of tunnels have real bytes; the other kinds are lengths only.
#[derive(Clone, Debug)]
pub(crate) enum PacketBody {
    Udp(BytesMut),
    Tcp(TcpSegment),
    /// A segment of a carrier's connection, with its content.
    Stream {
        segment: TcpSegment,
        bytes: Bytes,
    },
    /// A UDP datagram of `length` arbitrary bytes for sink number `sink` of a host.
    Filler {
        sink: u32,
        length: usize,
    },
}

/// A packet that leaves a host.
#[derive(Debug)]
pub struct OutgoingPacket {
    pub(crate) to: SocketAddr,
    pub(crate) ecn: u8,
    pub(crate) body: PacketBody,
}

impl PacketBody {
    /// Returns the length of an IP packet with this body.
    pub(crate) fn length(&self) -> usize {
        match self {
            Self::Udp(bytes) => bytes.len() + UDP_HEADERS,
            Self::Tcp(segment) | Self::Stream { segment, .. } => {
                TCP_HEADERS + segment.sack_length() + segment.payload()
            }
            Self::Filler { length, .. } => length + UDP_HEADERS,
        }
    }

    pub(crate) fn payload(&self) -> usize {
        match self {
            Self::Udp(bytes) => bytes.len(),
            Self::Tcp(segment) | Self::Stream { segment, .. } => segment.payload(),
            Self::Filler { length, .. } => *length,
        }
    }
}

/// Formats the body as transcripts show it.
impl fmt::Display for PacketBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(_) | Self::Filler { .. } => write!(f, "{} B", self.payload()),
            Self::Tcp(segment) | Self::Stream { segment, .. } => segment.fmt(f),
        }
    }
}

impl OutgoingPacket {
    /// Creates a UDP datagram. Without `ecn` it is not ECN-capable.
    pub fn udp(to: SocketAddr, ecn: Option<u8>, bytes: BytesMut) -> Self {
        Self {
            to,
            ecn: ecn.unwrap_or(0),
            body: PacketBody::Udp(bytes),
        }
    }
}
