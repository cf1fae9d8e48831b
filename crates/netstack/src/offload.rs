//! Frames: an IP packet behind a ten-byte header that describes the work still to be done on it.
//!
//! The header is `struct virtio_net_hdr` in the machine's byte order, as a TUN device with `IFF_VNET_HDR` reads and
//! writes it. If it is all zero, there is nothing to be done.

use crate::config::MAX_PACKET;
use crate::counters::PacketRefusal;

/// Length of the header in front of a packet, in bytes.
pub const HEADER: usize = 10;

/// Length of the longest frame, in bytes.
pub const FRAME_MAX: usize = HEADER + MAX_PACKET;

/// The work to be done on a packet before it is sent on a wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// The state of the TCP checksum.
    pub checksum: Checksum,
    /// If set, the payload must be split into segments of this size.
    pub segment: Option<Segmentation>,
}

/// The state of a packet's TCP checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// The checksum is complete, and has not been verified.
    #[default]
    Complete,
    /// The checksum is complete, and the device has verified it.
    Verified,
    /// The checksum covers only the pseudo-header. Sum the rest from `start` on, and write the result `offset` bytes
    /// after that.
    Partial {
        /// Offset of the TCP header in the packet.
        start: u16,
        /// Offset of the checksum in the TCP header.
        offset: u16,
    },
}

/// The parameters for splitting a super-packet into segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segmentation {
    /// True if the packet is TCP over IPv6 rather than IPv4.
    pub v6: bool,
    /// Bytes of payload in each segment except the last.
    pub size: u16,
    /// Bytes of headers that each segment repeats.
    pub headers: u16,
}

impl Offload {
    pub(crate) fn split(frame: &mut [u8]) -> Result<(Self, &mut [u8]), PacketRefusal> {
        let (header, packet) = frame
            .split_first_chunk_mut::<HEADER>()
            .ok_or(PacketRefusal::Malformed)?;
        let [flags, kind, h0, h1, g0, g1, s0, s1, o0, o1] = *header;
        let word = |a, b| u16::from_ne_bytes([a, b]);
        let segment = match kind & !GSO_ECN {
            GSO_NONE => None,
            GSO_TCPV4 | GSO_TCPV6 => Some(Segmentation {
                v6: kind & !GSO_ECN == GSO_TCPV6,
                size: word(g0, g1),
                headers: word(h0, h1),
            }),
            _ => return Err(PacketRefusal::NotTcp),
        };
        let checksum = if flags & NEEDS_CSUM != 0 {
            Checksum::Partial {
                start: word(s0, s1),
                offset: word(o0, o1),
            }
        } else if flags & DATA_VALID != 0 {
            Checksum::Verified
        } else {
            Checksum::Complete
        };
        Ok((Self { checksum, segment }, packet))
    }

    /// Reads the header of a frame. Returns `None` if it is too short or invalid.
    pub fn read(frame: &[u8]) -> Option<Self> {
        let mut header: [u8; HEADER] = *frame.first_chunk()?;
        Self::split(&mut header).ok().map(|(offload, _)| offload)
    }

    /// Encodes the ten bytes of the header.
    pub fn to_bytes(self) -> [u8; HEADER] {
        let (flags, start, offset) = match self.checksum {
            Checksum::Complete => (0, 0, 0),
            Checksum::Verified => (DATA_VALID, 0, 0),
            Checksum::Partial { start, offset } => (NEEDS_CSUM, start, offset),
        };
        let (kind, headers, size) = match self.segment {
            None => (GSO_NONE, 0, 0),
            Some(cut) if cut.v6 => (GSO_TCPV6, cut.headers, cut.size),
            Some(cut) => (GSO_TCPV4, cut.headers, cut.size),
        };
        let [h0, h1] = headers.to_ne_bytes();
        let [g0, g1] = size.to_ne_bytes();
        let [s0, s1] = start.to_ne_bytes();
        let [o0, o1] = offset.to_ne_bytes();
        [flags, kind, h0, h1, g0, g1, s0, s1, o0, o1]
    }
}

// include/uapi/linux/virtio_net.h
const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_ECN: u8 = 0x80;
