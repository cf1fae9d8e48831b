//! The packet filter of a detour. It marks the packets that bypass the device and drops all others that would leave
//! beside it.
//!
//! | chain | packets | effect |
//! |---|---|---|
//! | `arrive` | from outside to this host | drops packets to the device's own addresses; marks incoming connections |
//! | `leave` | from this host | marks answers on such connections and routes them again; does the same with questions to name servers |
//! | `pass` | all, before they leave | drops packets that should use the tunnel but leave through another device |
//!
//! Only a packet that does not begin a TCP connection counts as an answer. Otherwise, a forged source address could
//! mark connections that this host begins.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use quictun_sys::{Firewall, Hook, Part};

use super::plan::{DHCP_PORTS, DNS_PORT, MARK, NAMES_MARK, Plan, TCP, UDP};
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

pub(super) fn firewall(plan: &Plan, accepted: &[(SocketAddr, SocketAddr)]) -> Firewall {
    let mut table = Firewall::new(TABLE);
    arrive(&mut table, plan);
    leave(&mut table, plan, accepted);
    if plan.closed {
        pass(&mut table, plan);
    }
    table
}

fn arrive(table: &mut Firewall, plan: &Plan) {
    table.chain("arrive", Hook::Arriving, EARLY);
    let mut rule = |parts: &[Part<'_>]| table.rule("arrive", parts);
    if plan.names {
        // The answer has the address of the neighbour that was asked. Without the mark, reverse path filters would
        // expect it from another device.
        for protocol in [UDP, TCP] {
            rule(&[
                Part::From(NAME),
                Part::Protocol(protocol),
                Part::SourcePort(DNS_PORT),
                Part::Mark(NAMES_MARK),
            ]);
        }
    }
    for device in [NAME, "lo"] {
        rule(&[Part::From(device), Part::Accept]);
    }
    for address in ADDRESSES {
        rule(&[Part::To(address.own.into()), Part::Drop]);
    }
    rule(&[Part::ConnectionMarked(MARK), Part::Mark(MARK), Part::Accept]);
    rule(&[Part::ToThisHost, Part::IsNew, Part::MarkConnection(MARK)]);
    // Without the mark, reverse path filters would expect the sender behind the device.
    rule(&[Part::ToThisHost, Part::Mark(MARK)]);
}

fn leave(table: &mut Firewall, plan: &Plan, accepted: &[(SocketAddr, SocketAddr)]) {
    table.chain("leave", Hook::Leaving, EARLY);
    let sets = [false, true].map(|v6| table.connections(v6, accepted));
    let mut rule = |parts: &[Part<'_>]| table.rule("leave", parts);
    rule(&[Part::Marked(MARK), Part::Accept]);
    rule(&[
        Part::Begins,
        Part::ConnectionMarked(MARK),
        Part::MarkConnection(0),
    ]);
    rule(&[Part::ConnectionMarked(MARK), Part::Mark(MARK), Part::Accept]);
    for set in sets {
        rule(&[
            Part::Protocol(TCP),
            Part::Continues,
            Part::In(set),
            Part::MarkConnection(MARK),
            Part::Mark(MARK),
            Part::Accept,
        ]);
    }
    if !plan.names {
        return;
    }
    // Some programs (systemd-resolved) ask name servers through a certain device. Routing then uses that device,
    // whatever the tables say.
    for device in [NAME, "lo"] {
        rule(&[Part::Through(device), Part::Accept]);
    }
    for network in &plan.excepted {
        rule(&[Part::To(*network), Part::Accept]);
    }
    for family in &plan.whole {
        for protocol in [UDP, TCP] {
            rule(&[
                Part::To(*family),
                Part::Protocol(protocol),
                Part::Port(DNS_PORT),
                Part::Mark(NAMES_MARK),
            ]);
        }
    }
}

fn pass(table: &mut Firewall, plan: &Plan) {
    table.chain("pass", Hook::Passing, ORDINARY);
    let mut rule = |parts: &[Part<'_>]| table.rule("pass", parts);
    for device in [NAME, "lo"] {
        rule(&[Part::Through(device), Part::Accept]);
    }
    rule(&[Part::Marked(MARK), Part::Accept]);
    if let Some(of) = plan.administrator {
        rule(&[
            Part::To(of.peer.into()),
            Part::Protocol(TCP),
            Part::SourcePort(of.port),
            Part::Accept,
        ]);
    }
    if !plan.whole.is_empty() {
        rule(&[Part::NeighbourDiscovery, Part::Accept]);
        let [client, server] = DHCP_PORTS;
        rule(&[
            Part::Protocol(UDP),
            Part::SourcePort(client),
            Part::Port(server),
            Part::Accept,
        ]);
        for groups in LINK_GROUPS {
            rule(&[Part::To(groups), Part::Accept]);
        }
    }
    for (network, chosen) in plan.decisions() {
        let verdict = if chosen { Part::Drop } else { Part::Accept };
        rule(&[Part::To(network), verdict]);
    }
    if plan.names {
        for family in &plan.whole {
            for protocol in [UDP, TCP] {
                let parts = [Part::To(*family), Part::Protocol(protocol)];
                rule(&[parts[0], parts[1], Part::Port(DNS_PORT), Part::Drop]);
            }
        }
    }
    for network in plan.neighbours() {
        rule(&[Part::To(network), Part::Accept]);
    }
    for family in &plan.whole {
        rule(&[Part::To(*family), Part::Drop]);
    }
}
