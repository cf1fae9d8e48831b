use super::*;

fn all(texts: &[&str]) -> Vec<IpNet> {
    let parse = |text: &&str| text.parse().expect("a network");
    texts.iter().map(parse).collect()
}

fn host(networks: &[&str]) -> HostNetwork {
    HostNetwork {
        has_ipv6: true,
        networks: all(networks),
        gateways: Vec::new(),
        administrator: None,
        names: false,
    }
}

fn planned(
    include: &[&str],
    exclude: &[&str],
    server: &str,
    host: &HostNetwork,
) -> Result<RoutePlan, String> {
    let routes = Routes {
        include: all(include),
        exclude: all(exclude),
        fail_open: false,
    };
    let server = server.parse().expect("an address");
    RoutePlan::new(&routes, &[server], host).map_err(|error| error.to_string())
}

fn of(plan: &RoutePlan, v6: bool) -> Vec<(u32, RuleAction)> {
    let rules = plan.rules.iter().filter(|rule| rule.v6 == v6);
    rules.map(|rule| (rule.priority, rule.action)).collect()
}

#[test]
fn all_packets_but_marked_ones_and_those_to_neighbours_are_routed_into_the_device() {
    let here = host(&["10.1.0.0/24"]);
    let plan = planned(&[], &[], "192.0.2.1:7500", &here).expect("a plan");
    assert_eq!(plan.included, ALL.map(|family| (family, REST)));
    // The server's address gets no exception.
    assert_eq!(plan.excepted, []);
    assert_eq!(
        of(&plan, false),
        [
            (END, RuleAction::Nop),
            (AROUND, RuleAction::Goto(END)),
            (DHCP, RuleAction::Goto(END)),
            (NEIGHBOURS, RuleAction::Main(24)),
            (REST, RuleAction::Table(REST)),
        ]
    );
    assert_eq!(
        of(&plan, true),
        [
            (END, RuleAction::Nop),
            (AROUND, RuleAction::Goto(END)),
            (NEIGHBOURS, RuleAction::Main(10)),
            (REST, RuleAction::Table(REST)),
        ]
    );
    for rule in &plan.rules {
        assert!(PRIORITIES.contains(&rule.priority), "{rule:?}");
    }
}

#[test]
fn a_family_that_the_device_does_not_support_is_dropped() {
    let here = HostNetwork {
        has_ipv6: false,
        ..host(&[])
    };
    let plan = planned(&[], &["2001:db8::/32"], "192.0.2.1:7500", &here).expect("a plan");
    assert_eq!(plan.included, [(ALL[0], REST)]);
    assert_eq!(plan.whole, ALL);
    assert_eq!(of(&plan, true), []);
    assert_eq!(plan.excepted, []);
}

#[test]
fn chosen_networks_precede_neighbours_and_longer_prefixes_precede_shorter() {
    let plan = planned(
        &["10.0.0.0/8", "10.0.0.0/8", "10.1.2.0/24"],
        &["10.1.0.0/16"],
        "10.2.0.1:7500",
        &host(&["10.1.0.0/24"]),
    )
    .expect("a plan");
    assert_eq!(plan.included.len(), 2);
    assert_eq!(
        of(&plan, false),
        [
            (END, RuleAction::Nop),
            (AROUND, RuleAction::Goto(END)),
            (CHOSEN, RuleAction::Table(CHOSEN)),
        ]
    );
    assert_eq!(of(&plan, true), []);
    assert_eq!(plan.neighbours, []);
    let decisions = plan.decisions();
    let written: Vec<_> = decisions
        .iter()
        .map(|(network, chosen)| (network.to_string(), *chosen))
        .collect();
    let expected = [
        ("10.1.2.0/24", true),
        ("10.1.0.0/16", false),
        ("10.0.0.0/8", true),
    ];
    assert_eq!(written, expected.map(|(text, it)| (text.to_owned(), it)));
}

#[test]
fn only_private_networks_count_as_neighbours() {
    let here = HostNetwork {
        gateways: vec![
            "203.0.113.1".parse().expect("an address"),
            "192.168.7.1".parse().expect("an address"),
        ],
        ..host(&[
            "0.0.0.0/1",
            "203.0.113.0/24",
            "192.168.7.0/24",
            "fd00:1::/64",
            "2001:db8::/64",
            "8.0.0.0/6",
        ])
    };
    let plan = planned(&[], &[], "192.0.2.1:7500", &here).expect("a plan");
    let written: Vec<_> = plan.neighbours().map(|it| it.to_string()).collect();
    assert_eq!(
        written,
        [
            "192.168.7.0/24",
            "203.0.113.1/32",
            "fd00:1::/64",
            "fe80::/10"
        ]
    );
}

#[test]
fn the_administrator_and_name_queries_have_their_own_rules() {
    let here = HostNetwork {
        administrator: Some(Administrator {
            peer: "203.0.113.9".parse().expect("an address"),
            port: 22,
        }),
        names: true,
        ..host(&[])
    };
    let plan = planned(&[], &[], "192.0.2.1:7500", &here).expect("a plan");
    let count = |v6, priority| {
        let rules = of(&plan, v6);
        rules.iter().filter(|(it, _)| *it == priority).count()
    };
    assert_eq!(
        (count(false, ADMINISTRATOR), count(true, ADMINISTRATOR)),
        (1, 0)
    );
    assert_eq!((count(false, NAMES), count(true, NAMES)), (3, 3));
    let notes = plan.notes(2).join("\n");
    assert!(
        notes.contains("you are connected from 203.0.113.9"),
        "{notes}"
    );
    assert!(notes.contains("2 were open"), "{notes}");
}

#[test]
fn contradicting_routes_are_refused() {
    let refused = |include: &[&str], exclude: &[&str]| {
        planned(include, exclude, "192.0.2.1:7500", &host(&[])).expect_err("a contradiction")
    };
    let text = refused(&["192.0.2.1/32"], &[]);
    assert!(
        text.contains("--route 192.0.2.1/32 is the server itself"),
        "{text}"
    );
    let text = refused(&["10.0.0.0/8"], &["10.0.0.0/8"]);
    assert!(
        text.contains("10.0.0.0/8 is both routed into the tunnel and excluded"),
        "{text}"
    );
}
