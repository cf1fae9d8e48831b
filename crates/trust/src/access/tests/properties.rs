//! Random rules and targets, checked against a model that compares their parts instead of their text.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use proptest::sample::select;

use super::*;

const NAMES: [&str; 3] = ["db", "db.example", "web"];
const ADDRS: [&str; 16] = [
    "10.0.0.1",
    "10.0.0.129",
    "10.9.0.1",
    "192.0.2.1",
    "169.254.169.254",
    "::ffff:10.0.0.1",
    "::ffff:169.254.1.1",
    "fd00::1",
    "fd00::8000:0:0:1",
    "fe80::1",
    "127.0.0.1",
    "::",
    "100.100.100.200",
    "64:ff9b::169.254.169.254",
    "64:ff9b::192.0.2.1",
    "198.51.100.7",
];
/// The address of the server's own HTTP interface. With port 80 it is closed at every address of the host.
const OWN_HTTP: &str = "198.51.100.7:80";
const PORTS: [u16; 2] = [22, 80];
const PATHS: [&str; 7] = [
    "/run/a",
    "/run/db/a",
    "/run/db/b/c",
    "/run/db/../a",
    "/run/db//a",
    "/run/dbx",
    "/run/db/",
];
const DIRS: [&str; 3] = ["/run", "/run/db", "/var"];

/// A rule, described by its parts.
#[derive(Clone, Debug)]
enum RuleSpec {
    Everything,
    Host(Option<&'static str>, Option<u16>),
    Network(IpAddr, u8, Option<u16>),
    Path(&'static str),
    Below(&'static str),
}

/// A flow: its target, and for a host name the address to which it resolves.
#[derive(Clone, Debug)]
struct FlowSpec {
    target: Target,
    leads_to: Option<IpAddr>,
}

fn ports() -> impl Strategy<Value = Option<u16>> {
    proptest::option::of(select(&PORTS[..]))
}

fn parts() -> impl Strategy<Value = RuleSpec> {
    let network = (select(&ADDRS[..]), 0..=128u8, ports()).prop_map(|(text, len, port)| {
        let base = addr(text).to_canonical();
        let len = if base.is_ipv4() { len % 33 } else { len };
        RuleSpec::Network(base, len, port)
    });
    prop_oneof![
        1 => Just(RuleSpec::Everything),
        6 => (proptest::option::of(select(&NAMES[..])), ports()).prop_map(|(host, port)| RuleSpec::Host(host, port)),
        6 => network,
        2 => select(&PATHS[..]).prop_map(RuleSpec::Path),
        2 => select(&DIRS[..]).prop_map(RuleSpec::Below),
    ]
}

fn flows() -> impl Strategy<Value = FlowSpec> {
    let by_name = (select(&NAMES[..]), select(&PORTS[..]), select(&ADDRS[..])).prop_map(
        |(name, port, leads_to)| FlowSpec {
            target: target(&format!("tcp:{name}:{port}")),
            leads_to: Some(addr(leads_to)),
        },
    );
    let by_addr = (select(&ADDRS[..]), select(&PORTS[..])).prop_map(|(ip, port)| FlowSpec {
        target: target(&format!("tcp:{}", SocketAddr::new(addr(ip), port))),
        leads_to: None,
    });
    let by_path = select(&PATHS[..]).prop_map(|path| FlowSpec {
        target: target(path),
        leads_to: None,
    });
    prop_oneof![by_name, by_addr, by_path]
}

/// Returns the first `len` bits of an address as text.
fn bits(ip: IpAddr, len: u8) -> String {
    let mut bits = match ip {
        IpAddr::V4(v4) => format!("{:032b}", v4.to_bits()),
        IpAddr::V6(v6) => format!("{:0128b}", v6.to_bits()),
    };
    bits.truncate(len.into());
    bits
}

fn network_text(ip: IpAddr, len: u8) -> String {
    let all = bits(ip, len);
    match ip {
        IpAddr::V4(_) => {
            let base = u32::from_str_radix(&format!("{all:0<32}"), 2).expect("bits");
            format!("{}/{len}", Ipv4Addr::from_bits(base))
        }
        IpAddr::V6(_) => {
            let base = u128::from_str_radix(&format!("{all:0<128}"), 2).expect("bits");
            format!("[{}/{len}]", Ipv6Addr::from_bits(base))
        }
    }
}

fn text(part: &RuleSpec) -> String {
    let port_text = |port: Option<u16>| port.map_or("*".to_owned(), |port| port.to_string());
    match part {
        RuleSpec::Everything => "*".to_owned(),
        RuleSpec::Host(host, port) => format!("{}:{}", host.unwrap_or("*"), port_text(*port)),
        RuleSpec::Network(ip, len, port) => {
            format!("{}:{}", network_text(*ip, *len), port_text(*port))
        }
        RuleSpec::Path(path) => format!("unix:{path}"),
        RuleSpec::Below(dir) => format!("unix:{dir}/*"),
    }
}

/// Returns `Some` if this address and port is closed to all rules but one for the address itself. The value is true if
/// a rule for a link-local network opens it as well. The model decides by the address's text.
fn closed(ip: IpAddr, port: u16) -> Option<bool> {
    let text = ip.to_string();
    let own = port == 80 && ["127.0.0.1", "::", "198.51.100.7"].contains(&text.as_str());
    let link_local =
        text.starts_with("169.254.") || text.starts_with("fe80:") || text.ends_with(":a9fe:a9fe");
    match (own, link_local, text.as_str()) {
        (true, ..) => Some(false),
        (_, true, _) => Some(true),
        (.., "100.100.100.200") => Some(false),
        _ => None,
    }
}

/// Returns true if the address is internal, so that a wildcard does not open it to a name. The model decides by the
/// address's text.
fn is_internal(ip: IpAddr) -> bool {
    let text = ip.to_string();
    text == "::"
        || ["10.", "127.", "fd00:"]
            .iter()
            .any(|start| text.starts_with(start))
}

/// Returns true if the rule names the flow according to the model.
fn names(part: &RuleSpec, flow: &FlowSpec) -> bool {
    let any_or = |pattern: Option<u16>, port: u16| pattern.is_none_or(|just| just == port);
    let ip = flow.leads_to.or(flow.target.ip_literal());
    let ip = ip.map(|ip| ip.to_canonical());
    match (&flow.target, ip, part) {
        (Target::Unix { path }, _, RuleSpec::Path(named)) => path == named,
        (Target::Unix { path }, _, RuleSpec::Below(dir)) => {
            let plain = path
                .split('/')
                .skip(1)
                .all(|name| !name.is_empty() && name != ".." && name != ".");
            plain
                && Path::new(path)
                    .parent()
                    .is_some_and(|parent| parent.starts_with(dir))
        }
        (Target::Unix { .. }, _, RuleSpec::Everything) => true,
        (Target::Tcp { port, .. }, Some(ip), RuleSpec::Everything | RuleSpec::Host(None, _)) => {
            let ports = match part {
                RuleSpec::Host(_, ports) => *ports,
                _ => None,
            };
            let by_name = flow.leads_to.is_some();
            any_or(ports, *port) && closed(ip, *port).is_none() && !(by_name && is_internal(ip))
        }
        (Target::Tcp { host, port, .. }, Some(ip), RuleSpec::Host(Some(named), ports)) => {
            any_or(*ports, *port) && named == host && closed(ip, *port).is_none()
        }
        (Target::Tcp { port, .. }, Some(ip), RuleSpec::Network(net, len, ports)) => {
            let one = *len == if net.is_ipv4() { 32 } else { 128 };
            let inside = [
                ("169.254.0.0", 16),
                ("fe80::", 10),
                ("64:ff9b::a9fe:0", 112),
            ]
            .iter()
            .any(|(range, shortest)| {
                let range = addr(range);
                range.is_ipv4() == net.is_ipv4()
                    && len >= shortest
                    && bits(range, *shortest) == bits(*net, *shortest)
            });
            let wide = closed(ip, *port).is_some_and(|link_local| !(one || link_local && inside));
            any_or(*ports, *port)
                && ip.is_ipv4() == net.is_ipv4()
                && bits(ip, *len) == bits(*net, *len)
                && !wide
        }
        _ => false,
    }
}

fn policy(rules: &[String]) -> (Policy, Peer) {
    let (policy, peer) = named(&rules.iter().map(String::as_str).collect::<Vec<_>>());
    let own = OwnHttp::Tcp(OWN_HTTP.parse().expect("an address"));
    (policy.with_own_http(Some(own)), peer)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn exactly_the_targets_that_a_rule_names_are_allowed(
        parts in proptest::collection::vec(parts(), 0..5),
        flow in flows(),
    ) {
        let rules: Vec<_> = parts.iter().map(text).collect();
        let (policy, peer) = policy(&rules);
        let allowed = dialled(&policy, &peer, &flow.target, flow.leads_to);
        let names_hosts = parts.iter().any(|part| matches!(part, RuleSpec::Everything | RuleSpec::Host(..)));
        let expected = parts.iter().any(|part| names(part, &flow)) && (flow.leads_to.is_none() || names_hosts);
        prop_assert_eq!(allowed.is_ok(), expected, "{:?} of {:?}: {:?}", rules, flow, allowed);
        // An unknown client reaches nothing.
        prop_assert!(dialled(&policy, &Peer::Unknown, &flow.target, flow.leads_to).is_err());
    }

    #[test]
    fn the_rule_that_a_refusal_names_would_allow_it(
        parts in proptest::collection::vec(parts(), 0..4),
        flow in flows(),
    ) {
        let mut rules: Vec<_> = parts.iter().map(text).collect();
        // A host name needs one rule for its look-up, and may then need another one for its address.
        for _ in 0..2 {
            let (policy, peer) = policy(&rules);
            let refused = match dialled(&policy, &peer, &flow.target, flow.leads_to) {
                Ok(()) => return Ok(()),
                Err(refused) => refused,
            };
            let rule = match refused {
                AccessDenied::NoRule(denial)
                | AccessDenied::NoNames(denial)
                | AccessDenied::NoRuleForAddr(denial, _)
                | AccessDenied::ClosedByName(denial, ..)
                | AccessDenied::InternalByWildcard(denial, _)
                | AccessDenied::NonCanonicalPath(denial) => denial.rule,
                other => return Err(TestCaseError::fail(format!("{other:?}"))),
            };
            rules.push(rule);
        }
        let (policy, peer) = policy(&rules);
        prop_assert_eq!(dialled(&policy, &peer, &flow.target, flow.leads_to), Ok(()), "{:?}", rules);
    }

    #[test]
    fn no_text_makes_the_rule_parser_panic(rule in "\\PC{0,40}|[a-z0-9.:/*\\[\\]-]{0,24}|unix:[a-z./*]{0,12}") {
        let _parsed = Rule::parse(&rule);
    }
}
