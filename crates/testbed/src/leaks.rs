//! Whether anything leaves beside a tunnel: packets of every kind on one side, a tap on the cable on the other.

pub mod probe;
pub mod tap;

use std::fmt;

/// What a packet is, as the tap sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP, but for questions to name servers.
    Udp,
    /// UDP to port 53.
    Dns,
    /// Echo requests.
    Icmp,
    /// An IP protocol that is reserved for experiments.
    Raw,
}

/// All of them.
pub const PROTOCOLS: [Protocol; 5] = [
    Protocol::Tcp,
    Protocol::Udp,
    Protocol::Dns,
    Protocol::Icmp,
    Protocol::Raw,
];

/// The protocol of [`Protocol::Raw`], of RFC 3692.
const EXPERIMENT: u8 = 253;

/// A kind of packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// What it is.
    pub protocol: Protocol,
    /// IPv6 rather than IPv4.
    pub v6: bool,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = if self.v6 { "v6" } else { "v4" };
        write!(f, "{:?}/{family}", self.protocol)
    }
}
