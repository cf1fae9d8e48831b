use proptest::prelude::*;

use super::*;

fn tcp(family: Family, host: &str, port: u16) -> Target {
    Target::Tcp {
        family,
        host: host.to_owned(),
        port,
    }
}

fn udp(host: &str, port: u16) -> Target {
    Target::Udp {
        host: host.to_owned(),
        port,
    }
}

fn unix(path: &str) -> Target {
    Target::Unix {
        path: path.to_owned(),
    }
}

// PROTOCOL TARGET-1, TARGET-7.
#[test]
fn every_form_and_its_canonical_text() {
    use Family::{Any, V4, V6};
    let table = [
        ("tcp:1.2.3.4:22", tcp(Any, "1.2.3.4", 22), "tcp:1.2.3.4:22"),
        (
            "TCP:db.example:5432",
            tcp(Any, "db.example", 5432),
            "tcp:db.example:5432",
        ),
        (
            "tcp:DB.Example:5432",
            tcp(Any, "db.example", 5432),
            "tcp:db.example:5432",
        ),
        (
            "tcp4:localhost:80",
            tcp(V4, "localhost", 80),
            "tcp4:localhost:80",
        ),
        ("tcp6:[::1]:22", tcp(V6, "::1", 22), "tcp6:[::1]:22"),
        ("tcp:[::1]:22", tcp(Any, "::1", 22), "tcp:[::1]:22"),
        (
            "tcp:[2001:DB8:0:0::1]:22",
            tcp(Any, "2001:db8::1", 22),
            "tcp:[2001:db8::1]:22",
        ),
        (
            "tcp:[::ffff:127.0.0.1]:1",
            tcp(Any, "::ffff:127.0.0.1", 1),
            "tcp:[::ffff:127.0.0.1]:1",
        ),
        (
            "172.18.30.117:22",
            tcp(Any, "172.18.30.117", 22),
            "tcp:172.18.30.117:22",
        ),
        (
            "my_host-1:65535",
            tcp(Any, "my_host-1", 65535),
            "tcp:my_host-1:65535",
        ),
        ("[::1]:22", tcp(Any, "::1", 22), "tcp:[::1]:22"),
        ("tcp:a:0022", tcp(Any, "a", 22), "tcp:a:22"),
        (
            "tcp:example.org.:1",
            tcp(Any, "example.org.", 1),
            "tcp:example.org.:1",
        ),
        (
            "unix:/run/app.sock",
            unix("/run/app.sock"),
            "unix:/run/app.sock",
        ),
        (
            "UDP:db.Example:53",
            udp("db.example", 53),
            "udp:db.example:53",
        ),
        ("udp:[::1]:053", udp("::1", 53), "udp:[::1]:53"),
        (
            "UNIX:/Run/With Space",
            unix("/Run/With Space"),
            "unix:/Run/With Space",
        ),
        ("/x", unix("/x"), "unix:/x"),
        ("/a:b", unix("/a:b"), "unix:/a:b"),
    ];
    for (text, target, canonical) in table {
        assert_eq!(Target::parse(text).as_ref(), Ok(&target), "{text}");
        assert_eq!(target.to_string(), canonical);
        assert_eq!(Target::parse(canonical), Ok(target));
    }
}

/// Invalid texts, each with a part of the message that names the error.
const REFUSED: &[(&str, &str)] = &[
    ("", "empty"),
    ("UDP4:1.2.3.4:53", "unsupported network \"udp4\""),
    ("udp:53", "has no port"),
    ("unixgram:/x", "unsupported network \"unixgram\""),
    ("unixpacket:/x", "unsupported network \"unixpacket\""),
    ("ip:1", "unsupported network \"ip\""),
    ("ip4:icmp", "unsupported network \"ip4\""),
    ("http://example.org:80/", "unsupported network \"http\""),
    ("localhost:ssh", "bad port \"ssh\""),
    ("db.example:postgresql", "bad port \"postgresql\""),
    ("127.0.0.1:http-alt", "bad port \"http-alt\""),
    ("tpc:localhost:22", "unsupported network \"tpc\""),
    ("exec:/bin/sh", "unsupported network \"exec\""),
    ("localhost", "\"localhost\" has no port"),
    ("localhost:", "\"localhost\" has no port"),
    ("tcp:localhost", "\"localhost\" has no port"),
    ("tcp:localhost:", "\"localhost\" has no port"),
    ("tcp:22", "\"22\" has no port"),
    ("tcp:[::1]", "\"[::1]\" has no port"),
    ("tcp:[::1]:", "\"::1\" has no port"),
    ("tcp:a:0", "bad port \"0\""),
    ("a:0", "bad port \"0\""),
    ("tcp:a:65536", "bad port \"65536\""),
    ("tcp:a:+22", "bad port \"+22\""),
    ("tcp:a: 22", "bad port \" 22\""),
    ("tcp:a:ssh", "bad port \"ssh\""),
    ("tcp:[::1]:x", "bad port \"x\""),
    ("tcp::22", "no host"),
    (":22", "no host"),
    ("tcp:", "no host"),
    ("tcp:::1:22", "need brackets"),
    ("::1", "need brackets"),
    ("2001:db8::1", "need brackets"),
    ("tcp:2001:db8::1:22", "need brackets"),
    ("tcp:[::1:22", "\"::1:22\" is not an IPv6 address"),
    ("tcp:[1.2.3.4]:22", "\"1.2.3.4\" is not an IPv6 address"),
    ("tcp:[name]:22", "\"name\" is not an IPv6 address"),
    ("tcp:[fe80::1%eth0]:22", "without a zone"),
    ("tcp:[::1]x:22", "is not an IPv6 address"),
    (
        "tcp:127.1:22",
        "\"127.1\" is neither a name nor an IPv4 address",
    ),
    ("tcp:2130706433:22", "\"2130706433\" is neither"),
    ("tcp:0x7f000001:22", "\"0x7f000001\" is neither"),
    ("tcp:0X7F.1:22", "\"0x7f.1\" is neither"),
    ("tcp:127.0.0.01:22", "\"127.0.0.01\" is neither"),
    ("tcp:127.0.0.1.:22", "\"127.0.0.1.\" is neither"),
    ("tcp:256.0.0.1:22", "\"256.0.0.1\" is neither"),
    ("tcp:a b:22", "' ' is not allowed in a host name"),
    ("tcp:user@host:22", "'@' is not allowed in a host name"),
    ("tcp:a/b:22", "'/' is not allowed in a host name"),
    (
        "tcp:münchen.example:22",
        "'ü' is not allowed in a host name",
    ),
    ("tcp:fe80%1:22", "'%' is not allowed in a host name"),
    ("tcp4:[::1]:22", "::1 is not an address of the network tcp4"),
    (
        "tcp6:127.0.0.1:22",
        "127.0.0.1 is not an address of the network tcp6",
    ),
    ("unix:", "\"\" is not absolute"),
    ("unix:run/x", "\"run/x\" is not absolute"),
    ("unix:@abstract", "\"@abstract\" is not absolute"),
    ("tcp:a\0:22", "control character '\\0'"),
    ("tcp:a:22\n", "control character '\\n'"),
    ("unix:/a\u{85}", "control character '\\u{85}'"),
];

// PROTOCOL TARGET-2, TARGET-3, TARGET-4, TARGET-5, TARGET-6.
#[test]
fn every_refusal_names_the_fault() {
    for (text, fault) in REFUSED {
        let message = Target::parse(text).expect_err(text).to_string();
        assert!(message.contains(fault), "{text:?}: {message}");
    }
}

#[test]
fn every_refusal_says_what_to_do_instead() {
    for (text, _) in REFUSED {
        let message = Target::parse(text).expect_err(text).to_string();
        assert!(
            ["write ", "use ", "remove "]
                .iter()
                .any(|remedy| message.contains(remedy)),
            "{text:?}: {message}"
        );
    }
}

#[test]
fn the_peer_learns_whether_text_or_network_was_at_fault() {
    let code = |text: &str| Target::parse(text).expect_err(text).code();
    assert_eq!(code("udp4:1.2.3.4:53"), FlowCode::Unsupported);
    assert_eq!(code("tcp:1.2.3.4"), FlowCode::BadOpen);
}

// PROTOCOL TARGET-3, TARGET-5, TARGET-6.
#[test]
fn limits_hold_at_and_after_the_limit() {
    let path = |len: usize| format!("unix:/{}", "x".repeat(len - 1));
    assert!(Target::parse(&path(MAX_UNIX_PATH)).is_ok());
    assert_eq!(
        Target::parse(&path(MAX_UNIX_PATH + 1)),
        Err(TargetError::PathTooLong(MAX_UNIX_PATH + 1))
    );

    let host = |len: usize| format!("tcp:{}:1", "x".repeat(len));
    assert!(Target::parse(&host(MAX_HOST)).is_ok());
    assert_eq!(
        Target::parse(&host(MAX_HOST + 1)),
        Err(TargetError::HostTooLong(MAX_HOST + 1))
    );

    // Only leading zeros make a valid text that long.
    let text = |len: usize| format!("tcp:a:{:0>width$}", 1, width = len - 6);
    assert_eq!(
        Target::parse(&text(MAX_TARGET)),
        Ok(tcp(Family::Any, "a", 1))
    );
    assert_eq!(
        Target::parse(&text(MAX_TARGET + 1)),
        Err(TargetError::TooLong(MAX_TARGET + 1))
    );
}

#[test]
fn finds_address_literals_only() {
    let literal = |text: &str| {
        Target::parse(text)
            .expect(text)
            .ip_literal()
            .map(|ip| ip.to_string())
    };
    assert_eq!(literal("tcp:1.2.3.4:22").as_deref(), Some("1.2.3.4"));
    assert_eq!(literal("tcp6:[fe80:0::1]:22").as_deref(), Some("fe80::1"));
    assert_eq!(literal("tcp:localhost:22"), None);
    assert_eq!(literal("unix:/1.2.3.4"), None);
}

#[test]
fn a_family_allows_its_own_addresses() {
    let (v4, v6) = (
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
    );
    assert!(Family::Any.allows(v4) && Family::Any.allows(v6));
    assert!(Family::V4.allows(v4) && !Family::V4.allows(v6));
    assert!(!Family::V6.allows(v4) && Family::V6.allows(v6));
}

fn any_target() -> impl Strategy<Value = Target> {
    let family = || prop_oneof![Just(Family::Any), Just(Family::V4), Just(Family::V6)];
    let port = || 1..=u16::MAX;
    prop_oneof![
        (
            family(),
            "[a-z_][a-z0-9_-]{0,20}(\\.[a-z][a-z0-9-]{0,10}){0,3}",
            port()
        )
            .prop_map(|(family, host, port)| Target::Tcp { family, host, port }),
        (any::<Ipv4Addr>(), port()).prop_map(|(ip, port)| tcp(Family::V4, &ip.to_string(), port)),
        (any::<Ipv6Addr>(), port()).prop_map(|(ip, port)| tcp(Family::Any, &ip.to_string(), port)),
        "/[ -~é]{0,50}".prop_map(|path| Target::Unix { path }),
    ]
}

proptest! {
    #[test]
    fn round_trip(target in any_target()) {
        prop_assert_eq!(Target::parse(&target.to_string()), Ok(target));
    }

    #[test]
    fn no_text_panics(text: String) {
        crate::check::target_parse(text.as_bytes());
    }

    #[test]
    fn nothing_that_looks_like_a_target_panics(
        text in "(tcp|TCP4|tcp6|unix|udp|ip)?:?[\\[/]?[0-9a-fx.:%\\]-]{0,24}:?[0-9+]{0,6}"
    ) {
        crate::check::target_parse(text.as_bytes());
    }
}
