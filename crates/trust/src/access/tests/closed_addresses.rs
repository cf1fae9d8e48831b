//! Closed addresses, and names that lead to internal addresses, in every spelling.

use super::super::address::tests::spellings;
use super::*;

const METADATA: [&str; 9] = [
    "169.254.169.254",
    "169.254.0.23",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "fd00:ec2::254",
    "fd20:ce::254",
    "fe80::1",
    "fe80::a9fe:a9fe",
];

/// Returns an address in every spelling.
fn spelled(text: &str) -> Vec<IpAddr> {
    match addr(text) {
        IpAddr::V4(v4) => spellings(v4),
        v6 @ IpAddr::V6(_) => vec![v6],
    }
}

fn literal(addr: IpAddr, port: u16) -> Target {
    target(&format!("tcp:{}", SocketAddr::new(addr, port)))
}

/// Returns whether the policy lets the peer reach the address: first as a literal target, then behind a name.
fn reached(policy: &Policy, peer: &Peer, addr: IpAddr, port: u16) -> [bool; 2] {
    let name = target(&format!("tcp:service.example:{port}"));
    [
        dialled(policy, peer, &literal(addr, port), None).is_ok(),
        dialled(policy, peer, &name, Some(addr)).is_ok(),
    ]
}

fn with_http(policy: Policy, address: &str) -> Policy {
    policy.with_own_http(Some(OwnHttp::Tcp(address.parse().expect("an address"))))
}

// PROTOCOL AUTH-7.
#[test]
fn metadata_is_closed_to_names_wildcards_and_wide_networks_in_every_spelling() {
    for rules in [
        &["*"][..],
        &["*:*"],
        &["*:80", "0.0.0.0/0:*", "[::/0]:*"],
        &["service.example:80"],
        &[
            "service.example:*",
            "100.64.0.0/10:80",
            "168.0.0.0/8:80",
            "[fc00::/7]:80",
        ],
    ] {
        let (policy, peer) = named(rules);
        for text in METADATA {
            for addr in spelled(text) {
                let reached = reached(&policy, &peer, addr, 80);
                assert_eq!(reached, [false; 2], "{rules:?}: {text} as {addr}");
            }
        }
    }
}

// PROTOCOL AUTH-7.
#[test]
fn metadata_is_closed_in_open_mode_in_every_spelling() {
    let policy = open(Guard::default());
    for text in METADATA {
        for addr in spelled(text) {
            let reached = reached(&policy, &Peer::Anyone, addr, 80);
            assert_eq!(reached, [false; 2], "{text} as {addr}");
        }
    }
    let policy = open(Guard {
        allow_link_local: true,
        allow_unix: false,
    });
    assert_eq!(
        reached(&policy, &Peer::Anyone, addr("169.254.169.254"), 80),
        [true; 2]
    );
    assert_eq!(
        reached(&policy, &Peer::Anyone, addr("100.100.100.200"), 80),
        [false; 2]
    );
}

// PROTOCOL AUTH-7.
#[test]
fn a_rule_for_the_address_itself_opens_it_and_no_other_spelling() {
    for text in METADATA {
        for addr in spelled(text) {
            let rule = SocketAddr::new(addr, 80).to_string();
            let (policy, peer) = named(&[&rule, "*:443"]);
            assert_eq!(reached(&policy, &peer, addr, 80), [true; 2], "{rule}");
            assert_eq!(reached(&policy, &peer, addr, 443), [false; 2], "{rule}");
            for other in spelled(text) {
                let same = other.to_canonical() == addr.to_canonical();
                let reached = reached(&policy, &peer, other, 80);
                assert_eq!(reached, [same; 2], "{rule} and {other}");
            }
        }
    }
    let (policy, peer) = named(&["169.254.0.0/16:80", "[fe80::/10]:80", "*:443"]);
    for addr in ["169.254.169.254", "::ffff:169.254.169.254", "fe80::1"].map(addr) {
        assert_eq!(reached(&policy, &peer, addr, 80), [true; 2], "{addr}");
    }
}

const HERE: [&str; 4] = ["127.0.0.1", "127.9.9.9", "0.0.0.0", "0.0.0.1"];

// PROTOCOL AUTH-7.
#[test]
fn the_own_http_interface_is_closed_in_every_spelling() {
    let rules = [
        &["*"][..],
        &["*:*"],
        &[
            "service.example:8086",
            "127.0.0.0/8:*",
            "0.0.0.0/0:*",
            "[::/0]:*",
        ],
        &["service.example:*", "[::ffff:127.0.0.0/104]:8086"],
    ];
    for own in [
        "127.0.0.1:8086",
        "0.0.0.0:8086",
        "[::]:8086",
        "192.0.2.7:8086",
    ] {
        for rules in rules {
            let (policy, peer) = named(rules);
            is_closed(&with_http(policy, own), &peer);
        }
        is_closed(&with_http(open(Guard::default()), own), &Peer::Anyone);
    }
}

fn is_closed(policy: &Policy, peer: &Peer) {
    let v4 = HERE.iter().flat_map(|text| spelled(text));
    for addr in v4.chain(["::", "::1"].map(addr)) {
        assert_eq!(reached(policy, peer, addr, 8086), [false; 2], "{addr}");
    }
}

// PROTOCOL AUTH-7.
#[test]
fn other_ports_at_the_address_of_the_own_http_interface_stay_open() {
    let policy = with_http(open(Guard::default()), "127.0.0.1:8086");
    for addr in HERE.iter().flat_map(|text| spelled(text)) {
        assert_eq!(
            reached(&policy, &Peer::Anyone, addr, 8087),
            [true; 2],
            "{addr}"
        );
    }
    assert_eq!(
        reached(&policy, &Peer::Anyone, addr("192.0.2.1"), 8086),
        [true; 2]
    );
}

// PROTOCOL AUTH-7.
#[test]
fn a_rule_for_its_address_opens_the_own_http_interface() {
    let (policy, peer) = named(&["127.0.0.1:8086", "localhost:8086"]);
    let policy = with_http(policy, "0.0.0.0:8086");
    let by_name = target("tcp:localhost:8086");
    for (addr, allowed) in [
        ("127.0.0.1", true),
        ("::ffff:127.0.0.1", true),
        ("0.0.0.0", false),
        ("127.0.0.2", false),
        ("::1", false),
        ("64:ff9b::127.0.0.1", false),
    ] {
        let addr = addr.parse().expect("an address");
        let literal = dialled(&policy, &peer, &literal(addr, 8086), None);
        assert_eq!(literal.is_ok(), allowed, "{addr}");
        let named = dialled(&policy, &peer, &by_name, Some(addr));
        assert_eq!(named.is_ok(), allowed, "{addr}");
    }
}

// PROTOCOL AUTH-7.
#[test]
fn the_unix_socket_of_the_own_http_interface_needs_a_rule_for_its_path() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let _listener = std::os::unix::net::UnixListener::bind(path("http")).expect("bound");
    std::os::unix::fs::symlink(path("http"), path("link")).expect("a link");
    let own = || Some(OwnHttp::Unix(path("http").into()));
    let unix = |name: &str| target(&format!("unix:{}", path(name)));
    let below = format!("unix:{}/*", dir.path().display());
    for rules in [&["*"][..], &[below.as_str()]] {
        let (policy, peer) = named(rules);
        let policy = policy.with_own_http(own());
        for name in ["http", "link"] {
            let denied = policy.may_reach(&peer, &unix(name));
            assert!(
                matches!(denied, Err(AccessDenied::ClosedPathByWildcard { .. })),
                "{denied:?}"
            );
        }
        assert_eq!(policy.may_reach(&peer, &unix("other")), Ok(()));
    }
    let (policy, peer) = named(&[&format!("unix:{}", path("http"))]);
    let policy = policy.with_own_http(own());
    assert_eq!(policy.may_reach(&peer, &unix("http")), Ok(()));
    let all = open(Guard {
        allow_unix: true,
        allow_link_local: false,
    });
    let denied = all
        .with_own_http(own())
        .may_reach(&Peer::Anyone, &unix("link"));
    assert!(
        matches!(denied, Err(AccessDenied::ClosedPath { .. })),
        "{denied:?}"
    );
}

const INSIDE: [&str; 11] = [
    "127.0.0.1",
    "0.0.0.0",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "::1",
    "::",
    "fd12::1",
    "fc00::1",
    "fec0::1",
];

// PROTOCOL AUTH-8.
#[test]
fn a_name_of_an_internal_address_needs_its_own_rule_and_no_wildcard_opens_it() {
    let name = target("tcp:db.example:22");
    for text in INSIDE {
        for addr in spelled(text) {
            for rules in [&["*"][..], &["*:*"], &["*:22", "db:22", "db.example:23"]] {
                let (policy, peer) = named(rules);
                let denied = dialled(&policy, &peer, &name, Some(addr));
                let Err(AccessDenied::InternalByWildcard(DeniedRequest { rule, .. }, _)) = denied
                else {
                    panic!("{rules:?} and {addr}: {denied:?}")
                };
                assert_eq!(rule, "db.example:22");
                // A literal address states the user's intent, so a wildcard is enough.
                assert_eq!(dialled(&policy, &peer, &literal(addr, 22), None), Ok(()));
            }
            for rule in ["db.example:22", "DB.example.:*"] {
                let (policy, peer) = named(&["*:22", rule]);
                assert_eq!(dialled(&policy, &peer, &name, Some(addr)), Ok(()), "{rule}");
            }
            let network = SocketAddr::new(addr, 22).to_string();
            let (policy, peer) = named(&["*:22", &network]);
            assert_eq!(
                dialled(&policy, &peer, &name, Some(addr)),
                Ok(()),
                "{network}"
            );
        }
    }
    let (policy, peer) = named(&["*:22"]);
    assert_eq!(
        dialled(&policy, &peer, &name, Some(addr("192.0.2.1"))),
        Ok(())
    );
    let root = target("tcp:localhost.:22");
    assert!(dialled(&policy, &peer, &root, Some(addr("127.0.0.1"))).is_err());
    let (policy, peer) = named(&["localhost:22"]);
    assert_eq!(
        dialled(&policy, &peer, &root, Some(addr("127.0.0.1"))),
        Ok(())
    );
}

// PROTOCOL AUTH-9.
#[test]
fn the_judged_address_is_the_one_that_is_dialled() {
    for (found, dialled) in [
        ("[::ffff:10.0.0.1]:22", "10.0.0.1:22"),
        ("10.0.0.1:22", "10.0.0.1:22"),
        ("[64:ff9b::a00:1]:22", "[64:ff9b::a00:1]:22"),
        ("[fe80::1%7]:22", "[fe80::1%7]:22"),
    ] {
        let found = found.parse().expect("an address");
        assert_eq!(dialled_as(found).to_string(), dialled);
    }
}
