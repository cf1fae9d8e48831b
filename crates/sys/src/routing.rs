//! Routing tables beside the main one, and the rules that select them (`ip rule`).

use std::io;
use std::net::IpAddr;

use ipnet::IpNet;
use rustix::net::netdevice::index_to_name;

use crate::netlink::{Request, attribute, u32_at};
use crate::network::{CREATE, Network, family, family_of, from_octets, octets};

/// Length of `struct rtmsg` and of `struct fib_rule_hdr`.
const HEADER: usize = 12;

// linux/fib_rules.h
const TO_TABLE: u8 = 1;
const GO_TO: u8 = 2;
const NO_OPERATION: u8 = 3;
const DESTINATION: u16 = 1;
const TARGET: u16 = 4;
const PRIORITY: u16 = 6;
const MARK: u16 = 10;
const SUPPRESS_PREFIX_LENGTH: u16 = 14;
const TABLE: u16 = 15;
const PROTOCOL: u16 = 22;
const SOURCE_PORTS: u16 = 23;
const DESTINATION_PORTS: u16 = 24;

/// The way that a route in a table other than the main one gives to its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteTarget<'a> {
    /// Out of this device, directly to the destination.
    Device(&'a str),
    /// No route here: routing continues with the next rule.
    Throw,
}

/// A routing rule (`ip rule`): which packets, and what to do with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoutingRule {
    /// True for IPv6, false for IPv4.
    pub v6: bool,
    /// Rules apply in the order of these numbers. The main table's rule has 32766.
    pub priority: u32,
    /// The packets that the rule applies to. Other packets continue with the next rule.
    pub selector: Selector,
    /// The action of the rule.
    pub action: RuleAction,
}

/// Conditions on packets. Without any, all packets match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// Packets with this mark.
    pub mark: Option<u32>,
    /// Packets to this network, which must be of the rule's family.
    pub to: Option<IpNet>,
    /// Packets of this protocol: TCP is 6. Conditions on ports need it.
    pub protocol: Option<u8>,
    /// Packets from this port.
    pub source_port: Option<u16>,
    /// Packets to this port.
    pub port: Option<u16>,
}

/// The action of a rule on its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleAction {
    /// Looks up this table.
    Table(u32),
    /// Looks up the main table, but takes only routes to networks of at least this prefix length, which is 1 or more.
    Main(u8),
    /// Continues at the rule with this priority, which must be a later one.
    Goto(u32),
    /// Does nothing. Other rules can continue here.
    Nop,
}

impl Network {
    /// Adds a route to a table, which exists from its first route on. Fails with `AlreadyExists` if the table has a
    /// route for exactly this network.
    pub fn add_route(&mut self, table: u32, to: IpNet, way: RouteTarget<'_>) -> io::Result<()> {
        let (scope, kind) = match way {
            RouteTarget::Device(_) => (libc::RT_SCOPE_LINK, libc::RTN_UNICAST),
            RouteTarget::Throw => (libc::RT_SCOPE_UNIVERSE, libc::RTN_THROW),
        };
        let network = octets(to.network());
        let mut request = route(
            to.addr(),
            to.prefix_len(),
            [libc::RT_TABLE_UNSPEC, scope, kind],
        )
        .with(libc::RTA_DST, &network)
        .with_u32(libc::RTA_TABLE, table);
        if let RouteTarget::Device(name) = way {
            request = request.with_u32(libc::RTA_OIF, self.index(name)?);
        }
        self.netlink.execute(request)
    }

    /// Routes all packets without a better route, of its address family, to `gateway`. The kernel refuses a gateway
    /// that is not in a directly connected network.
    pub fn add_default_route(&mut self, gateway: IpAddr) -> io::Result<()> {
        let fields = [
            libc::RT_TABLE_MAIN,
            libc::RT_SCOPE_UNIVERSE,
            libc::RTN_UNICAST,
        ];
        let request = route(gateway, 0, fields);
        self.netlink
            .execute(request.with(libc::RTA_GATEWAY, &octets(gateway)))
    }

    /// Routes packets for `address` alone out of a device, directly to the address. The kernel refuses this if the
    /// device is down.
    pub fn add_host_route(&mut self, name: &str, address: IpAddr) -> io::Result<()> {
        let fields = [libc::RT_TABLE_MAIN, libc::RT_SCOPE_LINK, libc::RTN_UNICAST];
        let length = IpNet::from(address).prefix_len();
        let request = route(address, length, fields)
            .with(libc::RTA_DST, &octets(address))
            .with_u32(libc::RTA_OIF, self.index(name)?);
        self.netlink.execute(request)
    }

    /// Returns the gateways of the main table's routes.
    pub fn gateways(&mut self) -> io::Result<Vec<IpAddr>> {
        let mut found = Vec::new();
        let request = Request::new(libc::RTM_GETROUTE, 0, &[0; HEADER]);
        self.netlink.dump(request, |kind, content| {
            if kind == libc::RTM_NEWROUTE
                && content.get(4) == Some(&libc::RT_TABLE_MAIN)
                && let Some(bytes) = route_attribute(content, libc::RTA_GATEWAY)
            {
                found.extend(from_octets(bytes));
            }
        })?;
        Ok(found)
    }

    /// Removes every route of a table and returns how many there were. Fails with `InvalidInput` for the numbers up to
    /// 255, which include the system's tables.
    pub fn clear_table(&mut self, table: u32) -> io::Result<usize> {
        if u8::try_from(table).is_ok() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut found = Vec::new();
        let request = Request::new(libc::RTM_GETROUTE, 0, &[0; HEADER]);
        self.netlink.dump(request, |kind, content| {
            let here = number(content, libc::RTA_TABLE);
            if kind == libc::RTM_NEWROUTE && here == Some(table) {
                found.push(content.to_vec());
            }
        })?;
        let count = found.len();
        for route in found {
            let Some(mut header) = route.first_chunk::<HEADER>().copied() else {
                continue;
            };
            // Flags describe the route's state and do not identify it.
            header[8..].fill(0);
            let mut request =
                Request::new(libc::RTM_DELROUTE, 0, &header).with_u32(libc::RTA_TABLE, table);
            if let Some(to) = route_attribute(&route, libc::RTA_DST) {
                request = request.with(libc::RTA_DST, to);
            }
            self.netlink.execute(request)?;
        }
        Ok(count)
    }

    /// Adds a rule. Fails with `AlreadyExists`, or with `Unsupported` if the kernel has no routing rules.
    pub fn add_rule(&mut self, rule: RoutingRule) -> io::Result<()> {
        let mut header = [0; HEADER];
        header[0] = family_of(rule.v6);
        header[1] = rule.selector.to.map_or(0, |to| to.prefix_len());
        header[7] = match rule.action {
            RuleAction::Table(_) | RuleAction::Main(_) => TO_TABLE,
            RuleAction::Goto(_) => GO_TO,
            RuleAction::Nop => NO_OPERATION,
        };
        let mut request =
            Request::new(libc::RTM_NEWRULE, CREATE, &header).with_u32(PRIORITY, rule.priority);
        if let Some(to) = rule.selector.to {
            request = request.with(DESTINATION, &octets(to.network()));
        }
        if let Some(mark) = rule.selector.mark {
            request = request.with_u32(MARK, mark);
        }
        if let Some(protocol) = rule.selector.protocol {
            request = request.with(PROTOCOL, &[protocol]);
        }
        for (kind, port) in [
            (SOURCE_PORTS, rule.selector.source_port),
            (DESTINATION_PORTS, rule.selector.port),
        ] {
            if let Some(port) = port {
                let [high, low] = port.to_ne_bytes();
                // struct fib_rule_port_range: first and last.
                request = request.with(kind, &[high, low, high, low]);
            }
        }
        let request = match rule.action {
            RuleAction::Table(table) => request.with_u32(TABLE, table),
            RuleAction::Main(least) => request
                .with_u32(TABLE, libc::RT_TABLE_MAIN.into())
                .with_u32(SUPPRESS_PREFIX_LENGTH, u32::from(least).saturating_sub(1)),
            RuleAction::Goto(priority) => request.with_u32(TARGET, priority),
            RuleAction::Nop => request,
        };
        self.netlink.execute(request)
    }

    /// Removes all rules of this priority, for IPv6 or IPv4. Returns how many there were.
    pub fn remove_rules(&mut self, v6: bool, priority: u32) -> io::Result<usize> {
        let mut removed = 0;
        loop {
            let mut header = [0; HEADER];
            header[0] = family_of(v6);
            let request = Request::new(libc::RTM_DELRULE, 0, &header).with_u32(PRIORITY, priority);
            match self.netlink.execute(request) {
                Ok(()) => removed += 1,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(removed),
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the device by which packets to an address would leave now, if they had this mark; `None` if the device
    /// has no name. Fails with `NetworkUnreachable` or a similar error if there is no route.
    pub fn device_towards(&mut self, address: IpAddr, mark: u32) -> io::Result<Option<String>> {
        let mut header = [0; HEADER];
        (header[0], header[1]) = (family(address), IpNet::from(address).prefix_len());
        let request = Request::new(libc::RTM_GETROUTE, 0, &header)
            .with(libc::RTA_DST, &octets(address))
            .with_u32(libc::RTA_MARK, mark);
        let mut found = None;
        self.netlink
            .exchange(request, libc::NLM_F_ACK, |_, content| {
                found = number(content, libc::RTA_OIF);
            })?;
        Ok(found.and_then(|index| index_to_name(&self.names, index).ok()))
    }
}

/// Makes a request for a new route. `table`, `scope` and `kind` are fields of `struct rtmsg`.
fn route(to: IpAddr, length: u8, [table, scope, kind]: [u8; 3]) -> Request {
    let mut header = [0; HEADER];
    (header[0], header[1]) = (family(to), length);
    header[4..8].copy_from_slice(&[table, libc::RTPROT_STATIC, scope, kind]);
    Request::new(libc::RTM_NEWROUTE, CREATE, &header)
}

fn route_attribute(route: &[u8], wanted: u16) -> Option<&[u8]> {
    attribute(route.get(HEADER..)?, wanted)
}

fn number(route: &[u8], wanted: u16) -> Option<u32> {
    u32_at(route_attribute(route, wanted)?, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::tests::namespaces;
    use crate::{CableEnd, NetNamespace};

    const TABLE: u32 = 29_044;

    fn rule(v6: bool) -> RoutingRule {
        RoutingRule {
            v6,
            priority: TABLE,
            selector: Selector::default(),
            action: RuleAction::Table(TABLE),
        }
    }

    /// Opens this network with the devices `a0` and `c0`, whose other ends are in `there`.
    fn two_cables(there: &NetNamespace) -> io::Result<Network> {
        let end = |name: &'static str| CableEnd {
            name,
            mac: [2, 0, 0, 0, 0, name.as_bytes()[0]],
        };
        let mut network = Network::open()?;
        network.add_cable(end("a0"), end("b0"), there)?;
        network.add_cable(end("c0"), end("d0"), there)?;
        there.within(|| {
            let mut there = Network::open()?;
            there.set_up("b0")?;
            there.set_up("d0")
        })?;
        Ok(network)
    }

    fn cidr(text: &str) -> IpNet {
        text.parse().expect("a network")
    }

    #[test]
    fn a_table_applies_to_its_rule_until_it_is_cleared() {
        let test = "routing::tests::a_table_applies_to_its_rule_until_it_is_cleared";
        let Some((network, there)) = namespaces(test) else {
            return;
        };
        network
            .within(|| {
                let mut network = two_cables(&there)?;
                for (device, v4, v6) in
                    [("a0", "10.9.0.1", "fd09::1"), ("c0", "10.8.0.1", "fd08::1")]
                {
                    network.add_address(device, v4.parse().map_err(io::Error::other)?, 24)?;
                    network.add_address(device, v6.parse().map_err(io::Error::other)?, 64)?;
                    network.set_up(device)?;
                }
                for gateway in ["10.9.0.2", "fd09::2"] {
                    network.add_default_route(gateway.parse().map_err(io::Error::other)?)?;
                }
                for (v6, all, one) in [
                    (false, "192.0.2.0/24", "192.0.2.7"),
                    (true, "2001:db8::/32", "2001:db8::7"),
                ] {
                    let address: IpAddr = one.parse().map_err(io::Error::other)?;
                    let other = cidr(all).network();
                    let towards = |network: &mut Network| -> io::Result<[Option<String>; 2]> {
                        Ok([
                            network.device_towards(address, 0)?,
                            network.device_towards(other, 0)?,
                        ])
                    };
                    let main = Some("a0".to_owned());
                    let ours = Some("c0".to_owned());
                    network.add_route(TABLE, cidr(all), RouteTarget::Device("c0"))?;
                    network.add_route(TABLE, address.into(), RouteTarget::Throw)?;
                    assert_eq!(towards(&mut network)?, [main.clone(), main.clone()]);
                    network.add_rule(rule(v6))?;
                    assert_eq!(towards(&mut network)?, [main.clone(), ours]);
                    let again = network.add_route(TABLE, cidr(all), RouteTarget::Device("c0"));
                    assert_eq!(
                        again.map_err(|error| error.kind()),
                        Err(io::ErrorKind::AlreadyExists)
                    );
                    network.clear_table(TABLE)?;
                    assert_eq!(towards(&mut network)?, [main.clone(), main]);
                    assert_eq!(network.remove_rules(v6, TABLE)?, 1);
                    assert_eq!(network.remove_rules(v6, TABLE)?, 0);
                }
                assert!(
                    network.clear_table(254).is_err(),
                    "the main table must not be cleared"
                );
                Ok(())
            })
            .expect("routes");
    }

    #[test]
    fn routes_of_the_main_table_precede_our_default_route() {
        let test = "routing::tests::routes_of_the_main_table_precede_our_default_route";
        let Some((network, there)) = namespaces(test) else {
            return;
        };
        network
            .within(|| {
                let mut network = two_cables(&there)?;
                network.add_address("a0", IpAddr::from([10, 9, 0, 1]), 24)?;
                network.set_up("a0")?;
                network.set_up("c0")?;
                network.add_default_route(IpAddr::from([10, 9, 0, 2]))?;
                network.add_route(TABLE, cidr("0.0.0.0/0"), RouteTarget::Device("c0"))?;
                let near = RoutingRule {
                    action: RuleAction::Main(1),
                    ..rule(false)
                };
                network.add_rule(near)?;
                network.add_rule(RoutingRule {
                    priority: TABLE + 1,
                    ..rule(false)
                })?;
                let towards = |network: &mut Network, address: [u8; 4]| {
                    network.device_towards(address.into(), 0)
                };
                assert_eq!(towards(&mut network, [10, 9, 0, 7])?.as_deref(), Some("a0"));
                assert_eq!(
                    towards(&mut network, [192, 0, 2, 1])?.as_deref(),
                    Some("c0")
                );
                assert_eq!(network.remove_rules(false, TABLE)?, 1);
                assert_eq!(towards(&mut network, [10, 9, 0, 7])?.as_deref(), Some("c0"));
                // A rule with every condition, and one that leads past that table.
                let past = TABLE + 2;
                let selector = Selector {
                    mark: Some(7),
                    to: Some(cidr("192.0.2.0/24")),
                    ..Selector::default()
                };
                let ports = Selector {
                    protocol: Some(17),
                    source_port: Some(68),
                    port: Some(67),
                    ..selector
                };
                for (priority, selector, action) in [
                    (past, Selector::default(), RuleAction::Nop),
                    (TABLE, selector, RuleAction::Goto(past)),
                    (TABLE, ports, RuleAction::Goto(past)),
                ] {
                    network.add_rule(RoutingRule {
                        v6: false,
                        priority,
                        selector,
                        action,
                    })?;
                }
                for (mark, to, device) in [
                    (7, [192, 0, 2, 1], "a0"),
                    (0, [192, 0, 2, 1], "c0"),
                    (7, [192, 0, 3, 1], "c0"),
                ] {
                    let found = network.device_towards(IpAddr::from(to), mark)?;
                    assert_eq!(found.as_deref(), Some(device), "{mark} {to:?}");
                }
                assert_eq!(network.remove_rules(false, TABLE)?, 2);
                assert_eq!(network.gateways()?, [IpAddr::from([10, 9, 0, 2])]);
                assert!(network.networks("a0")?.iter().all(|it| it.addr().is_ipv6()));
                assert!(network.networks("c0")?.contains(&cidr("10.9.0.0/24")));
                Ok(())
            })
            .expect("routes");
    }
}
