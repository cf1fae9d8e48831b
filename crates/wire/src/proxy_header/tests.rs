use proptest::prelude::*;

use super::*;

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// Checks the struct of section 2.2 for TCP over IPv4, field by field.
#[test]
fn ipv4_byte_for_byte() {
    let header = encode(Some(at("192.168.0.1:56324")), Some(at("192.168.0.11:443")));
    let expected: [&[u8]; 8] = [
        b"\x0d\x0a\x0d\x0a\x00\x0d\x0a\x51\x55\x49\x54\x0a",
        b"\x21",
        b"\x11",
        b"\x00\x0c",
        b"\xc0\xa8\x00\x01",
        b"\xc0\xa8\x00\x0b",
        b"\xdc\x04",
        b"\x01\xbb",
    ];
    assert_eq!(header, expected.concat());
}

/// Checks the struct of section 2.2 for TCP over IPv6, field by field.
#[test]
fn ipv6_byte_for_byte() {
    let header = encode(
        Some(at("[2001:db8::1]:56324")),
        Some(at("[2001:db8::b]:443")),
    );
    let expected: [&[u8]; 8] = [
        b"\x0d\x0a\x0d\x0a\x00\x0d\x0a\x51\x55\x49\x54\x0a",
        b"\x21",
        b"\x21",
        b"\x00\x24",
        b"\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01",
        b"\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x0b",
        b"\xdc\x04",
        b"\x01\xbb",
    ];
    assert_eq!(header, expected.concat());
    assert_eq!(header.len(), MAX_HEADER);
}

/// Section 2.2: "The sender should use this family when dealing with unsupported protocol families". The length counts
/// the bytes after it.
#[test]
fn an_unknown_source_has_no_family() {
    for to in [None, Some(at("192.168.0.11:443"))] {
        let expected = b"\x0d\x0a\x0d\x0a\x00\x0d\x0a\x51\x55\x49\x54\x0a\x21\x00\x00\x00";
        assert_eq!(encode(None, to), expected);
    }
}

// PROTOCOL HEADER-2.
#[test]
fn addresses_of_two_families_become_ipv6_and_mapped_ipv4_is_ipv4() {
    for (source, destination, read) in [
        (
            "192.0.2.1:1",
            "[::1]:80",
            ("[::ffff:192.0.2.1]:1", "[::1]:80"),
        ),
        (
            "[2001:db8::1]:1",
            "127.0.0.1:80",
            ("[2001:db8::1]:1", "[::ffff:127.0.0.1]:80"),
        ),
        (
            "[::ffff:192.0.2.1]:1",
            "127.0.0.1:80",
            ("192.0.2.1:1", "127.0.0.1:80"),
        ),
        (
            "192.0.2.1:1",
            "[::ffff:127.0.0.1]:80",
            ("192.0.2.1:1", "127.0.0.1:80"),
        ),
    ] {
        let header = encode(Some(at(source)), Some(at(destination)));
        let expected = (at(read.0), at(read.1));
        assert_eq!(decode(&header), Some(expected), "{source} {destination}");
    }
}

// PROTOCOL HEADER-2.
#[test]
fn a_target_without_an_address_is_the_unspecified_one_of_the_sources_family() {
    for (source, destination) in [("192.0.2.1:1", "0.0.0.0:0"), ("[2001:db8::1]:1", "[::]:0")] {
        let header = encode(Some(at(source)), None);
        assert_eq!(decode(&header), Some((at(source), at(destination))));
    }
}

/// Decodes a header as section 2.2 requires of receivers, without code of the encoder. Returns `None` if it is invalid
/// or incomplete.
fn decode(header: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    let rest = header.strip_prefix(&[13, 10, 13, 10, 0, 13, 10, 81, 85, 73, 84, 10])?;
    let (&[version_command, family, high, low], block) = rest.split_first_chunk()?;
    if version_command != 2 << 4 | 1 || block.len() != usize::from(high) << 8 | usize::from(low) {
        return None;
    }
    let width = match family {
        0x11 => 4,
        0x21 => 16,
        _ => return None,
    };
    let (addresses, ports) = block.split_at_checked(2 * width)?;
    let ip = |bytes: &[u8]| match bytes.len() {
        4 => Ipv4Addr::from(<[u8; 4]>::try_from(bytes).expect("4 bytes")).into(),
        _ => IpAddr::from(<[u8; 16]>::try_from(bytes).expect("16 bytes")),
    };
    let &[s1, s2, d1, d2] = ports else {
        return None;
    };
    let port = |high, low| u16::from(high) * 256 + u16::from(low);
    let source = SocketAddr::new(ip(&addresses[..width]), port(s1, s2));
    Some((
        source,
        SocketAddr::new(ip(&addresses[width..]), port(d1, d2)),
    ))
}

fn addresses() -> impl Strategy<Value = SocketAddr> {
    let mapped = any::<[u8; 4]>().prop_map(|v4| Ipv4Addr::from(v4).to_ipv6_mapped().into());
    let ip = prop_oneof![any::<IpAddr>(), mapped];
    (ip, any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip, port))
}

proptest! {
    #[test]
    fn a_receiver_reads_what_was_written(source in addresses(), to in proptest::option::of(addresses())) {
        let header = encode(Some(source), to);
        prop_assert!(header.len() == 28 || header.len() == MAX_HEADER);
        let (read_source, read_to) = decode(&header).expect("a header");
        let plain = |at: SocketAddr| (at.ip().to_canonical(), at.port());
        prop_assert_eq!(plain(read_source), plain(source));
        match to {
            Some(to) => prop_assert_eq!(plain(read_to), plain(to)),
            None => prop_assert!(read_to.ip().is_unspecified() && read_to.port() == 0),
        }
        // Two IPv4 addresses are written as IPv4.
        let both = plain(source).0.is_ipv4() && to.is_none_or(|to| plain(to).0.is_ipv4());
        prop_assert_eq!(header.len() == 28, both);
    }

    #[test]
    fn a_cut_or_longer_header_is_refused(source in addresses(), to in addresses(), more: u8) {
        let mut header = encode(Some(source), Some(to));
        for cut in 0..header.len() {
            prop_assert_eq!(decode(&header[..cut]), None);
        }
        header.push(more);
        prop_assert_eq!(decode(&header), None);
    }
}
