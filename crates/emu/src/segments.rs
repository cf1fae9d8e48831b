//! Builds frames from some of the segments of another frame.

use std::ops::Range;

use quictun_sys::VnetHeader;

use crate::frame::{Frame, HEADERS_MAX, IPV4_HEADER, IPV6_HEADER, Protocol, Segmentation};

/// A frame that is ready to be sent: new headers, and the bytes of the old frame that follow them.
#[derive(Debug)]
pub(crate) struct SubFrame<'a> {
    pub(crate) header: VnetHeader,
    pub(crate) headers: &'a [u8],
    pub(crate) rest: &'a [u8],
}

pub(crate) type Scratch = [u8; HEADERS_MAX];

/// Builds the frame that stands for the segments `run` of `frame`, with CE set if `marked`. `run` must not be empty,
/// not be longer than [`Frame::segments_max`], and not extend past the end of the frame.
pub(crate) fn part<'a>(
    frame: &'a Frame,
    run: Range<usize>,
    marked: bool,
    scratch: &'a mut Scratch,
) -> SubFrame<'a> {
    let whole = run == (0..frame.segments());
    match frame.shape.cut {
        Some(cut) if !whole || frame.is_big() => cut_out(frame, cut, &run, marked, scratch),
        _ if marked => marked_whole(frame, scratch),
        _ => SubFrame {
            header: frame.header,
            headers: &[],
            rest: &frame.bytes,
        },
    }
}

fn marked_whole<'a>(frame: &'a Frame, scratch: &'a mut Scratch) -> SubFrame<'a> {
    let network = frame.shape.network;
    let length = match frame.shape.protocol {
        Protocol::Ipv4 => network + IPV4_HEADER,
        Protocol::Ipv6 => network + IPV6_HEADER,
        Protocol::Other => 0,
    };
    let (head, rest) = frame.bytes.split_at(length);
    let headers = &mut scratch[..length];
    headers.copy_from_slice(head);
    mark(frame.shape.protocol, &mut headers[network.min(length)..]);
    SubFrame {
        header: frame.header,
        headers,
        rest,
    }
}

fn cut_out<'a>(
    frame: &'a Frame,
    cut: Segmentation,
    run: &Range<usize>,
    marked: bool,
    scratch: &'a mut Scratch,
) -> SubFrame<'a> {
    let network = frame.shape.network;
    let payload = &frame.bytes[cut.payload..];
    let from = run.start * cut.size;
    let until = (run.end * cut.size).min(payload.len());
    let rest = &payload[from..until];
    let headers = &mut scratch[..cut.payload - cut.jumbo];
    copy_headers(frame, cut, headers);
    let transport = cut.transport - cut.jumbo;
    let (head, segment) = headers.split_at_mut(transport);
    let packet = &mut head[network..];
    let length = segment.len() + rest.len();
    set_length(
        frame.shape.protocol,
        packet,
        packet.len() + length,
        run.start,
    );
    if marked {
        mark(frame.shape.protocol, packet);
    }
    let (number, checksum_at) = if cut.is_tcp {
        tcp_header(segment, from, run, cut.count, frame.header.gso_type);
        (TCP, TCP_CHECKSUM)
    } else {
        put(segment, UDP_LENGTH, length);
        (UDP, UDP_CHECKSUM)
    };
    let sum = pseudo_header(frame.shape.protocol, packet, number, length);
    put(segment, checksum_at, usize::from(sum));
    let header = vnet_header(frame, cut, run, segment, [transport, checksum_at]);
    SubFrame {
        header,
        headers,
        rest,
    }
}

/// Copies the headers, without the jumbo payload option.
fn copy_headers(frame: &Frame, cut: Segmentation, headers: &mut [u8]) {
    const NEXT_HEADER: usize = 6;
    let network = frame.shape.network;
    if cut.jumbo == 0 {
        headers.copy_from_slice(&frame.bytes[..cut.payload]);
        return;
    }
    let option = network + IPV6_HEADER;
    headers[..option].copy_from_slice(&frame.bytes[..option]);
    headers[option..].copy_from_slice(&frame.bytes[option + cut.jumbo..cut.payload]);
    // The header after the option now follows the IPv6 header.
    headers[network + NEXT_HEADER] = frame.bytes[option];
}

fn vnet_header(
    frame: &Frame,
    cut: Segmentation,
    run: &Range<usize>,
    segment: &[u8],
    [transport, checksum_at]: [usize; 2],
) -> VnetHeader {
    let is_one = run.len() == 1;
    let mut gso_type = frame.header.gso_type & !VnetHeader::GSO_ECN;
    if cut.is_tcp && segment[TCP_FLAGS] & CWR != 0 {
        gso_type |= frame.header.gso_type & VnetHeader::GSO_ECN;
    }
    let short = |length: usize| u16::try_from(length).unwrap_or(u16::MAX);
    VnetHeader {
        flags: VnetHeader::NEEDS_CSUM,
        gso_type: if is_one {
            VnetHeader::GSO_NONE
        } else {
            gso_type
        },
        hdr_len: short(transport + segment.len()),
        gso_size: if is_one { 0 } else { short(cut.size) },
        csum_start: short(transport),
        csum_offset: short(checksum_at),
    }
}

/// Adapts the TCP header for the segments `run` of `count`, as a network card does.
fn tcp_header(header: &mut [u8], offset: usize, run: &Range<usize>, count: usize, gso_type: u8) {
    let sequence = &mut header[TCP_SEQUENCE..TCP_SEQUENCE + 4];
    let number = u32::from_be_bytes(sequence.try_into().expect("invariant: four bytes"));
    let offset = u32::try_from(offset).unwrap_or(u32::MAX);
    sequence.copy_from_slice(&number.wrapping_add(offset).to_be_bytes());
    if run.end < count {
        header[TCP_FLAGS] &= !(FIN | PSH);
    }
    // Without this type every segment keeps the flag, because it is then a bit of a counter (RFC 9768).
    if run.start > 0 && gso_type & VnetHeader::GSO_ECN != 0 {
        header[TCP_FLAGS] &= !CWR;
    }
}

/// Sets the length and, for IPv4, the identification of a packet that begins with segment `index`.
fn set_length(protocol: Protocol, packet: &mut [u8], length: usize, index: usize) {
    const LENGTH: usize = 2;
    const IDENTIFICATION: usize = 4;
    const IPV6_LENGTH: usize = 4;
    match protocol {
        Protocol::Ipv4 => {
            let index = u16::try_from(index).unwrap_or_default();
            let identification = word(packet, IDENTIFICATION).wrapping_add(index);
            replace(packet, LENGTH, u16::try_from(length).unwrap_or_default());
            replace(packet, IDENTIFICATION, identification);
        }
        Protocol::Ipv6 => put(packet, IPV6_LENGTH, length - IPV6_HEADER),
        Protocol::Other => {}
    }
}

/// Sets the ECN field to CE (RFC 3168).
fn mark(protocol: Protocol, packet: &mut [u8]) {
    match protocol {
        Protocol::Ipv4 => {
            let marked = word(packet, 0) | 3;
            replace(packet, 0, marked);
        }
        Protocol::Ipv6 => packet[1] |= 0x30,
        Protocol::Other => {}
    }
}

/// Replaces a word of an IPv4 header and adjusts the header checksum (RFC 1624, equation 3). A wrong checksum stays
/// wrong.
fn replace(packet: &mut [u8], at: usize, new: u16) {
    const CHECKSUM: usize = 10;
    let old = word(packet, at);
    let sum = u32::from(!word(packet, CHECKSUM)) + u32::from(!old) + u32::from(new);
    put(packet, CHECKSUM, usize::from(!fold(sum)));
    put(packet, at, usize::from(new));
}

/// Computes the checksum of the pseudo-header (RFC 9293 3.1, RFC 8200 8.1). It is not inverted, as the kernel requires
/// if it is to add the rest.
fn pseudo_header(protocol: Protocol, packet: &[u8], number: u8, length: usize) -> u16 {
    let addresses = match protocol {
        Protocol::Ipv4 => &packet[12..20],
        _ => &packet[8..40],
    };
    let words = addresses.chunks_exact(2);
    let sum: u32 = words.map(|two| u32::from(word(two, 0))).sum();
    let length = u32::try_from(length).unwrap_or_default();
    fold(sum + u32::from(number) + (length >> 16) + (length & 0xffff))
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    u16::try_from(sum).unwrap_or_default()
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Writes a 16-bit value. Callers limit the value to 16 bits.
fn put(bytes: &mut [u8], at: usize, value: usize) {
    let value = u16::try_from(value).unwrap_or_default();
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

const TCP: u8 = 6;
const UDP: u8 = 17;

const TCP_SEQUENCE: usize = 4;
const TCP_FLAGS: usize = 13;
const TCP_CHECKSUM: usize = 16;
const UDP_LENGTH: usize = 4;
const UDP_CHECKSUM: usize = 6;

const FIN: u8 = 1;
const PSH: u8 = 8;
const CWR: u8 = 0x80;

#[cfg(test)]
mod tests;
