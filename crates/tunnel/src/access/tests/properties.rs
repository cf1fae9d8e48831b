//! Rules and targets at random, against a model that knows them by their parts and not by their text.

use std::net::SocketAddr;

use proptest::prelude::*;
use proptest::sample::select;

use super::*;

const NAMES: [&str; 3] = ["db", "db.example", "web"];
const ADDRS: [&str; 10] = [
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
];
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

/// A rule by its parts.
#[derive(Clone, Debug)]
enum Part {
    Everything,
    Host(Option<&'static str>, Option<u16>),
    Network(IpAddr, u8, Option<u16>),
    Path(&'static str),
    Below(&'static str),
}

/// A flow: its target, and for a name where it leads.
#[derive(Clone, Debug)]
struct Flow {
    target: Target,
    leads_to: Option<IpAddr>,
}

fn ports() -> impl Strategy<Value = Option<u16>> {
    proptest::option::of(select(&PORTS[..]))
}

fn parts() -> impl Strategy<Value = Part> {
    let network = (select(&ADDRS[..]), 0..=128u8, ports()).prop_map(|(text, len, port)| {
        let base = addr(text).to_canonical();
        let len = if base.is_ipv4() { len % 33 } else { len };
        Part::Network(base, len, port)
    });
    prop_oneof![
        1 => Just(Part::Everything),
        6 => (proptest::option::of(select(&NAMES[..])), ports()).prop_map(|(host, port)| Part::Host(host, port)),
        6 => network,
        2 => select(&PATHS[..]).prop_map(Part::Path),
        2 => select(&DIRS[..]).prop_map(Part::Below),
    ]
}

fn flows() -> impl Strategy<Value = Flow> {
    let by_name = (select(&NAMES[..]), select(&PORTS[..]), select(&ADDRS[..])).prop_map(
        |(name, port, leads_to)| Flow {
            target: target(&format!("tcp:{name}:{port}")),
            leads_to: Some(addr(leads_to)),
        },
    );
    let by_addr = (select(&ADDRS[..]), select(&PORTS[..])).prop_map(|(ip, port)| Flow {
        target: target(&format!("tcp:{}", SocketAddr::new(addr(ip), port))),
        leads_to: None,
    });
    let by_path = select(&PATHS[..]).prop_map(|path| Flow {
        target: target(path),
        leads_to: None,
    });
    prop_oneof![by_name, by_addr, by_path]
}

/// The first `len` bits of an address as text.
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
            format!("{}/{len}", std::net::Ipv4Addr::from_bits(base))
        }
        IpAddr::V6(_) => {
            let base = u128::from_str_radix(&format!("{all:0<128}"), 2).expect("bits");
            format!("[{}/{len}]", Ipv6Addr::from_bits(base))
        }
    }
}

fn text(part: &Part) -> String {
    let port_text = |port: Option<u16>| port.map_or("*".to_owned(), |port| port.to_string());
    match part {
        Part::Everything => "*".to_owned(),
        Part::Host(host, port) => format!("{}:{}", host.unwrap_or("*"), port_text(*port)),
        Part::Network(ip, len, port) => format!("{}:{}", network_text(*ip, *len), port_text(*port)),
        Part::Path(path) => format!("unix:{path}"),
        Part::Below(dir) => format!("unix:{dir}/*"),
    }
}

/// Whether a rule names a flow, by the book.
fn names(part: &Part, flow: &Flow) -> bool {
    let any_or = |pattern: Option<u16>, port: u16| pattern.is_none_or(|just| just == port);
    match (&flow.target, part) {
        (_, Part::Everything) => true,
        (Target::Unix { path }, Part::Path(named)) => path == named,
        (Target::Unix { path }, Part::Below(dir)) => {
            let plain = path
                .split('/')
                .skip(1)
                .all(|name| !name.is_empty() && name != ".." && name != ".");
            plain
                && std::path::Path::new(path)
                    .parent()
                    .is_some_and(|parent| parent.starts_with(dir))
        }
        (Target::Tcp { host, port, .. }, Part::Host(named, ports)) => {
            let ip = flow
                .leads_to
                .or(flow.target.ip_literal())
                .expect("an address")
                .to_canonical();
            let local =
                ip.to_string().starts_with("169.254.") || ip.to_string().starts_with("fe80:");
            any_or(*ports, *port) && named.is_none_or(|named| named == host) && !local
        }
        (Target::Tcp { port, .. }, Part::Network(net, len, ports)) => {
            let ip = flow
                .leads_to
                .or(flow.target.ip_literal())
                .expect("an address")
                .to_canonical();
            any_or(*ports, *port)
                && ip.is_ipv4() == net.is_ipv4()
                && bits(ip, *len) == bits(*net, *len)
        }
        _ => false,
    }
}

fn policy(rules: &[String]) -> (Policy, Peer) {
    named(&rules.iter().map(String::as_str).collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn nothing_is_allowed_that_no_rule_names_and_all_that_one_does(
        parts in proptest::collection::vec(parts(), 0..5),
        flow in flows(),
    ) {
        let rules: Vec<_> = parts.iter().map(text).collect();
        let (policy, peer) = policy(&rules);
        let allowed = dialled(&policy, &peer, &flow.target, flow.leads_to);
        let names_hosts = parts.iter().any(|part| matches!(part, Part::Everything | Part::Host(..)));
        let expected = parts.iter().any(|part| names(part, &flow)) && (flow.leads_to.is_none() || names_hosts);
        prop_assert_eq!(allowed.is_ok(), expected, "{:?} of {:?}: {:?}", rules, flow, allowed);
        // Whom nobody knows reaches nothing.
        prop_assert!(dialled(&policy, &Peer::Unknown, &flow.target, flow.leads_to).is_err());
    }

    #[test]
    fn the_rule_that_a_refusal_names_would_allow_it(
        parts in proptest::collection::vec(parts(), 0..4),
        flow in flows(),
    ) {
        let mut rules: Vec<_> = parts.iter().map(text).collect();
        // A name needs one rule for its resolution and may then need one for its address.
        for _ in 0..2 {
            let (policy, peer) = policy(&rules);
            let refused = match dialled(&policy, &peer, &flow.target, flow.leads_to) {
                Ok(()) => return Ok(()),
                Err(refused) => refused,
            };
            let rule = match refused {
                Denied::NoRule { rule, .. }
                | Denied::NoNames { rule, .. }
                | Denied::NoRuleForAddr { rule, .. }
                | Denied::LinkLocalByName { rule, .. }
                | Denied::CrookedPath { rule, .. } => rule,
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
