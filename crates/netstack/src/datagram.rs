//! UDP datagrams of programs: taken from frames, and put into frames.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use crate::checksum;
use crate::counters::PacketRefusal;
use crate::craft::{port_unreachable, push_ip};
use crate::fragments::Fragments;
use crate::offload::{Checksum, FRAME_MAX, HEADER, Offload};
use crate::segment::{FRAGMENT, IpPayload, UDP, check_addresses, ip_payload};
use crate::stack::Stack;

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
    arrived: VecDeque<Datagram>,
    arrived_bytes: usize,
    outgoing: VecDeque<Vec<u8>>,
    outgoing_bytes: usize,
    /// Number of datagrams that may still leave. `None` if there is no limit.
    permitted: Option<usize>,
    fragments: Fragments,
    errors: ErrorBudget,
}

/// The ICMP errors that may leave now (RFC 4443 section 2.4).
#[derive(Debug)]
struct ErrorBudget {
    left: u32,
    since: Option<Instant>,
}

impl Stack {
    /// Returns the length of the payload that [`Self::poll_datagram`] would return.
    pub fn next_datagram_len(&self) -> Option<usize> {
        let next = self.datagrams.arrived.front();
        next.map(|datagram| datagram.payload.len())
    }

    /// Returns the next datagram that a program has sent.
    pub fn poll_datagram(&mut self) -> Option<Datagram> {
        let next = self.datagrams.arrived.pop_front()?;
        self.datagrams.arrived_bytes -= cost(next.payload.len());
        Some(next)
    }

    /// Sends a datagram from its `target` to its `client`, a program of this host.
    ///
    /// Returns false, and drops and counts the datagram, if it is too long for a packet, or if too many are waiting to be
    /// sent.
    pub fn send_datagram(&mut self, datagram: &Datagram) -> bool {
        let sent = self.datagrams.send(datagram);
        self.counters.datagrams_dropped += u64::from(!sent);
        sent
    }

    /// Lets [`Self::poll_transmit`] return at most so many datagrams until the next call. Without a call there is no limit.
    pub fn permit_datagrams(&mut self, most: usize) {
        self.datagrams.permitted = Some(most);
    }

    /// Returns whether datagrams wait to be sent.
    pub fn has_outgoing_datagram(&self) -> bool {
        !self.datagrams.outgoing.is_empty()
    }

    /// Tells a program by an ICMP error that no datagram from `client` reaches `target`. A connected socket of the program
    /// then fails at once, instead of waiting for answers. The number of errors in a second is limited.
    pub fn refuse_datagram(&mut self, now: Instant, client: SocketAddr, target: SocketAddr) {
        if !self.datagrams.errors.spend(now) {
            self.counters.replies_dropped += 1;
        } else if let Some(error) = port_unreachable(client, target) {
            self.reply(error);
        }
    }

    /// Queues a datagram for the user, once all its fragments have arrived.
    pub(crate) fn handle_datagram(
        &mut self,
        now: Instant,
        offload: Offload,
        packet: &[u8],
    ) -> Result<(), PacketRefusal> {
        let ip = ip_payload(UDP, packet)?;
        let udp = packet.get(ip.place.clone());
        let udp = udp.ok_or(PacketRefusal::Malformed)?;
        let datagram = match ip.fragment {
            None => Datagram::parse(offload.checksum, &ip, udp)?,
            Some(fragment) => {
                let ends = (ip.from, ip.to);
                let taken = self.datagrams.fragments.take(now, ends, fragment, udp)?;
                let Some(udp) = taken else {
                    return Ok(());
                };
                Datagram::parse(Checksum::Complete, &ip, &udp)?
            }
        };
        let kept = self.datagrams.arrive(datagram);
        self.counters.datagrams_dropped += u64::from(!kept);
        Ok(())
    }
}

/// Returns whether a packet carries UDP, according to its headers.
pub(crate) fn is_udp(packet: &[u8]) -> bool {
    let protocol = match packet.first().map(|byte| byte >> 4) {
        Some(4) => packet.get(9),
        Some(6) if packet.get(6) == Some(&FRAGMENT) => packet.get(40),
        Some(6) => packet.get(6),
        _ => None,
    };
    protocol == Some(&UDP)
}

impl Datagram {
    /// Reads a UDP header and what follows it in the payload of an IP packet.
    pub(crate) fn parse(
        state: Checksum,
        ip: &IpPayload,
        udp: &[u8],
    ) -> Result<Self, PacketRefusal> {
        let &[f0, f1, t0, t1, l0, l1, c0, c1] =
            udp.first_chunk().ok_or(PacketRefusal::Malformed)?;
        let length = usize::from(u16::from_be_bytes([l0, l1]));
        let udp = udp.get(..length).ok_or(PacketRefusal::Malformed)?;
        let payload = udp.get(UDP_HEADER..).ok_or(PacketRefusal::Malformed)?;
        let (from, to): (IpAddr, IpAddr) = (ip.from, ip.to);
        match state {
            Checksum::Partial { start, offset }
                if (usize::from(start), offset) != (ip.place.start, 6) =>
            {
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
    fn arrive(&mut self, datagram: Datagram) -> bool {
        let bytes = self.arrived_bytes + cost(datagram.payload.len());
        let has_room = bytes <= WAITING_MAX;
        if has_room {
            self.arrived_bytes = bytes;
            self.arrived.push_back(datagram);
        }
        has_room
    }

    /// Queues a datagram for the program. Returns whether there was room for it and it fits into a packet.
    fn send(&mut self, datagram: &Datagram) -> bool {
        if self.outgoing_bytes + cost(FRAME_MAX.min(datagram.payload.len())) > WAITING_MAX {
            return false;
        }
        let Some(frame) = datagram.frame() else {
            return false;
        };
        self.outgoing_bytes += cost(frame.len());
        self.outgoing.push_back(frame);
        true
    }

    pub(crate) fn poll_transmit(&mut self, into: &mut [u8; FRAME_MAX]) -> Option<usize> {
        if self.permitted == Some(0) {
            return None;
        }
        let frame = self.outgoing.pop_front()?;
        if let Some(permitted) = &mut self.permitted {
            *permitted -= 1;
        }
        self.outgoing_bytes -= cost(frame.len());
        into.get_mut(..frame.len())?.copy_from_slice(&frame);
        Some(frame.len())
    }

    #[cfg(any(test, feature = "check"))]
    pub(crate) fn is_bounded(&self) -> bool {
        self.arrived_bytes <= WAITING_MAX
            && self.outgoing_bytes <= WAITING_MAX + FRAME_MAX
            && self.fragments.is_bounded()
    }
}

impl Default for ErrorBudget {
    fn default() -> Self {
        Self {
            left: ERRORS_MAX,
            since: None,
        }
    }
}

impl ErrorBudget {
    /// Returns whether another error may leave.
    fn spend(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let earned = now.saturating_duration_since(since).as_millis();
        if earned > 0 {
            let earned = u32::try_from(earned).unwrap_or(u32::MAX);
            self.left = self.left.saturating_add(earned).min(ERRORS_MAX);
            self.since = Some(now);
        }
        let may = self.left > 0;
        self.left -= u32::from(may);
        may
    }
}

/// Memory of a datagram that waits, bytes.
fn cost(payload: usize) -> usize {
    payload + DATAGRAM_COST
}

const UDP_HEADER: usize = 8;
/// Memory of a datagram beside its payload, bytes.
const DATAGRAM_COST: usize = 128;
/// Memory of the datagrams that wait in each direction, bytes. Chosen for sixteen of the longest ones.
const WAITING_MAX: usize = 1024 * 1024;
/// ICMP errors that may leave at once. One more is allowed each millisecond, as in Linux (`icmp_msgs_per_sec`).
const ERRORS_MAX: u32 = 50;
