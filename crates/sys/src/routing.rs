//! Tables of routes beside the main one, and the rules that say when they are asked (`ip rule`).

use std::io;
use std::net::IpAddr;

use rustix::net::netdevice::index_to_name;

use crate::cidr::Cidr;
use crate::netlink::{Request, attributes, u32_at};
use crate::network::{CREATE, Network, family, octets};

/// `struct rtmsg` and `struct fib_rule_hdr` have twelve bytes each.
const HEADER: usize = 12;

// linux/fib_rules.h
const TO_TABLE: u8 = 1;
const PRIORITY: u16 = 6;
const SUPPRESS_PREFIX_LENGTH: u16 = 14;
const TABLE: u16 = 15;

/// Where packets to a network go, as a table other than the main one says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way<'a> {
    /// Out of this device, straight to whom they are for.
    Device(&'a str),
    /// As if the table did not exist: the next rule holds.
    Elsewhere,
}

/// When a table is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// For IPv6, rather than IPv4.
    pub v6: bool,
    /// Rules are asked in the order of these numbers; that of the main table is 32766.
    pub priority: u32,
    /// Its number; `None`: the main table, but not for its default route.
    pub table: Option<u32>,
}

impl Network {
    /// Adds a route to a table, which comes to exist with its first one.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` where the table has one for this very network; `NotFound` where there is no such device; the
    /// kernel's refusal.
    pub fn add_route(&mut self, table: u32, to: Cidr, way: Way<'_>) -> io::Result<()> {
        let mut header = route_header(to);
        header[5] = libc::RTPROT_STATIC;
        header[6] = libc::RT_SCOPE_UNIVERSE;
        let request = |header: &[u8]| {
            Request::new(libc::RTM_NEWROUTE, CREATE, header)
                .with(libc::RTA_DST, &octets(to.address()))
                .with_u32(libc::RTA_TABLE, table)
        };
        let request = match way {
            Way::Device(name) => {
                header[6] = libc::RT_SCOPE_LINK;
                header[7] = libc::RTN_UNICAST;
                request(&header).with_u32(libc::RTA_OIF, self.index(name)?)
            }
            Way::Elsewhere => {
                header[7] = libc::RTN_THROW;
                request(&header)
            }
        };
        self.netlink().ask(request)
    }

    /// Removes every route of a table, which must not be one of the system's.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a table that is not ours to clear; the kernel's refusal.
    pub fn clear_table(&mut self, table: u32) -> io::Result<()> {
        if u8::try_from(table).is_ok() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut found = Vec::new();
        let request = Request::new(libc::RTM_GETROUTE, 0, &[0; HEADER]);
        self.netlink().dump(request, |kind, content| {
            let here = attribute(content, libc::RTA_TABLE).and_then(|value| u32_at(value, 0));
            if kind == libc::RTM_NEWROUTE && here == Some(table) {
                found.push(content.to_vec());
            }
        })?;
        for route in found {
            let Some(mut header) = route.first_chunk::<HEADER>().copied() else {
                continue;
            };
            // Flags tell how it is, and are no part of what it is known by.
            header[8..].fill(0);
            let mut request =
                Request::new(libc::RTM_DELROUTE, 0, &header).with_u32(libc::RTA_TABLE, table);
            if let Some(to) = attribute(&route, libc::RTA_DST) {
                request = request.with(libc::RTA_DST, to);
            }
            self.netlink().ask(request)?;
        }
        Ok(())
    }

    /// Adds a rule.
    ///
    /// # Errors
    ///
    /// `AlreadyExists`; `Unsupported` where the kernel knows no rules; its refusal.
    pub fn add_rule(&mut self, rule: Rule) -> io::Result<()> {
        let request = rule_request(libc::RTM_NEWRULE, CREATE, rule);
        self.netlink().ask(request)
    }

    /// Removes a rule; whether there was one.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    pub fn remove_rule(&mut self, rule: Rule) -> io::Result<bool> {
        let request = rule_request(libc::RTM_DELRULE, 0, rule);
        match self.netlink().ask(request) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The device through which packets to an address would leave now; `None` where it has no name.
    ///
    /// # Errors
    ///
    /// `NetworkUnreachable` and its like where there is no way.
    pub fn device_towards(&mut self, address: IpAddr) -> io::Result<Option<String>> {
        let header = route_header(address.into());
        let request =
            Request::new(libc::RTM_GETROUTE, 0, &header).with(libc::RTA_DST, &octets(address));
        let mut found = None;
        self.netlink().ask_for(request, |_, content| {
            found = attribute(content, libc::RTA_OIF).and_then(|value| u32_at(value, 0));
        })?;
        Ok(found.and_then(|index| index_to_name(self.names(), index).ok()))
    }
}

fn route_header(to: Cidr) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[0] = family(to.address());
    header[1] = to.length();
    header
}

fn rule_request(kind: u16, flags: i32, rule: Rule) -> Request {
    let all = if rule.v6 { Cidr::ALL_V6 } else { Cidr::ALL_V4 };
    let mut header = [0; HEADER];
    header[0] = family(all.address());
    header[7] = TO_TABLE;
    let request = Request::new(kind, flags, &header).with_u32(PRIORITY, rule.priority);
    match rule.table {
        Some(table) => request.with_u32(TABLE, table),
        None => request
            .with_u32(TABLE, libc::RT_TABLE_MAIN.into())
            .with_u32(SUPPRESS_PREFIX_LENGTH, 0),
    }
}

fn attribute(route: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(route.get(HEADER..)?)
        .find(|(kind, _)| *kind == wanted)
        .map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::tests::namespaces;
    use crate::{CableEnd, NetNamespace};

    const TABLE: u32 = 29_044;

    fn rule(v6: bool) -> Rule {
        Rule {
            v6,
            priority: TABLE,
            table: Some(TABLE),
        }
    }

    /// This network, with `a0` and `c0`, whose other ends are `there`.
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

    fn cidr(text: &str) -> Cidr {
        text.parse().expect("a network")
    }

    #[test]
    fn a_table_holds_where_its_rule_says_and_is_gone_when_it_is_cleared() {
        let test =
            "routing::tests::a_table_holds_where_its_rule_says_and_is_gone_when_it_is_cleared";
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
                    let address = one.parse().map_err(io::Error::other)?;
                    let other = cidr(all).address();
                    let towards = |network: &mut Network| -> io::Result<[Option<String>; 2]> {
                        Ok([
                            network.device_towards(address)?,
                            network.device_towards(other)?,
                        ])
                    };
                    let main = Some("a0".to_owned());
                    let ours = Some("c0".to_owned());
                    network.add_route(TABLE, cidr(all), Way::Device("c0"))?;
                    network.add_route(TABLE, cidr(one), Way::Elsewhere)?;
                    assert_eq!(towards(&mut network)?, [main.clone(), main.clone()]);
                    network.add_rule(rule(v6))?;
                    assert_eq!(towards(&mut network)?, [main.clone(), ours]);
                    let again = network.add_route(TABLE, cidr(all), Way::Device("c0"));
                    assert_eq!(
                        again.map_err(|error| error.kind()),
                        Err(io::ErrorKind::AlreadyExists)
                    );
                    network.clear_table(TABLE)?;
                    assert_eq!(towards(&mut network)?, [main.clone(), main]);
                    assert!(network.remove_rule(rule(v6))?);
                    assert!(!network.remove_rule(rule(v6))?);
                }
                assert!(
                    network.clear_table(254).is_err(),
                    "the main table is not ours"
                );
                Ok(())
            })
            .expect("routes");
    }

    #[test]
    fn before_a_default_route_of_ours_the_main_table_is_asked_for_the_rest() {
        let test =
            "routing::tests::before_a_default_route_of_ours_the_main_table_is_asked_for_the_rest";
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
                network.add_route(TABLE, Cidr::ALL_V4, Way::Device("c0"))?;
                let near = Rule {
                    v6: false,
                    priority: TABLE,
                    table: None,
                };
                network.add_rule(near)?;
                network.add_rule(Rule {
                    priority: TABLE + 1,
                    ..rule(false)
                })?;
                let towards = |network: &mut Network, address: [u8; 4]| {
                    network.device_towards(address.into())
                };
                assert_eq!(towards(&mut network, [10, 9, 0, 7])?.as_deref(), Some("a0"));
                assert_eq!(
                    towards(&mut network, [192, 0, 2, 1])?.as_deref(),
                    Some("c0")
                );
                assert!(network.remove_rule(near)?);
                assert_eq!(towards(&mut network, [10, 9, 0, 7])?.as_deref(), Some("c0"));
                Ok(())
            })
            .expect("routes");
    }
}
