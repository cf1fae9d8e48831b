//! Packets as they enter links, with the headers that they would have in a real network.

use quictun_link::Fate;

use super::pcapng;
use crate::packet::{IpPacket, PacketBody, UDP_HEADERS};
use crate::tcp::{SegmentKind, TcpSegment};

/// Maximum bytes kept; later packets are not recorded.
const MAX: usize = 1 << 30;

/// First port number of TCP connections in a capture.
const TCP_PORT: u16 = 10_000;

/// Capacity for the longest headers: IPv4 without options, and TCP with all options.
const HEADERS_MAX: usize = 20 + 60;

/// The recorded packets, as pcapng blocks.
#[derive(Debug, Default)]
pub(crate) struct Capture {
    blocks: Vec<u8>,
}

impl Capture {
    /// Records a packet that enters link number `link`.
    pub(crate) fn add(&mut self, link: usize, nanos: u64, packet: &IpPacket, fate: Fate) {
        if self.blocks.len() >= MAX {
            return;
        }
        let mut headers = Vec::with_capacity(HEADERS_MAX);
        let payload: &[u8] = match &packet.body {
            PacketBody::Udp(bytes) => bytes,
            PacketBody::Stream { bytes, .. } => bytes,
            PacketBody::Tcp(_) | PacketBody::Filler { .. } => &[],
        };
        ip_header(&mut headers, packet);
        match &packet.body {
            PacketBody::Tcp(segment) | PacketBody::Stream { segment, .. } => {
                tcp_header(&mut headers, packet, segment, nanos);
            }
            body => udp_header(&mut headers, packet, body.payload()),
        }
        let comment = match fate {
            Fate::Dropped(reason) => Some(format!("dropped: {reason:?}")),
            Fate::Delivered { marked: true, .. } => Some("marked CE".to_owned()),
            Fate::Delivered { copy: Some(_), .. } => Some("arrives twice".to_owned()),
            Fate::Delivered { .. } => None,
        };
        let (parts, length) = ([&headers[..], payload], packet.body.length());
        pcapng::packet(
            &mut self.blocks,
            link,
            nanos,
            parts,
            length,
            comment.as_deref(),
        );
    }

    /// Returns the whole pcapng file.
    pub(crate) fn file(&self, interfaces: &[String], key_log: &str) -> Vec<u8> {
        let mut file = Vec::with_capacity(self.blocks.len() + key_log.len() + 1024);
        pcapng::section_header(&mut file);
        for interface in interfaces {
            pcapng::interface(&mut file, interface);
        }
        if !key_log.is_empty() {
            pcapng::secrets(&mut file, key_log);
        }
        file.extend_from_slice(&self.blocks);
        file
    }
}

fn ip_header(out: &mut Vec<u8>, packet: &IpPacket) {
    const UDP: u8 = 17;
    const TCP: u8 = 6;
    const TTL: u8 = 64;
    const DONT_FRAGMENT: u16 = 0x4000;
    let protocol = match packet.body {
        PacketBody::Tcp(_) | PacketBody::Stream { .. } => TCP,
        PacketBody::Udp(_) | PacketBody::Filler { .. } => UDP,
    };
    out.extend([0x45, packet.ecn]);
    out.extend(short(packet.body.length()).to_be_bytes());
    out.extend(0u16.to_be_bytes());
    out.extend(DONT_FRAGMENT.to_be_bytes());
    out.extend([TTL, protocol, 0, 0]);
    out.extend(packet.from.ip().octets());
    out.extend(packet.to.ip().octets());
    let sum = checksum(&[&out[..20]]);
    out[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Appends a UDP header without a checksum, as RFC 768 allows.
fn udp_header(out: &mut Vec<u8>, packet: &IpPacket, payload: usize) {
    const HEADER: usize = UDP_HEADERS - 20;
    out.extend(packet.from.port().to_be_bytes());
    out.extend(packet.to.port().to_be_bytes());
    out.extend(short(payload + HEADER).to_be_bytes());
    out.extend([0, 0]);
}

fn tcp_header(out: &mut Vec<u8>, packet: &IpPacket, segment: &TcpSegment, nanos: u64) {
    const SYN: u8 = 2;
    const ACK: u8 = 16;
    const RST: u8 = 4;
    const WINDOW: u16 = u16::MAX;
    const TIMESTAMPS: [u8; 4] = [1, 1, 8, 10];
    let start = out.len();
    let port = |connection: u32| TCP_PORT.wrapping_add((connection & 0xffff) as u16);
    let [from, to] = [segment.from, segment.connection].map(port);
    let low = |number: u64| u32::try_from(number & u64::from(u32::MAX)).unwrap_or(0);
    // The SYN has sequence number 0, so the first byte has number 1.
    let (sequence, acknowledged, flags) = match segment.kind {
        SegmentKind::Syn => (0, 0, SYN),
        SegmentKind::SynAck => (0, 1, SYN | ACK),
        SegmentKind::Data { sequence, .. } => (low(sequence + 1), 1, ACK),
        SegmentKind::Ack { below, .. } => (1, low(below + 1), ACK),
        SegmentKind::Reset => (0, 0, RST),
    };
    out.extend(from.to_be_bytes());
    out.extend(to.to_be_bytes());
    out.extend(sequence.to_be_bytes());
    out.extend(acknowledged.to_be_bytes());
    let words = (packet.body.length() - 20 - segment.payload()) / 4;
    out.extend([byte(words) << 4, flags]);
    out.extend(WINDOW.to_be_bytes());
    out.extend([0; 4]);
    out.extend(TIMESTAMPS);
    out.extend(low(nanos / 1_000_000).to_be_bytes());
    out.extend([0; 4]);
    let blocks: Vec<_> = segment.sack_blocks().collect();
    if !blocks.is_empty() {
        out.extend([1, 1, 5, byte(2 + 8 * blocks.len())]);
        for (from, until) in blocks {
            out.extend(low(from + 1).to_be_bytes());
            out.extend(low(until + 1).to_be_bytes());
        }
    }
    let length = short(out.len() - start + segment.payload()).to_be_bytes();
    let ends = [packet.from.ip().octets(), packet.to.ip().octets()].concat();
    // The payload does not exist; the checksum counts it as zeros.
    let sum = checksum(&[&ends, &[0, 6], &length, &out[start..]]);
    out[start + 16..start + 18].copy_from_slice(&sum.to_be_bytes());
}

/// Returns the RFC 1071 checksum over parts of even length.
fn checksum(parts: &[&[u8]]) -> u16 {
    let pairs = parts.iter().flat_map(|part| part.chunks_exact(2));
    let mut sum: u32 = pairs
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(0)
}

fn byte(length: usize) -> u8 {
    u8::try_from(length).unwrap_or(u8::MAX)
}

fn short(length: usize) -> u16 {
    u16::try_from(length).unwrap_or(u16::MAX)
}
