//! The packet filter of a detour. It marks the packets that may bypass the device, and drops all others that would
//! leave through another device.
//!
//! | chain | packets | effect |
//! |---|---|---|
//! | `arrive` | from outside to this host | drops packets to the device's own addresses; marks incoming connections |
//! | `leave` | from this host | marks answers on such connections and routes them again; does the same with DNS queries |
//! | `pass` | all, before they leave | drops packets that should use the tunnel but leave through another device |
//!
//! Only a packet that does not begin a TCP connection counts as an answer. Otherwise, a forged source address could
//! mark connections that this host begins.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use quictun_sys::{Firewall, Hook, Statement};

use super::plan::{DHCP_PORTS, DNS_PORT, MARK, NAMES_MARK, RoutePlan, TCP, UDP};
use crate::tun_device::{ADDRESSES, NAME};

pub(super) const TABLE: &str = "quictun";

/// Priority after connection tracking (-200) and before address translation (-100), like `mangle`.
const EARLY: i32 = -150;

/// The priority of `filter`.
const ORDINARY: i32 = 0;

/// Multicast groups of one link, which no router forwards: IGMP, MLD, mDNS and the like.
const LINK_GROUPS: [IpNet; 2] = [
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(224, 0, 0, 0), 24)),
    IpNet::V6(Ipv6Net::new_assert(
        Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0),
        16,
    )),
];

pub(super) fn firewall(plan: &RoutePlan, accepted: &[(SocketAddr, SocketAddr)]) -> Firewall {
    let mut table = Firewall::new(TABLE);
    arrive(&mut table, plan);
    leave(&mut table, plan, accepted);
    if plan.closed {
        pass(&mut table, plan);
    }
    table
}

fn arrive(table: &mut Firewall, plan: &RoutePlan) {
    table.chain("arrive", Hook::Prerouting, EARLY);
    let mut rule = |parts: &[Statement<'_>]| table.rule("arrive", parts);
    if plan.names {
        // The answer has the address of the neighbour that was asked. Without the mark, reverse path filters would
        // expect it from another device.
        for protocol in [UDP, TCP] {
            rule(&[
                Statement::From(NAME),
                Statement::Protocol(protocol),
                Statement::SourcePort(DNS_PORT),
                Statement::Mark(NAMES_MARK),
            ]);
        }
    }
    for device in [NAME, "lo"] {
        rule(&[Statement::From(device), Statement::Accept]);
    }
    for address in ADDRESSES {
        rule(&[Statement::To(address.own.into()), Statement::Drop]);
    }
    rule(&[
        Statement::ConnectionMarked(MARK),
        Statement::Mark(MARK),
        Statement::Accept,
    ]);
    rule(&[
        Statement::ToThisHost,
        Statement::IsNew,
        Statement::MarkConnection(MARK),
    ]);
    // Without the mark, reverse path filters would expect the sender behind the device.
    rule(&[Statement::ToThisHost, Statement::Mark(MARK)]);
}

fn leave(table: &mut Firewall, plan: &RoutePlan, accepted: &[(SocketAddr, SocketAddr)]) {
    table.chain("leave", Hook::Output, EARLY);
    let sets = [false, true].map(|v6| table.connections(v6, accepted));
    let mut rule = |parts: &[Statement<'_>]| table.rule("leave", parts);
    rule(&[Statement::Marked(MARK), Statement::Accept]);
    rule(&[
        Statement::Begins,
        Statement::ConnectionMarked(MARK),
        Statement::MarkConnection(0),
    ]);
    rule(&[
        Statement::ConnectionMarked(MARK),
        Statement::Mark(MARK),
        Statement::Accept,
    ]);
    for set in sets {
        rule(&[
            Statement::Protocol(TCP),
            Statement::Continues,
            Statement::In(set),
            Statement::MarkConnection(MARK),
            Statement::Mark(MARK),
            Statement::Accept,
        ]);
    }
    if !plan.names {
        return;
    }
    // Some programs (systemd-resolved) ask name servers through a certain device. Routing then uses that device,
    // whatever the tables say.
    for device in [NAME, "lo"] {
        rule(&[Statement::Through(device), Statement::Accept]);
    }
    for network in &plan.excepted {
        rule(&[Statement::To(*network), Statement::Accept]);
    }
    for family in &plan.whole {
        for protocol in [UDP, TCP] {
            rule(&[
                Statement::To(*family),
                Statement::Protocol(protocol),
                Statement::Port(DNS_PORT),
                Statement::Mark(NAMES_MARK),
            ]);
        }
    }
}

fn pass(table: &mut Firewall, plan: &RoutePlan) {
    table.chain("pass", Hook::Postrouting, ORDINARY);
    let mut rule = |parts: &[Statement<'_>]| table.rule("pass", parts);
    for device in [NAME, "lo"] {
        rule(&[Statement::Through(device), Statement::Accept]);
    }
    rule(&[Statement::Marked(MARK), Statement::Accept]);
    if let Some(of) = plan.administrator {
        rule(&[
            Statement::To(of.peer.into()),
            Statement::Protocol(TCP),
            Statement::SourcePort(of.port),
            Statement::Accept,
        ]);
    }
    if !plan.whole.is_empty() {
        rule(&[Statement::NeighbourDiscovery, Statement::Accept]);
        let [client, server] = DHCP_PORTS;
        rule(&[
            Statement::Protocol(UDP),
            Statement::SourcePort(client),
            Statement::Port(server),
            Statement::Accept,
        ]);
        for groups in LINK_GROUPS {
            rule(&[Statement::To(groups), Statement::Accept]);
        }
    }
    for (network, chosen) in plan.decisions() {
        let verdict = if chosen {
            Statement::Drop
        } else {
            Statement::Accept
        };
        rule(&[Statement::To(network), verdict]);
    }
    if plan.names {
        for family in &plan.whole {
            for protocol in [UDP, TCP] {
                let parts = [Statement::To(*family), Statement::Protocol(protocol)];
                rule(&[
                    parts[0],
                    parts[1],
                    Statement::Port(DNS_PORT),
                    Statement::Drop,
                ]);
            }
        }
    }
    for network in plan.neighbours() {
        rule(&[Statement::To(network), Statement::Accept]);
    }
    for family in &plan.whole {
        rule(&[Statement::To(*family), Statement::Drop]);
    }
}
