//! Classifies addresses independently of how they are written.
//!
//! An IPv6 address can carry an IPv4 address to which a gateway, or the kernel, delivers. [`readings`] lists the
//! addresses that one address may lead to. An address belongs to a class below if one of its readings does:
//!
//! | form | example for 127.0.0.1 | defined in |
//! | --- | --- | --- |
//! | IPv4-mapped | `::ffff:7f00:1` | RFC 4291 section 2.5.5.2; dialled as IPv4 |
//! | IPv4-compatible | `::7f00:1` | RFC 4291 section 2.5.5.1 |
//! | IPv4-translated | `::ffff:0:7f00:1` | RFC 2765 |
//! | NAT64, well-known prefix | `64:ff9b::7f00:1` | RFC 6052 section 2.1 |
//! | NAT64, local-use prefix | `64:ff9b:1:7f00:0:100::` | RFC 8215, with any prefix length of RFC 6052 |
//! | 6to4 | `2002:7f00:1::1` | RFC 3056 |
//! | Teredo | `2001:0:…:80ff:fffe` | RFC 4380: the client's address, with its bits inverted |
//! | ISATAP | `…:0:5efe:7f00:1` | RFC 5214 |
//!
//! A NAT64 prefix that a network operator has chosen cannot be recognised.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Metadata services of cloud providers at addresses that are not link-local. They hand out the host's credentials.
const METADATA: [IpAddr; 7] = [
    // Alibaba Cloud.
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    // Azure's platform service ("wire server").
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    // Oracle Cloud, first generation.
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    // AWS: instance metadata, and the credentials of EKS pods.
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23)),
    // Google Cloud and Scaleway, hosts without IPv4.
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42)),
];

/// Returns the addresses that `addr` may lead to: its canonical form first, then the IPv4 addresses that it carries.
pub(super) fn readings(addr: IpAddr) -> impl Iterator<Item = IpAddr> {
    let addr = addr.to_canonical();
    let carried = match addr {
        IpAddr::V4(_) => [None; CARRIED_MAX],
        IpAddr::V6(v6) => carried(v6),
    };
    std::iter::once(addr).chain(carried.into_iter().flatten().map(IpAddr::V4))
}

/// Returns true if the address is valid on its link only (169.254.0.0/16, `fe80::/10`). Most metadata services have
/// such an address.
pub(super) fn is_link_local(addr: IpAddr) -> bool {
    readings(addr).any(|addr| match addr {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    })
}

/// Returns true if a cloud's metadata service is known at this address and the address is not link-local.
pub(super) fn is_metadata(addr: IpAddr) -> bool {
    readings(addr).any(|addr| METADATA.contains(&addr))
}

/// Returns true if the address leads to the host itself, on whichever machine it is used: a loopback address, or an
/// unspecified one, which Linux dials as loopback.
pub(super) fn is_this_host(addr: IpAddr) -> bool {
    readings(addr).any(|addr| match addr {
        IpAddr::V4(v4) => v4.is_loopback() || v4.octets()[0] == 0,
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unspecified(),
    })
}

/// Returns true if the address leads to the host itself or into a private network. An external name server has no
/// reason to return such an address.
///
/// Private addresses are RFC 1918, 100.64.0.0/10 (RFC 6598), link-local, `fc00::/7` and the deprecated `fec0::/10`.
pub(super) fn is_internal(addr: IpAddr) -> bool {
    let private = |addr| match addr {
        IpAddr::V4(v4) => {
            let [first, second, ..] = v4.octets();
            v4.is_private() || (first == 100 && second & 0xc0 == 64)
        }
        IpAddr::V6(v6) => v6.is_unique_local() || v6.segments()[0] & 0xffc0 == 0xfec0,
    };
    is_this_host(addr) || is_link_local(addr) || is_metadata(addr) || readings(addr).any(private)
}

/// Maximum number of readings that an address has beside itself: four for the prefix lengths of a local-use NAT64
/// prefix, and one for ISATAP.
const CARRIED_MAX: usize = 5;

/// Returns the IPv4 addresses inside an IPv6 address that is not IPv4-mapped.
fn carried(addr: Ipv6Addr) -> [Option<Ipv4Addr>; CARRIED_MAX] {
    let octets = addr.octets();
    let at = |from: [usize; 4]| Some(Ipv4Addr::from(from.map(|at| octets[at])));
    let last = at([12, 13, 14, 15]);
    let mut carried = [None; CARRIED_MAX];
    match addr.segments() {
        // Unspecified and loopback carry nothing.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => {}
        // The forms are IPv4-compatible, IPv4-translated and NAT64.
        [0, 0, 0, 0, 0 | 0xffff, 0, _, _] | [0x64, 0xff9b, 0, 0, 0, 0, _, _] => carried[0] = last,
        // RFC 6052 section 2.2: prefixes of 48, 56 and 64 bits skip octet 8. A reading that begins with a zero octet
        // belongs to a longer prefix, or is the padding behind a shorter one.
        [0x64, 0xff9b, 1, ..] => {
            let unless_zero = |from| at(from).filter(|v4| v4.octets()[0] != 0);
            carried[0] = unless_zero([12, 13, 14, 15]);
            carried[1] = unless_zero([6, 7, 9, 10]);
            carried[2] = unless_zero([7, 9, 10, 11]);
            carried[3] = unless_zero([9, 10, 11, 12]);
        }
        [0x2002, ..] => carried[0] = at([2, 3, 4, 5]),
        [0x2001, 0, ..] => carried[0] = last.map(|v4| Ipv4Addr::from_bits(!v4.to_bits())),
        _ => {}
    }
    if matches!(addr.segments(), [_, _, _, _, 0 | 0x200, 0x5efe, _, _]) {
        carried[CARRIED_MAX - 1] = last;
    }
    carried
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn addr(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    /// Returns an IPv4 address in every form in which an IPv6 address can carry it.
    pub(in super::super) fn spellings(v4: Ipv4Addr) -> Vec<IpAddr> {
        let [a, b, c, d] = v4.octets().map(u16::from);
        let (high, low) = (a << 8 | b, c << 8 | d);
        let v6 = |segments: [u16; 8]| IpAddr::from(segments);
        let mut all = vec![
            IpAddr::V4(v4),
            v6([0, 0, 0, 0, 0, 0xffff, high, low]),
            v6([0, 0, 0, 0, 0xffff, 0, high, low]),
            v6([0x64, 0xff9b, 0, 0, 0, 0, high, low]),
            v6([0x2002, high, low, 0, 0, 0, 0, 1]),
            v6([0x2002, high, low, 1, 2, 3, 4, 5]),
            v6([0x2001, 0, 0x4136, 0xe378, 0x8000, 0x63bf, !high, !low]),
            v6([0x2001, 0xdb8, 0, 0, 0, 0x5efe, high, low]),
            v6([0x2001, 0xdb8, 0, 0, 0x200, 0x5efe, high, low]),
        ];
        if high != 0 {
            all.push(v6([0, 0, 0, 0, 0, 0, high, low]));
        }
        // `carried` ignores NAT64 readings that begin with a zero octet.
        if a != 0 {
            all.push(v6([0x64, 0xff9b, 1, 0, 0, 0, high, low]));
            all.push(v6([0x64, 0xff9b, 1, high, c, d << 8, 0, 0]));
            all.push(v6([0x64, 0xff9b, 1, a, b, c << 8 | d, 0, 0]));
            all.push(v6([0x64, 0xff9b, 1, 0x1234, a, b << 8 | c, d << 8, 0]));
        }
        all
    }

    #[test]
    fn every_spelling_of_an_ipv4_address_is_of_its_class() {
        for (v4, is) in [
            ("169.254.169.254", is_link_local as fn(IpAddr) -> bool),
            ("169.254.0.1", is_link_local),
            ("100.100.100.200", is_metadata),
            ("168.63.129.16", is_metadata),
            ("127.0.0.1", is_this_host),
            ("127.255.255.254", is_this_host),
            ("0.0.0.0", is_this_host),
            ("0.1.2.3", is_this_host),
            ("10.0.0.1", is_internal),
            ("172.31.255.255", is_internal),
            ("192.168.0.1", is_internal),
            ("100.127.255.255", is_internal),
        ] {
            for spelling in spellings(v4.parse().expect("an address")) {
                assert!(is(spelling), "{v4} as {spelling}");
                assert!(is_internal(spelling), "{v4} as {spelling}");
            }
        }
    }

    #[test]
    fn public_addresses_are_of_no_class_in_any_spelling() {
        for v4 in [
            "192.0.2.1",
            "169.253.1.1",
            "100.128.0.1",
            "172.32.0.1",
            "1.1.1.1",
        ] {
            for spelling in spellings(v4.parse().expect("an address")) {
                assert!(!is_internal(spelling), "{v4} as {spelling}");
            }
        }
        for v6 in [
            "2001:db8::1",
            "2606:4700::1111",
            "fe00::1",
            "64:ff9b:2::a9fe:a9fe",
        ] {
            assert!(!is_internal(addr(v6)), "{v6}");
        }
    }

    #[test]
    fn ipv6_classes() {
        for (text, is) in [
            ("fe80::1", is_link_local as fn(IpAddr) -> bool),
            ("febf:ffff::1", is_link_local),
            ("fe80::a9fe:a9fe", is_link_local),
            ("fd00:ec2::254", is_metadata),
            ("fd20:ce::254", is_metadata),
            ("::1", is_this_host),
            ("::", is_this_host),
            ("fd12::1", is_internal),
            ("fc00::1", is_internal),
            ("fec0::1", is_internal),
        ] {
            assert!(is(addr(text)), "{text}");
        }
        assert!(!is_link_local(addr("fec0::1")) && !is_metadata(addr("fd00:ec2::255")));
        assert!(!is_this_host(addr("::2.0.0.1")));
    }
}
