//! Packets that the stack writes itself: segments without payload, and ICMP errors.

use std::net::{IpAddr, SocketAddr};

use crate::checksum;
use crate::offload::{Checksum, HEADER, Offload};
use crate::segment::{ACK, SYN, SynOptions, TCP, UDP};

#[derive(Clone, Copy, Debug)]
pub(crate) struct EmptySegment {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: u8,
    pub(crate) window: u16,
    /// The options, which are written only if the segment is a SYN.
    pub(crate) options: SynOptions,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ShortFrame {
    bytes: [u8; Self::CAPACITY],
    length: u8,
}

impl ShortFrame {
    /// Longest frame without payload: IPv6 and TCP with the most options that fit.
    pub(crate) const CAPACITY: usize = HEADER + 40 + 60;

    pub(crate) fn new(frame: &[u8]) -> Option<Self> {
        let length = u8::try_from(frame.len()).ok()?;
        let mut bytes = [0; Self::CAPACITY];
        bytes.get_mut(..frame.len())?.copy_from_slice(frame);
        Some(Self { bytes, length })
    }

    pub(crate) fn frame(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    pub(crate) fn packet(&self) -> &[u8] {
        &self.frame()[HEADER..]
    }
}

impl EmptySegment {
    /// Encodes the segment as a frame. Its checksum is complete, so every device can send it.
    pub(crate) fn frame(&self) -> ShortFrame {
        let mut text = Vec::with_capacity(ShortFrame::CAPACITY);
        text.extend_from_slice(&Offload::default().to_bytes());
        let options = self.option_bytes();
        let length = 20 + options.len();
        push_ip(&mut text, TCP, self.from.ip(), self.to.ip(), length);
        let tcp = text.len();
        text.extend_from_slice(&self.from.port().to_be_bytes());
        text.extend_from_slice(&self.to.port().to_be_bytes());
        text.extend_from_slice(&self.seq.to_be_bytes());
        let ack = if self.flags & ACK == 0 { 0 } else { self.ack };
        text.extend_from_slice(&ack.to_be_bytes());
        // `length` is 20 to 32 bytes, so the number of words fits into four bits.
        text.push(u8::try_from(length / 4).unwrap_or(5) << 4);
        text.push(self.flags);
        text.extend_from_slice(&self.window.to_be_bytes());
        text.extend_from_slice(&[0; 4]);
        text.extend_from_slice(&options);
        fill_tcp_checksum(&mut text, tcp, self.from.ip(), self.to.ip(), false);
        ShortFrame::new(&text).expect("invariant: headers fit into a short frame")
    }

    fn option_bytes(&self) -> Vec<u8> {
        let mut options = Vec::new();
        if self.flags & SYN == 0 {
            return options;
        }
        if let Some(mss) = self.options.mss {
            options.extend_from_slice(&[2, 4]);
            options.extend_from_slice(&mss.to_be_bytes());
        }
        if self.options.sack_permitted {
            options.extend_from_slice(&[1, 1, 4, 2]);
        }
        if let Some(shift) = self.options.window_scale {
            options.extend_from_slice(&[1, 3, 3, shift]);
        }
        options
    }
}

/// Makes the ICMP error "port unreachable" about a datagram from `client` to `target` (RFC 792, RFC 4443 section 3.1). It
/// quotes the headers by which a kernel finds the socket. Returns `None` for addresses of two families.
pub(crate) fn port_unreachable(client: SocketAddr, target: SocketAddr) -> Option<ShortFrame> {
    let (from, to) = (target.ip(), client.ip());
    let (protocol, kind, code) = match (from, to) {
        (IpAddr::V4(_), IpAddr::V4(_)) => (ICMP, 3, 3),
        (IpAddr::V6(_), IpAddr::V6(_)) => (ICMP_V6, 1, 4),
        _ => return None,
    };
    let mut quoted = Vec::with_capacity(48);
    push_ip(&mut quoted, UDP, to, from, 8);
    quoted.extend_from_slice(&client.port().to_be_bytes());
    quoted.extend_from_slice(&target.port().to_be_bytes());
    quoted.extend_from_slice(&[0, 8, 0, 0]);
    let length = 8 + quoted.len();
    let mut text = Vec::with_capacity(ShortFrame::CAPACITY);
    text.extend_from_slice(&Offload::default().to_bytes());
    push_ip(&mut text, protocol, from, to, length);
    let icmp = text.len();
    text.extend_from_slice(&[kind, code, 0, 0, 0, 0, 0, 0]);
    text.extend_from_slice(&quoted);
    let mut sum = checksum::sum(&text[icmp..]);
    if from.is_ipv6() {
        sum += checksum::pseudo(protocol, from, to, length);
    }
    text[icmp + 2..icmp + 4].copy_from_slice(&(!checksum::fold(sum)).to_be_bytes());
    ShortFrame::new(&text)
}

const ICMP: u8 = 1;
const ICMP_V6: u8 = 58;

/// Fills in the TCP checksum of a frame whose TCP header begins at `tcp`. With `partial`, the device has to complete
/// it.
pub(crate) fn fill_tcp_checksum(
    frame: &mut [u8],
    tcp: usize,
    from: IpAddr,
    to: IpAddr,
    partial: bool,
) {
    let at = tcp + 16;
    frame[at..at + 2].copy_from_slice(&[0, 0]);
    let mut sum = checksum::pseudo(TCP, from, to, frame.len() - tcp);
    if !partial {
        sum += checksum::sum(&frame[tcp..]);
    }
    let folded = checksum::fold(sum);
    let value = if partial { folded } else { !folded };
    frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

pub(crate) fn partial(tcp: usize) -> Checksum {
    Checksum::Partial {
        // The checksum starts behind the IP header, which has 20 or 40 bytes.
        start: u16::try_from(tcp - HEADER).unwrap_or(u16::MAX),
        offset: 16,
    }
}

/// Appends the IP header of a packet that carries `payload` bytes of a protocol, at most 65515.
pub(crate) fn push_ip(text: &mut Vec<u8>, protocol: u8, from: IpAddr, to: IpAddr, payload: usize) {
    let payload = u16::try_from(payload).unwrap_or(u16::MAX);
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let start = text.len();
            text.extend_from_slice(&[0x45, 0]);
            text.extend_from_slice(&payload.saturating_add(20).to_be_bytes());
            // Identification 0, don't fragment, and a checksum that is filled in below.
            text.extend_from_slice(&[0, 0, 0x40, 0, HOPS, protocol, 0, 0]);
            text.extend_from_slice(&from.octets());
            text.extend_from_slice(&to.octets());
            let sum = !checksum::fold(checksum::sum(&text[start..]));
            text[start + 10..start + 12].copy_from_slice(&sum.to_be_bytes());
        }
        (from, to) => {
            text.extend_from_slice(&[0x60, 0, 0, 0]);
            text.extend_from_slice(&payload.to_be_bytes());
            text.extend_from_slice(&[protocol, HOPS]);
            for address in [from, to] {
                let IpAddr::V6(address) = address else {
                    continue;
                };
                text.extend_from_slice(&address.octets());
            }
        }
    }
}

/// Hop limit, the same as in the stack's other packets.
const HOPS: u8 = 64;
