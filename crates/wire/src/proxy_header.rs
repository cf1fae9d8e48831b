//! The header of the PROXY protocol, version 2, which tells a target the source of a connection (PROTOCOL section
//! 5.10).
//!
//! The format and the sections cited here are those of haproxy's `doc/proxy-protocol.txt`, section 2.2. quictun writes
//! the header and never reads it.
//!
//! ```text
//! signature (12)   version 2, command PROXY   family and TCP   length (2)
//! source address   destination address        source port (2)  destination port (2)
//! ```
//!
//! The command is always PROXY: LOCAL is for connections that a proxy makes for itself. The family is UNSPEC, which
//! receivers may reject, only if the source is unknown.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Length of the longest header, which is the one for IPv6, bytes.
pub const MAX_HEADER: usize = 16 + 2 * 16 + 2 * 2;

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// Version 2 in the upper half, PROXY in the lower.
const VERSION_AND_COMMAND: u8 = 0x21;

/// The address family in the upper half, STREAM in the lower; UNSPEC is zero in both.
const UNKNOWN: u8 = 0x00;
const TCP_OVER_IPV4: u8 = 0x11;
const TCP_OVER_IPV6: u8 = 0x21;

/// Encodes the header of a connection from `source`, if known. `destination` is the target's address, or `None` if the
/// target has no IP address.
///
/// If the families differ, both addresses are written as IPv6, the IPv4 one IPv4-mapped.
pub fn encode(source: Option<SocketAddr>, destination: Option<SocketAddr>) -> Vec<u8> {
    let Some(source) = source else {
        return [&SIGNATURE[..], &[VERSION_AND_COMMAND, UNKNOWN, 0, 0]].concat();
    };
    let from = source.ip().to_canonical();
    let (to, to_port) = match destination {
        Some(destination) => (destination.ip().to_canonical(), destination.port()),
        None if from.is_ipv4() => (Ipv4Addr::UNSPECIFIED.into(), 0),
        None => (Ipv6Addr::UNSPECIFIED.into(), 0),
    };
    let (family, length, addresses) = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            (TCP_OVER_IPV4, 12_u16, [from.octets(), to.octets()].concat())
        }
        (from, to) => (TCP_OVER_IPV6, 36, [octets(from), octets(to)].concat()),
    };
    let mut out = Vec::with_capacity(MAX_HEADER);
    out.extend(SIGNATURE);
    out.extend([VERSION_AND_COMMAND, family]);
    out.extend(length.to_be_bytes());
    out.extend(addresses);
    out.extend(source.port().to_be_bytes());
    out.extend(to_port.to_be_bytes());
    out
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

#[cfg(test)]
mod tests;
