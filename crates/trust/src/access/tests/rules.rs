//! Targets checked against the guard of open mode and against rules.

use quictun_wire::target::TargetError;

use super::*;

#[test]
fn open_mode_refuses_unix_sockets_and_link_local_addresses() {
    let policy = open(Guard::default());
    let refused = |text: &str, resolved: Option<&str>| {
        let result = dialled(&policy, &Peer::Anyone, &target(text), resolved.map(addr));
        result.expect_err(text)
    };
    for path in ["unix:/var/run/docker.sock", "/run/x.sock", "unix:/a/../b"] {
        assert!(
            matches!(refused(path, None), AccessDenied::Unix { .. }),
            "{path}"
        );
    }
    for literal in [
        "tcp:169.254.169.254:80",
        "tcp4:169.254.0.1:80",
        "169.254.169.254:80",
        "tcp:[::ffff:169.254.169.254]:80",
        "tcp:[::ffff:a9fe:a9fe]:80",
        "tcp:[64:ff9b::a9fe:a9fe]:80",
        "tcp:[fe80::1]:22",
        "tcp6:[febf:ffff::1]:22",
    ] {
        assert!(
            matches!(refused(literal, None), AccessDenied::LinkLocal { .. }),
            "{literal}"
        );
    }
    for behind_a_name in [
        "169.254.169.254",
        "::ffff:169.254.169.254",
        "64:ff9b::169.254.169.254",
        "fe80::a",
        "169.254.0.0",
    ] {
        let result = refused("tcp:metadata.example:80", Some(behind_a_name));
        assert!(
            matches!(result, AccessDenied::LinkLocal { .. }),
            "{behind_a_name}"
        );
    }
}

#[test]
fn open_mode_reaches_everything_else() {
    let policy = open(Guard::default());
    for text in [
        "tcp:127.0.0.1:22",
        "tcp:[::1]:22",
        "tcp:10.0.0.1:5432",
        "tcp:169.253.255.255:1",
        "tcp:[fec0::1]:1",
    ] {
        assert_eq!(
            dialled(&policy, &Peer::Anyone, &target(text), None),
            Ok(()),
            "{text}"
        );
    }
    let name = target("tcp:db.example:5432");
    assert_eq!(
        dialled(&policy, &Peer::Anyone, &name, Some(addr("192.0.2.1"))),
        Ok(())
    );
}

#[test]
fn each_guard_opens_its_own_kind_only() {
    let (socket, local) = (target("unix:/run/x"), target("tcp:169.254.169.254:80"));
    let unix = open(Guard {
        allow_unix: true,
        allow_link_local: false,
    });
    assert!(unix.may_reach(&Peer::Anyone, &socket).is_ok());
    assert!(unix.may_reach(&Peer::Anyone, &local).is_err());
    let link = open(Guard {
        allow_unix: false,
        allow_link_local: true,
    });
    assert!(link.may_reach(&Peer::Anyone, &socket).is_err());
    assert!(link.may_reach(&Peer::Anyone, &local).is_ok());
    assert!(
        link.may_reach_addr(&Peer::Anyone, &target("tcp:m:80"), addr("fe80::1"))
            .is_ok()
    );
}

#[test]
fn a_refusal_names_a_rule_that_would_allow_the_target() {
    let policy = open(Guard::default());
    let refusal = |text| {
        policy
            .may_reach(&Peer::Anyone, &target(text))
            .expect_err(text)
            .to_string()
    };
    assert_eq!(
        refusal("unix:/run/docker.sock"),
        "Unix sockets are closed to clients without a name: start the server with --allow-unix, or name the client and give it the rule \"unix:/run/docker.sock\""
    );
    assert_eq!(
        refusal("tcp:[::ffff:169.254.169.254]:80"),
        "link-local addresses such as 169.254.169.254 are closed to clients without a name: start the server with --allow-link-local, or name the client and give it the rule \"169.254.169.254:80\""
    );

    let (policy, peer) = named(&["db:5432", "unix:/run/db/*"]);
    let refusal = |text, resolved: Option<&str>| {
        dialled(&policy, &peer, &target(text), resolved.map(addr))
            .expect_err(text)
            .to_string()
    };
    assert_eq!(
        refusal("tcp:10.0.0.1:22", None),
        "the client \"laptop\" has no rule for tcp:10.0.0.1:22: \"10.0.0.1:22\" would allow it"
    );
    assert_eq!(
        refusal("tcp:db:5432", Some("fe80::1")),
        "tcp:db:5432 leads to fe80::1, which is a link-local address, and no name, wildcard or wide network opens it: \"[fe80::1]:5432\" would allow it to the client \"laptop\""
    );
    assert_eq!(
        refusal("unix:/run/db/../docker.sock", None),
        "unix:/run/db/../docker.sock contains '.', '..' or a doubled slash, so no directory rule matches it: \"unix:/run/db/../docker.sock\" would allow it to the client \"laptop\""
    );
    assert_eq!(
        policy
            .may_reach(&Peer::Unknown, &target("tcp:db:5432"))
            .expect_err("unknown")
            .to_string(),
        "the server does not know this client: give it the key or secret of a named client that has the rule \"db:5432\""
    );
}

/// Checks targets against one rule. `NAME@ADDRESS:PORT` is a name that resolves to this address.
#[track_caller]
fn check(rule: &str, allowed: &[&str], refused: &[&str]) {
    let (policy, peer) = named(&[rule]);
    let flow = |text: &str| match text.split_once('@') {
        None => dialled(&policy, &peer, &target(text), None),
        Some((name, leads_to)) => {
            let leads_to: SocketAddr = leads_to.parse().expect("an address and port");
            let name = target(&format!("tcp:{name}:{}", leads_to.port()));
            dialled(&policy, &peer, &name, Some(leads_to.ip()))
        }
    };
    for text in allowed {
        assert_eq!(flow(text), Ok(()), "{rule} allows {text}");
    }
    for text in refused {
        assert!(flow(text).is_err(), "{rule} refuses {text}");
    }
}

#[test]
fn a_host_rule_names_one_host_and_port() {
    check(
        "db.example:5432",
        &[
            "tcp:db.example:5432",
            "tcp4:DB.Example:5432",
            "tcp:db.example.:5432",
            "db.example@10.0.0.1:5432",
        ],
        &[
            "tcp:db.example:5433",
            "tcp:xdb.example:5432",
            "tcp:db.example.evil:5432",
            "tcp:db:5432",
            "tcp:10.0.0.1:5432",
            "unix:/db.example:5432",
            "db.example@169.254.169.254:5432",
            "db.example@[::ffff:169.254.169.254]:5432",
            "other@10.0.0.1:5432",
        ],
    );
    check("DB.EXAMPLE.:5432", &["tcp:db.example:5432"], &[]);
    check(
        "tcp:db.example:5432",
        &["tcp:db.example:5432"],
        &["tcp:tcp:5432"],
    );
    check("tcp:80", &["tcp:tcp:80"], &["tcp:db:80"]);
}

#[test]
fn an_address_rule_names_one_address() {
    check(
        "10.0.0.1:22",
        &[
            "tcp:10.0.0.1:22",
            "tcp4:10.0.0.1:22",
            "tcp:[::ffff:10.0.0.1]:22",
        ],
        &[
            "tcp:10.0.0.10:22",
            "tcp:10.0.0.1:2222",
            "vm@10.0.0.1:22",
            "tcp:[::10.0.0.1]:22",
        ],
    );
    check(
        "[2001:db8::1]:22",
        &["tcp:[2001:db8::1]:22", "tcp:[2001:DB8:0::1]:22"],
        &[
            "tcp:[2001:db8::10]:22",
            "tcp:[::1]:22",
            "vm@[2001:db8::1]:22",
        ],
    );
    check(
        "[::ffff:10.0.0.1]:22",
        &["tcp:10.0.0.1:22", "tcp:[::ffff:10.0.0.1]:22"],
        &["tcp:10.0.0.2:22"],
    );
    check(
        "169.254.169.254:80",
        &["tcp:169.254.169.254:80"],
        &["tcp:169.254.0.1:80", "meta@169.254.169.254:80"],
    );
}

#[test]
fn a_network_rule_names_its_addresses() {
    check(
        "10.0.0.0/8:5432",
        &["tcp:10.255.0.1:5432", "tcp:[::ffff:10.0.0.1]:5432"],
        &[
            "tcp:11.0.0.1:5432",
            "tcp:10.0.0.1:22",
            "db@10.1.2.3:5432",
            "db@[::1]:5432",
            "unix:/10.0.0.0",
        ],
    );
    check(
        "0.0.0.0/0:22",
        &["tcp:127.0.0.1:22", "tcp:169.253.0.1:22"],
        &["tcp:[::1]:22", "tcp:169.254.0.1:22"],
    );
    check(
        "[fd00::/8]:*",
        &["tcp:[fdff::1]:1", "tcp:[fd12::1]:65535"],
        &["tcp:[fe00::1]:1", "tcp:10.0.0.1:1", "vm@[fd12::1]:65535"],
    );
    check(
        "[::/0]:22",
        &["tcp:[::1]:22", "tcp:[fec0::1]:22"],
        &[
            "tcp:127.0.0.1:22",
            "tcp:[::ffff:127.0.0.1]:22",
            "tcp:[fe80::1]:22",
        ],
    );
    check(
        "[::ffff:10.0.0.0/104]:22",
        &["tcp:10.9.9.9:22"],
        &["tcp:11.0.0.1:22", "tcp:[::1]:22"],
    );
    check(
        "10.0.0.128/25:22",
        &["tcp:10.0.0.128:22", "tcp:10.0.0.255:22"],
        &["tcp:10.0.0.127:22"],
    );
    check("10.0.0.1/32:22", &["tcp:10.0.0.1:22"], &["tcp:10.0.0.0:22"]);
    check(
        "[fe80::/10]:22",
        &["tcp:[fe80::1]:22"],
        &["tcp:[fec0::1]:22", "vm@[fe80::1]:22"],
    );
}

// PROTOCOL AUTH-3.
#[test]
fn a_client_whose_rules_name_no_hosts_has_no_name_looked_up() {
    let asked = target("tcp:db.example:5432");
    for rules in [
        &["10.0.0.0/8:5432"][..],
        &["10.0.0.1:5432", "[fd00::/8]:*"],
        &["0.0.0.0/0:*", "unix:/run/*"],
    ] {
        let (policy, peer) = named(rules);
        let denied = policy.may_reach(&peer, &asked).expect_err("not looked up");
        assert_eq!(
            denied.to_string(),
            "the client \"laptop\" has rules for addresses only, and tcp:db.example:5432 is not looked up for it: \"db.example:5432\" would allow it"
        );
    }
    // A rule for another port, or an unrelated one, does not cause a look-up.
    for rules in [&["10.0.0.0/8:22"][..], &["unix:/run/*"], &[]] {
        let (policy, peer) = named(rules);
        let denied = policy.may_reach(&peer, &asked).expect_err("not allowed");
        assert!(matches!(denied, AccessDenied::NoRule { .. }), "{denied}");
    }
}

#[test]
fn names_without_a_rule_are_judged_by_their_addresses_if_any_rule_names_hosts() {
    for naming in ["db:22", "*:22", "*"] {
        let (policy, peer) = named(&[naming, "10.0.0.0/8:5432"]);
        let asked = target("tcp:vm:5432");
        let leads_to = |ip| dialled(&policy, &peer, &asked, Some(addr(ip)));
        assert_eq!(leads_to("10.1.2.3"), Ok(()), "{naming}");
        assert_eq!(leads_to("192.0.2.1").is_ok(), naming == "*", "{naming}");
        assert!(leads_to("192.168.0.1").is_err(), "{naming}");
    }
}

#[test]
fn wildcards_name_every_host_or_every_port() {
    check(
        "*:22",
        &[
            "tcp:10.0.0.1:22",
            "tcp:[::1]:22",
            "tcp:db:22",
            "db@192.0.2.1:22",
        ],
        &[
            "tcp:db:23",
            "unix:/x",
            "tcp:169.254.169.254:22",
            "tcp:[fe80::1]:22",
            "db@[fe80::1]:22",
        ],
    );
    check(
        "db:*",
        &["tcp:db:1", "tcp:db:65535"],
        &["tcp:web:1", "db@169.254.0.1:80"],
    );
    check(
        "*:*",
        &["tcp:db:1", "tcp:127.0.0.1:65535"],
        &["unix:/x", "tcp:169.254.169.254:80"],
    );
    check(
        "*",
        &[
            "tcp:db:1",
            "unix:/x",
            "unix:/a/../x",
            "tcp:127.0.0.1:80",
            "db@192.0.2.1:80",
        ],
        &[
            "tcp:169.254.169.254:80",
            "tcp:100.100.100.200:80",
            "db@[fe80::1]:80",
            "db@127.0.0.1:80",
        ],
    );
}

#[test]
fn a_unix_rule_names_a_path_or_a_directory() {
    check(
        "unix:/run/db.sock",
        &["unix:/run/db.sock", "/run/db.sock"],
        &[
            "unix:/run/db.sock2",
            "unix:/run/db",
            "unix:/RUN/db.sock",
            "unix:/run//db.sock",
            "unix:/run/./db.sock",
            "tcp:run:1",
        ],
    );
    check(
        "unix:/run/../db.sock",
        &["unix:/run/../db.sock"],
        &["unix:/db.sock"],
    );
    check(
        "unix:/run/db/*",
        &[
            "unix:/run/db/a",
            "unix:/run/db/sub/a",
            "unix:/run/db/..a",
            "unix:/run/db/a.",
        ],
        &[
            "unix:/run/db",
            "unix:/run/db/",
            "unix:/run/db/..",
            "unix:/run/db/../docker.sock",
            "unix:/run/db/x/../../docker.sock",
            "unix:/run/db/./a",
            "unix:/run/db/.",
            "unix:/run/db//a",
            "unix:/run/db/a/",
            "unix://run/db/a",
            "unix:/run/dbx/a",
            "unix:/run/a",
        ],
    );
    check(
        "unix:/*",
        &["unix:/a", "unix:/run/a"],
        &["unix://a", "unix:/../a", "tcp:db:1"],
    );
}

// PROTOCOL AUTH-1.
#[test]
fn a_client_without_rules_reaches_nothing() {
    let (policy, peer) = named(&[]);
    for text in ["tcp:127.0.0.1:22", "tcp:db:1", "unix:/x"] {
        let refused = policy.may_reach(&peer, &target(text));
        assert!(
            matches!(refused, Err(AccessDenied::NoRule { .. })),
            "{text}: {refused:?}"
        );
    }
    assert!(
        policy
            .may_reach_addr(&peer, &target("tcp:db:1"), addr("10.0.0.1"))
            .is_err()
    );
}

// PROTOCOL AUTH-1, AUTH-2.
#[test]
fn name_under_a_network_rule_waits_for_its_address() {
    let (policy, peer) = named(&["10.0.0.0/8:5432", "web:80"]);
    let name = target("tcp:db:5432");
    assert_eq!(policy.may_reach(&peer, &name), Ok(()));
    let refused = policy.may_reach_addr(&peer, &name, addr("192.0.2.1"));
    let Err(AccessDenied::NoRuleForAddr(DeniedRequest { rule, .. }, _)) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(rule, "192.0.2.1:5432");
    // Without a rule for the port, the name is not even resolved.
    assert!(policy.may_reach(&peer, &target("tcp:db:22")).is_err());
}

#[test]
fn malformed_rules_are_refused_with_what_to_write() {
    use RuleError::{
        BadNetwork, BadPort, HostBits, MissingPort, NonCanonicalDirectory, PartialWildcard,
    };
    let port = |text: &str| BadPort(text.to_owned());
    let network = |text: &str| BadNetwork(text.to_owned());
    let url = |url: &str, instead: &str| RuleError::Url {
        url: url.to_owned(),
        instead: instead.to_owned(),
    };
    for (rule, expected) in [
        ("", MissingPort),
        ("db", MissingPort),
        ("10.0.0.0/8", MissingPort),
        ("[::1]", MissingPort),
        ("db:", port("")),
        ("db:0", port("0")),
        ("db:65536", port("65536")),
        ("db:+22", port("+22")),
        ("db:ssh", port("ssh")),
        ("http://10.0.0.1/", url("http://10.0.0.1/", "10.0.0.1:80")),
        (
            "https://me@db.example:8443/x",
            url("https://me@db.example:8443/x", "db.example:8443"),
        ),
        ("ssh://[::1]", url("ssh://[::1]", "[::1]:22")),
        ("git://", url("git://", "HOST:PORT")),
        ("*.example.com:22", PartialWildcard),
        ("unix:/run/*.sock", PartialWildcard),
        ("unix:/*/x/*", PartialWildcard),
        ("db/8:22", network("db/8")),
        ("10.0.0.0/33:22", network("10.0.0.0/33")),
        ("10.0.0.0/:22", network("10.0.0.0/")),
        ("10.0.0.0/+8:22", network("10.0.0.0/+8")),
        ("[fd00::/129]:22", network("[fd00::/129]")),
        ("fd00::/8:22", network("fd00::/8")),
        ("[10.0.0.0/8]:22", network("[10.0.0.0/8]")),
        (
            "10.1.2.3/8:22",
            HostBits {
                network: "10.1.2.3/8".to_owned(),
                instead: "10.0.0.0/8".to_owned(),
            },
        ),
        (
            "10.0.0.1/0:22",
            HostBits {
                network: "10.0.0.1/0".to_owned(),
                instead: "0.0.0.0/0".to_owned(),
            },
        ),
        (
            "[fd00::1/8]:22",
            HostBits {
                network: "[fd00::1/8]".to_owned(),
                instead: "[fd00::/8]".to_owned(),
            },
        ),
        ("::1:22", TargetError::UnbracketedIpv6.into()),
        (":22", TargetError::EmptyHost.into()),
        ("d b:22", TargetError::BadHost(' ').into()),
        ("127.1:22", TargetError::BadIpv4("127.1".to_owned()).into()),
        (
            "unix:run/x",
            TargetError::RelativePath("run/x".to_owned()).into(),
        ),
        (
            "unix:/a/../b/*",
            NonCanonicalDirectory("/a/../b".to_owned()),
        ),
        ("unix:/a//*", NonCanonicalDirectory("/a/".to_owned())),
    ] {
        assert_eq!(Rule::parse(rule), Err(expected), "{rule:?}");
    }
}

#[test]
fn datagrams_need_a_rule_for_udp_and_no_other_rule_opens_them() {
    let asked = |rules: &[&str], text: &str, resolved: Option<&str>| {
        let (policy, peer) = named(rules);
        dialled(&policy, &peer, &target(text), resolved.map(addr))
    };
    for rules in [&["*"][..], &["*:*"], &["10.0.0.1:53", "db.example:*"]] {
        let refused = asked(rules, "udp:10.0.0.1:53", None).expect_err("no rule for UDP");
        let told = refused.to_string();
        assert!(
            told.contains("\"udp:10.0.0.1:53\" would allow it"),
            "{told}"
        );
        assert!(asked(rules, "udp:db.example:53", Some("10.0.0.1")).is_err());
    }
    for rule in ["udp:10.0.0.1:53", "udp:10.0.0.0/8:*", "udp:*:53"] {
        assert_eq!(asked(&[rule], "udp:10.0.0.1:53", None), Ok(()), "{rule}");
        assert!(asked(&[rule], "tcp:10.0.0.1:53", None).is_err(), "{rule}");
        assert!(asked(&[rule], "udp:11.0.0.1:54", None).is_err(), "{rule}");
        assert!(asked(&[rule], "unix:/run/x", None).is_err(), "{rule}");
    }
    let name = ["udp:db.example:53"];
    assert_eq!(asked(&name, "udp:DB.example:53", Some("10.0.0.1")), Ok(()));
    assert!(asked(&name, "udp:other.example:53", Some("10.0.0.1")).is_err());
    // Closed addresses are closed to datagrams, too.
    assert!(asked(&["udp:*:*"], "udp:169.254.169.254:53", None).is_err());
    assert!(asked(&["udp:*:*"], "udp:db.example:53", Some("127.0.0.1")).is_err());
    // A host may be called udp.
    assert_eq!(asked(&["udp:53"], "tcp:udp:53", Some("192.0.2.1")), Ok(()));
}

#[test]
fn open_mode_carries_no_datagrams() {
    let policy = open(Guard::default());
    for (text, resolved) in [
        ("udp:192.0.2.1:53", None),
        ("udp:db.example:53", Some("192.0.2.1")),
    ] {
        let refused = dialled(&policy, &Peer::Anyone, &target(text), resolved.map(addr));
        assert!(matches!(refused, Err(AccessDenied::Datagrams(_))), "{text}");
    }
}
