//! What becomes of questions to the name servers that this host has.

use std::net::IpAddr;

use super::plan::Plan;

const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Tells the user what becomes of questions to each server.
pub(super) fn notes(plan: &Plan) -> Vec<String> {
    let text = std::fs::read_to_string(RESOLV_CONF).unwrap_or_default();
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix("nameserver"));
    let servers: Vec<IpAddr> = lines.filter_map(|it| it.trim().parse().ok()).collect();
    servers.iter().filter_map(|it| note(*it, plan)).collect()
}

fn note(server: IpAddr, plan: &Plan) -> Option<String> {
    if !plan.takes_all(server.is_ipv6()) {
        return None;
    }
    if server.is_loopback() {
        return Some(if plan.names {
            format!(
                "programs ask the name server {server} on this host; what it asks on port 53 goes through the tunnel, to --dns"
            )
        } else {
            format!(
                "programs ask the name server {server} on this host, whose own questions are not carried: add --dns ADDRESS"
            )
        });
    }
    if plan.names {
        return None;
    }
    Some(if plan.is_neighbour(server) {
        format!(
            "the name server {server} is a neighbour and is asked beside the tunnel: add --dns ADDRESS to ask through it"
        )
    } else {
        format!("questions to the name server {server} are not carried: add --dns ADDRESS")
    })
}
