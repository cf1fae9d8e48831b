//! UDP for DNS queries: datagrams to one port, and the answers to them.

use std::collections::VecDeque;
use std::net::SocketAddr;

use crate::checksum;
use crate::counters::PacketRefusal;
use crate::craft::push_ip;
use crate::offload::{Checksum, FRAME_MAX, HEADER, Offload};
use crate::segment::{UDP, check_addresses, ip_payload};

/// A UDP datagram between a program of this host and the address that it sends to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The address of the program that sent it.
    pub client: SocketAddr,
    /// The address that the program sends to and expects answers from.
    pub target: SocketAddr,
    /// The content of the datagram.
    pub payload: Vec<u8>,
}

#[derive(Debug, Default)]
pub(crate) struct DatagramQueues {
    pub(crate) arrived: VecDeque<Datagram>,
    outgoing: VecDeque<Vec<u8>>,
}

/// Returns whether a packet carries UDP, according to its header.
pub(crate) fn is_udp(packet: &[u8]) -> bool {
    let protocol = match packet.first().map(|byte| byte >> 4) {
        Some(4) => packet.get(9),
        Some(6) => packet.get(6),
        _ => None,
    };
    protocol == Some(&UDP)
}

impl Datagram {
    pub(crate) fn parse(offload: Offload, packet: &[u8]) -> Result<Self, PacketRefusal> {
        let (from, to, place) = ip_payload(UDP, packet)?;
        let start = place.start;
        let udp = packet.get(place).ok_or(PacketRefusal::Malformed)?;
        let &[f0, f1, t0, t1, l0, l1, c0, c1] =
            udp.first_chunk().ok_or(PacketRefusal::Malformed)?;
        let length = usize::from(u16::from_be_bytes([l0, l1]));
        let udp = udp.get(..length).ok_or(PacketRefusal::Malformed)?;
        let payload = udp.get(UDP_HEADER..).ok_or(PacketRefusal::Malformed)?;
        match offload.checksum {
            Checksum::Partial { start: at, offset } if (usize::from(at), offset) != (start, 6) => {
                return Err(PacketRefusal::Malformed);
            }
            // RFC 768: zero means that there is no checksum. RFC 8200 section 8.1 forbids that for IPv6.
            Checksum::Complete if [c0, c1] == [0, 0] && from.is_ipv4() => {}
            Checksum::Complete => {
                let sum = checksum::pseudo(UDP, from, to, length) + checksum::sum(udp);
                if checksum::fold(sum) != 0xffff {
                    return Err(PacketRefusal::Checksum);
                }
            }
            Checksum::Partial { .. } | Checksum::Verified => {}
        }
        let datagram = Self {
            client: SocketAddr::new(from, u16::from_be_bytes([f0, f1])),
            target: SocketAddr::new(to, u16::from_be_bytes([t0, t1])),
            payload: payload.to_vec(),
        };
        check_addresses(datagram.client, datagram.target)?;
        Ok(datagram)
    }

    /// Encodes the datagram as a frame to the program. Returns `None` if it does not fit into a packet.
    pub(crate) fn frame(&self) -> Option<Vec<u8>> {
        let (from, to) = (self.target, self.client);
        let length = UDP_HEADER + self.payload.len();
        let header = if from.is_ipv6() { 40 } else { 20 };
        if HEADER + header + length > FRAME_MAX || from.is_ipv6() != to.is_ipv6() {
            return None;
        }
        let mut frame = Vec::with_capacity(HEADER + header + length);
        frame.extend_from_slice(&Offload::default().to_bytes());
        push_ip(&mut frame, UDP, from.ip(), to.ip(), length);
        let start = frame.len();
        frame.extend_from_slice(&from.port().to_be_bytes());
        frame.extend_from_slice(&to.port().to_be_bytes());
        frame.extend_from_slice(&u16::try_from(length).ok()?.to_be_bytes());
        frame.extend_from_slice(&[0, 0]);
        frame.extend_from_slice(&self.payload);
        let udp = &frame[start..];
        let sum = checksum::pseudo(UDP, from.ip(), to.ip(), length) + checksum::sum(udp);
        // A zero would mean that there is no checksum.
        let sum = match !checksum::fold(sum) {
            0 => u16::MAX,
            sum => sum,
        };
        frame[start + 6..start + 8].copy_from_slice(&sum.to_be_bytes());
        Some(frame)
    }
}

impl DatagramQueues {
    /// Queues a datagram that arrived. Returns whether there was room for it.
    pub(crate) fn arrive(&mut self, datagram: Datagram) -> Result<bool, PacketRefusal> {
        if datagram.payload.len() > PAYLOAD_MAX {
            return Err(PacketRefusal::Oversized);
        }
        let has_room = self.arrived.len() < WAITING_MAX;
        if has_room {
            self.arrived.push_back(datagram);
        }
        Ok(has_room)
    }

    /// Queues a datagram for the program. Returns whether there was room for it and it fits into a packet.
    pub(crate) fn send(&mut self, datagram: &Datagram) -> bool {
        if self.outgoing.len() >= WAITING_MAX {
            return false;
        }
        let frame = datagram.frame();
        let fits = frame.is_some();
        self.outgoing.extend(frame);
        fits
    }

    pub(crate) fn poll_transmit(&mut self, into: &mut [u8; FRAME_MAX]) -> Option<usize> {
        let frame = self.outgoing.pop_front()?;
        into.get_mut(..frame.len())?.copy_from_slice(&frame);
        Some(frame.len())
    }

    #[cfg(any(test, feature = "check"))]
    pub(crate) fn is_bounded(&self) -> bool {
        self.arrived.len() <= WAITING_MAX && self.outgoing.len() <= WAITING_MAX
    }
}

const UDP_HEADER: usize = 8;
/// Longest payload that is accepted, in bytes. A DNS query rarely has more than 100.
const PAYLOAD_MAX: usize = 4096;
/// Largest number of queued datagrams in each direction; chosen arbitrarily, to bound the memory that a flood takes.
const WAITING_MAX: usize = 256;
