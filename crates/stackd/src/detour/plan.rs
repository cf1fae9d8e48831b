//! Chooses the networks that go into the device, and the tables and rules that lead them there.
//!
//! | priority | packets | next step |
//! |---|---|---|
//! | 29040 | marked: the tunnel's own, and answers on connections from outside | to 29049 |
//! | 29041 | from the port of the administrator's ssh connection, to the administrator's address | to 29049 |
//! | 29042 | DHCP, to a server | to 29049 |
//! | 29043 | DNS queries, with `--dns` | table 29046 |
//! | 29044 | all | table 29044: the networks of `--route` |
//! | 29045 | to neighbours | the main table, but no route that is wider than their network |
//! | 29046 | all | table 29046: whole families |
//! | 29049 | | the host's own rules and routes continue here |
//!
//! Excluded networks are exceptions in both tables: packets to them continue with the next rule.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use quictun_sys::{RoutingRule, RuleAction, Selector};

use super::administrator::Administrator;
use super::error::DetourError;
use crate::settings::Routes;

/// The mark of packets that bypass the device. It shares no bit with the marks of Kubernetes and Tailscale.
pub const MARK: u32 = 0x7174_0000;

/// Table and rule of the networks that the user chose: `qt` in ASCII. Systems number their own tables from 253.
pub(super) const CHOSEN: u32 = 0x7174;

/// Table and rule of whole address families.
pub(super) const REST: u32 = CHOSEN + 2;

const AROUND: u32 = CHOSEN - 4;
const ADMINISTRATOR: u32 = CHOSEN - 3;
const DHCP: u32 = CHOSEN - 2;
const NAMES: u32 = CHOSEN - 1;
const NEIGHBOURS: u32 = CHOSEN + 1;
const END: u32 = CHOSEN + 5;

pub(super) const PRIORITIES: [u32; 8] = [
    AROUND,
    ADMINISTRATOR,
    DHCP,
    NAMES,
    CHOSEN,
    NEIGHBOURS,
    REST,
    END,
];

/// The mark of DNS queries that were about to leave through another device.
pub(super) const NAMES_MARK: u32 = MARK + 1;

pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
pub(super) const DNS_PORT: u16 = 53;
pub(super) const DHCP_PORTS: [u16; 2] = [68, 67];

/// Networks whose addresses do not exist on the internet. Only neighbours in these are reached outside the tunnel, so
/// that a network announced by a hostile DHCP server cannot divert other addresses.
const PRIVATE: [IpNet; 5] = [
    v4([10, 0, 0, 0], 8),
    v4([172, 16, 0, 0], 12),
    v4([192, 168, 0, 0], 16),
    v4([169, 254, 0, 0], 16),
    v6(0xfc00, 7),
];

/// IPv6 addresses that are local to each link.
const LINK_LOCAL: IpNet = v6(0xfe80, 10);

const ALL: [IpNet; 2] = [v4([0; 4], 0), v6(0, 0)];

#[derive(Clone, Debug)]
pub(super) struct HostNetwork {
    pub(super) has_ipv6: bool,
    /// Networks in which the host has an address.
    pub(super) networks: Vec<IpNet>,
    pub(super) gateways: Vec<IpAddr>,
    pub(super) administrator: Option<Administrator>,
    /// True if DNS queries are carried.
    pub(super) names: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct RoutePlan {
    /// Networks, and the table that leads each of them into the device.
    pub(super) included: Vec<(IpNet, u32)>,
    pub(super) excepted: Vec<IpNet>,
    /// Networks, and for each the shortest prefix in the main table that may lead there.
    neighbours: Vec<(IpNet, u8)>,
    /// Families that go into the device as a whole. A family that the device does not support is dropped.
    pub(super) whole: Vec<IpNet>,
    pub(super) rules: Vec<RoutingRule>,
    pub(super) administrator: Option<Administrator>,
    /// True if DNS queries are carried.
    pub(super) names: bool,
    /// True if no packet bypasses the tunnel while the tunnel cannot be used.
    pub(super) closed: bool,
}

impl RoutePlan {
    pub(super) fn new(
        routes: &Routes,
        server: &[SocketAddr],
        host: &HostNetwork,
    ) -> Result<Self, DetourError> {
        let mut wanted = routes.include.clone();
        if wanted.is_empty() {
            wanted.extend(ALL);
        }
        wanted.sort_unstable();
        wanted.dedup();
        for network in &wanted {
            if server.iter().any(|at| IpNet::from(at.ip()) == *network) {
                return Err(DetourError::RouteToServer(*network));
            }
            if routes.exclude.contains(network) {
                return Err(DetourError::Contradiction(*network));
            }
        }
        let speaks = |network: &IpNet| host.has_ipv6 || !is_v6(network);
        let mut excepted = routes.exclude.clone();
        excepted.sort_unstable();
        excepted.dedup();
        excepted.retain(speaks);
        let whole: Vec<IpNet> = wanted.iter().copied().filter(is_all).collect();
        let table = |network: &IpNet| if is_all(network) { REST } else { CHOSEN };
        // A family that devices do not support is left out, unless the user named it.
        let kept = wanted
            .iter()
            .filter(|it| speaks(it) || !routes.include.is_empty());
        let included = kept.map(|it| (*it, table(it))).collect();
        let mut plan = Self {
            included,
            excepted,
            neighbours: neighbours(host),
            whole,
            rules: Vec::new(),
            administrator: host.administrator,
            names: host.names,
            closed: !routes.fail_open,
        };
        plan.neighbours
            .retain(|(network, _)| plan.whole.iter().any(|it| is_v6(it) == is_v6(network)));
        for v6 in [false, true] {
            plan.add_rules(v6);
        }
        Ok(plan)
    }

    fn add_rules(&mut self, v6: bool) {
        let has = |wanted| {
            let mut all = self.included.iter();
            all.any(|(network, table)| is_v6(network) == v6 && *table == wanted)
        };
        let (chosen, rest) = (has(CHOSEN), has(REST));
        if !chosen && !rest {
            return;
        }
        let mut rules = Vec::new();
        let mut add = |priority, selector, action| {
            rules.push(RoutingRule {
                v6,
                priority,
                selector,
                action,
            });
        };
        let all = Selector::default();
        // The other rules jump to this one.
        add(END, all, RuleAction::Nop);
        let marked = |mark| Selector {
            mark: Some(mark),
            ..all
        };
        add(AROUND, marked(MARK), RuleAction::Goto(END));
        if let Some(of) = self.administrator.filter(|it| it.peer.is_ipv6() == v6) {
            let selector = Selector {
                to: Some(of.peer.into()),
                protocol: Some(TCP),
                source_port: Some(of.port),
                ..all
            };
            add(ADMINISTRATOR, selector, RuleAction::Goto(END));
        }
        if rest && !v6 {
            let [client, server] = DHCP_PORTS;
            let selector = Selector {
                protocol: Some(UDP),
                source_port: Some(client),
                port: Some(server),
                ..all
            };
            add(DHCP, selector, RuleAction::Goto(END));
        }
        if rest && self.names {
            add(NAMES, marked(NAMES_MARK), RuleAction::Table(REST));
            for protocol in [UDP, TCP] {
                let selector = Selector {
                    protocol: Some(protocol),
                    port: Some(DNS_PORT),
                    ..all
                };
                add(NAMES, selector, RuleAction::Table(REST));
            }
        }
        if chosen {
            add(CHOSEN, all, RuleAction::Table(CHOSEN));
        }
        if rest {
            for (network, least) in self.neighbours.iter().filter(|(it, _)| is_v6(it) == v6) {
                let selector = Selector {
                    to: Some(*network),
                    ..all
                };
                add(NEIGHBOURS, selector, RuleAction::Main(*least));
            }
            add(REST, all, RuleAction::Table(REST));
        }
        self.rules.extend(rules);
    }

    pub(super) fn neighbours(&self) -> impl Iterator<Item = IpNet> {
        self.neighbours.iter().map(|(network, _)| *network)
    }

    pub(super) fn takes_all(&self, v6: bool) -> bool {
        self.whole.iter().any(|it| is_v6(it) == v6)
    }

    pub(super) fn is_neighbour(&self, address: IpAddr) -> bool {
        let mut all = self.neighbours().chain(self.excepted.iter().copied());
        all.any(|network| network.contains(&address))
    }

    /// Returns chosen networks (`true`) and exceptions (`false`), the longest prefix first: the first match decides.
    pub(super) fn decisions(&self) -> Vec<(IpNet, bool)> {
        let chosen = self.included.iter().filter(|(network, _)| !is_all(network));
        let chosen = chosen.map(|(network, _)| (*network, true));
        let excepted = self.excepted.iter().map(|network| (*network, false));
        let mut all: Vec<_> = chosen.chain(excepted).collect();
        all.sort_by_key(|(network, _)| std::cmp::Reverse(network.prefix_len()));
        all
    }

    pub(super) fn notes(&self, accepted: usize) -> Vec<String> {
        let list = |all: &mut dyn Iterator<Item = IpNet>| {
            let all: Vec<_> = all.map(|it| it.to_string()).collect();
            all.join(", ")
        };
        let mut notes = vec![format!(
            "through the tunnel: {}",
            list(&mut self.included.iter().map(|(network, _)| *network))
        )];
        if !self.neighbours.is_empty() {
            let all = list(&mut self.neighbours());
            notes.push(format!("reached outside the tunnel, as neighbours: {all}"));
        }
        if !self.excepted.is_empty() {
            let all = list(&mut self.excepted.iter().copied());
            notes.push(format!("reached outside the tunnel, as excluded: {all}"));
        }
        notes.push(format!(
            "connections that come in from outside are answered outside the tunnel; {accepted} were open"
        ));
        if let Some(of) = self.administrator {
            notes.push(format!(
                "you are connected from {}: answers from port {} to that address go around the tunnel",
                of.peer, of.port
            ));
        }
        notes.push(if self.closed {
            "after a kill, no packet bypasses the tunnel until `quictun down`".to_owned()
        } else {
            "--fail-open: traffic bypasses the tunnel when its device is gone".to_owned()
        });
        notes
    }
}

fn neighbours(host: &HostNetwork) -> Vec<(IpNet, u8)> {
    let private = |network: &IpNet| PRIVATE.iter().any(|it| it.contains(network));
    let networks = host.networks.iter().copied().filter(private);
    let networks = networks.map(|network| (network, network.prefix_len()));
    // A router asks for this host's hardware address, and strict reverse path filters check that the router is reached
    // through the device on which it asks.
    let gateways = host.gateways.iter().map(|address| ((*address).into(), 1));
    let mut all: Vec<(IpNet, u8)> = networks.chain(gateways).collect();
    if host.has_ipv6 {
        all.push((LINK_LOCAL, LINK_LOCAL.prefix_len()));
    }
    all.sort_unstable();
    // Gateways inside a listed network are redundant.
    let kept = all.iter().filter(|(it, _)| {
        let mut others = all.iter().filter(|(other, _)| other != it);
        !others.any(|(other, _)| other.contains(it))
    });
    let mut kept: Vec<_> = kept.copied().collect();
    kept.dedup_by_key(|(network, _)| *network);
    kept
}

fn is_v6(network: &IpNet) -> bool {
    network.addr().is_ipv6()
}

fn is_all(network: &IpNet) -> bool {
    network.prefix_len() == 0
}

const fn v4(octets: [u8; 4], length: u8) -> IpNet {
    let [a, b, c, d] = octets;
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length))
}

const fn v6(first: u16, length: u8) -> IpNet {
    let address = Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, 0);
    IpNet::V6(Ipv6Net::new_assert(address, length))
}

#[cfg(test)]
mod tests;
