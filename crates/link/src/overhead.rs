//! Bytes that a packet takes on the wire in addition to its own length, by the way its length is counted.

/// No overhead: the length of the packet is all that is sent.
pub const NONE: usize = 0;

/// Overhead of IP packets on Ethernet: header 14, checksum 4, preamble and gap between frames 20.
pub const ETHERNET: usize = 14 + 4 + 20;

/// The overheads that users can write by name, with their values.
pub const NAMED: &[(&str, usize)] = &[
    ("ip", NONE),
    ("ethernet", ETHERNET),
    // With an IEEE 802.1Q tag.
    ("vlan", ETHERNET + 4),
    // PPP over Ethernet, RFC 2516.
    ("pppoe", ETHERNET + 8),
];
