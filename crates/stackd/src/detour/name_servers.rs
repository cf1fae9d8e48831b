//! The effect of a detour on queries to the host's configured name servers.

use std::net::IpAddr;

use super::plan::RoutePlan;

const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Returns a message for the user about each name server whose handling needs an explanation.
pub(super) fn notes(plan: &RoutePlan) -> Vec<String> {
    let text = std::fs::read_to_string(RESOLV_CONF).unwrap_or_default();
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix("nameserver"));
    let servers: Vec<IpAddr> = lines.filter_map(|it| it.trim().parse().ok()).collect();
    servers.iter().filter_map(|it| note(*it, plan)).collect()
}

fn note(server: IpAddr, plan: &RoutePlan) -> Option<String> {
    if !plan.takes_all(server.is_ipv6()) {
        return None;
    }
    if server.is_loopback() {
        return Some(if plan.names {
            format!(
                "programs ask the name server {server} on this host; its own queries on port 53 go through the tunnel, to --dns"
            )
        } else {
            format!(
                "programs ask the name server {server} on this host; its own queries are datagrams, which need a `udp:` rule at the server: add one, or --dns ADDRESS"
            )
        });
    }
    if plan.names {
        return None;
    }
    Some(if plan.is_neighbour(server) {
        format!(
            "the name server {server} is a neighbour and is asked outside the tunnel: add --dns ADDRESS to ask through it"
        )
    } else {
        format!(
            "queries to the name server {server} are datagrams, which need a `udp:` rule at the server: add one, or --dns ADDRESS"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::plan::HostNetwork;
    use super::*;
    use crate::settings::Routes;

    #[test]
    fn a_loopback_name_server_is_noted_with_the_fate_of_its_queries() {
        let server = IpAddr::from([127, 0, 0, 53]);
        for (names, told) in [
            (true, "go through the tunnel, to --dns"),
            (false, "need a `udp:` rule at the server: add one, or --dns"),
        ] {
            let host = HostNetwork {
                has_ipv6: true,
                networks: Vec::new(),
                gateways: Vec::new(),
                administrator: None,
                names,
            };
            let plan = RoutePlan::new(&Routes::default(), &[], &host).expect("a plan");
            let note = note(server, &plan).unwrap_or_default();
            assert!(note.contains("127.0.0.53") && note.contains(told), "{note}");
        }
    }
}
