//! What a packet takes on the wire beyond its own length, by how its length is counted.

/// The length is all there is.
pub const NONE: usize = 0;

/// IP packets on Ethernet: header 14, checksum 4, preamble and gap between frames 20.
pub const ETHERNET: usize = 14 + 4 + 20;

/// Names for people, with their values.
pub const NAMED: &[(&str, usize)] = &[
    ("ip", NONE),
    ("ethernet", ETHERNET),
    // An IEEE 802.1Q tag.
    ("vlan", ETHERNET + 4),
    // RFC 2516.
    ("pppoe", ETHERNET + 8),
];
