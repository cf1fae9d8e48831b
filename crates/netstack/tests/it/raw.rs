//! Segments that the tests write by hand.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use quictun_netstack::{FRAME_MAX, HEADER, Offload, Stack};

use crate::offload::{fold, on_the_wire, pseudo, sum};
use crate::simulation::buffer;

pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const ACK: u8 = 0x10;

#[derive(Clone, Debug)]
pub(crate) struct RawSegment {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: u8,
    pub(crate) window: u16,
    pub(crate) options: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

impl RawSegment {
    pub(crate) fn new(from: SocketAddr, to: SocketAddr, flags: u8) -> Self {
        Self {
            from,
            to,
            seq: 1000,
            ack: 0,
            flags,
            window: 65_535,
            options: Vec::new(),
            payload: Vec::new(),
        }
    }

    /// Encodes the segment as a packet with complete checksums.
    pub(crate) fn packet(&self) -> Vec<u8> {
        let mut tcp = Vec::new();
        tcp.extend(self.from.port().to_be_bytes());
        tcp.extend(self.to.port().to_be_bytes());
        tcp.extend(self.seq.to_be_bytes());
        tcp.extend(self.ack.to_be_bytes());
        assert_eq!(self.options.len() % 4, 0);
        tcp.push(u8::try_from(5 + self.options.len() / 4).unwrap() << 4);
        tcp.push(self.flags);
        tcp.extend(self.window.to_be_bytes());
        tcp.extend([0; 4]);
        tcp.extend(&self.options);
        tcp.extend(&self.payload);
        let mut packet = Vec::new();
        let length = u16::try_from(tcp.len()).unwrap();
        let start = match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                packet.extend([0x45, 0]);
                packet.extend((20 + length).to_be_bytes());
                packet.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
                packet.extend(from.octets());
                packet.extend(to.octets());
                let sum = !fold(sum(&packet));
                packet[10..12].copy_from_slice(&sum.to_be_bytes());
                20
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                packet.extend([0x60, 0, 0, 0]);
                packet.extend(length.to_be_bytes());
                packet.extend([6, 64]);
                packet.extend(from.octets());
                packet.extend(to.octets());
                40
            }
            _ => panic!("addresses of two families"),
        };
        packet.extend(tcp);
        let partial = pseudo(&packet, start);
        packet[start + 16..start + 18].copy_from_slice(&partial.to_be_bytes());
        let sum = !fold(sum(&packet[start..]));
        packet[start + 16..start + 18].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    pub(crate) fn frame(&self) -> Vec<u8> {
        [Offload::default().to_bytes().as_slice(), &self.packet()].concat()
    }

    /// Parses an IP packet with a TCP segment.
    pub(crate) fn read(packet: &[u8]) -> Self {
        let (start, from, to): (usize, IpAddr, IpAddr) = if packet[0] >> 4 == 4 {
            let address = |at: usize| <[u8; 4]>::try_from(&packet[at..at + 4]).unwrap().into();
            (20, address(12), address(16))
        } else {
            let address = |at: usize| <[u8; 16]>::try_from(&packet[at..at + 16]).unwrap().into();
            (40, address(8), address(24))
        };
        let tcp = &packet[start..];
        assert_eq!(
            fold(u64::from(pseudo(packet, start)) + sum(tcp)),
            0xffff,
            "wrong checksum"
        );
        let word = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
        let long = |at: usize| u32::from_be_bytes(tcp[at..at + 4].try_into().unwrap());
        let header = usize::from(tcp[12] >> 4) * 4;
        Self {
            from: SocketAddr::new(from, word(0)),
            to: SocketAddr::new(to, word(2)),
            seq: long(4),
            ack: long(8),
            flags: tcp[13],
            window: word(14),
            options: tcp[20..header].to_vec(),
            payload: tcp[header..].to_vec(),
        }
    }
}

thread_local! {
    /// A buffer that is allocated once: clearing it for every call would dominate the run time of some tests.
    static BUFFER: RefCell<Box<[u8; FRAME_MAX]>> = RefCell::new(buffer());
}

/// Passes a segment to the stack.
pub(crate) fn give(stack: &mut Stack, now: Instant, raw: &RawSegment) {
    stack.handle_frame(now, &mut raw.frame());
}

/// Returns all segments that the stack sends.
pub(crate) fn take(stack: &mut Stack, now: Instant) -> Vec<RawSegment> {
    BUFFER.with_borrow_mut(|buffer| {
        let mut all = Vec::new();
        while let Some(length) = stack.poll_transmit(now, buffer) {
            assert!(length > HEADER);
            assert!(all.len() < 100_000, "the stack never stops sending");
            let packets = on_the_wire(&buffer[..length]);
            all.extend(packets.iter().map(|packet| RawSegment::read(packet)));
        }
        all
    })
}
