//! The Internet checksum (RFC 1071).

use std::net::IpAddr;

/// Returns the unfolded sum of the bytes as big-endian words.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    let (chunks, rest) = bytes.as_chunks::<4>();
    let mut total: u64 = 0;
    for chunk in chunks {
        total += u64::from(u32::from_be_bytes(*chunk));
    }
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    total + u64::from(u32::from_be_bytes(last))
}

/// Returns the unfolded sum of the pseudo-header of a segment or a datagram.
pub(crate) fn pseudo(protocol: u8, from: IpAddr, to: IpAddr, length: usize) -> u64 {
    let address = |address: IpAddr| match address {
        IpAddr::V4(address) => sum(&address.octets()),
        IpAddr::V6(address) => sum(&address.octets()),
    };
    address(from) + address(to) + u64::from(protocol) + length as u64
}

pub(crate) fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // The loop leaves at most 16 bits.
    u16::try_from(sum).unwrap_or(u16::MAX)
}
