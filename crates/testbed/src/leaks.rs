//! Detects packets that bypass a tunnel: a probe sends packets of every kind, and a tap watches the cable.

pub mod probe;
pub mod tap;

use std::fmt;

/// The kind of a packet, as the tap classifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// A TCP segment, of any connection.
    Tcp,
    /// A UDP datagram, except DNS queries.
    Udp,
    /// A UDP datagram to port 53.
    Dns,
    /// An ICMP echo request.
    Icmp,
    /// A packet of an IP protocol that is reserved for experiments.
    Raw,
}

/// All protocols that the probe sends.
pub const PROTOCOLS: [Protocol; 5] = [
    Protocol::Tcp,
    Protocol::Udp,
    Protocol::Dns,
    Protocol::Icmp,
    Protocol::Raw,
];

/// The IP protocol number of [`Protocol::Raw`], reserved for experiments by RFC 3692.
const EXPERIMENT: u8 = 253;

/// A protocol over IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PacketKind {
    /// The protocol of the packet.
    pub protocol: Protocol,
    /// True for IPv6, false for IPv4.
    pub v6: bool,
}

impl fmt::Display for PacketKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = if self.v6 { "v6" } else { "v4" };
        write!(f, "{:?}/{family}", self.protocol)
    }
}
