//! The servers that a client dials, in the places that its engines number, and how a reload changes them.
//!
//! A server keeps its place for as long as the process runs. If the configuration no longer names it, it keeps its open
//! flows and gets no new ones. A server that is added gets the next place.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quictun_engine::ServerPlace;
use quictun_engine::report::ServerId;

use super::dial_rules::DialRules;
use crate::service::places::expand_services;
use crate::settings::{Address, SERVERS_MAX};

/// The places of all servers. Clones of an `Arc` share it.
#[derive(Debug, Default)]
pub(crate) struct DialledServers {
    places: Mutex<Vec<DialledPlace>>,
    limits: PlaceLimits,
}

/// One server or one place of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DialledPlace {
    pub(crate) address: Address,
    /// True if the configuration names the server.
    pub(crate) wanted: bool,
    /// The server's TCP port for TLS, if it is another one than that of its address.
    pub(crate) tls_port: Option<u16>,
}

/// The reasons why a running client cannot dial other servers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PlaceLimits {
    /// A device's routes, or addresses given at the start, lead to the servers of the start.
    pub(crate) fixed: bool,
    /// The UDP sockets reach IPv4 only, because all servers of the start have IPv4 addresses.
    pub(crate) ipv4_only: bool,
}

/// A server for the workers.
#[derive(Clone, Debug)]
pub(crate) struct DialledServer {
    pub(crate) address: Address,
    /// `None` if the server keeps the rules that it has.
    pub(crate) rules: Option<Arc<DialRules>>,
}

impl DialledServers {
    /// Creates the places of these addresses, in which each service occurs once for each of its places.
    pub(crate) fn new(dialled: &[Address], limits: PlaceLimits) -> Self {
        let places = dialled.iter().map(|address| DialledPlace {
            address: address.clone(),
            wanted: true,
            tls_port: None,
        });
        Self {
            places: Mutex::new(places.collect()),
            limits,
        }
    }

    /// Returns the address to dial in a place.
    pub(crate) fn address(&self, server: ServerId) -> Option<Address> {
        Some(self.lock().get(server.0)?.address.clone())
    }

    /// Returns the place of the server with this address, if the configuration names it.
    pub(crate) fn find(&self, address: &str) -> Option<ServerId> {
        let places = self.lock();
        let mut each = places.iter();
        let found = each.position(|it| it.wanted && it.address.to_string() == address);
        found.map(ServerId)
    }

    /// Returns the TCP port of the server in a place, if it is another one than that of its address.
    pub(crate) fn tls_port(&self, server: ServerId) -> Option<u16> {
        self.lock().get(server.0)?.tls_port
    }

    pub(crate) fn places(&self) -> Vec<DialledPlace> {
        self.lock().clone()
    }

    pub(crate) fn set(&self, places: Vec<DialledPlace>) {
        *self.lock() = places;
    }

    /// Returns the places if the configuration names these servers, or `None` if that needs a restart.
    pub(crate) fn plan(&self, named: &[Address]) -> Option<Vec<DialledPlace>> {
        let mut places = self.places();
        let wanted = |places: &[DialledPlace]| -> Vec<Address> {
            let wanted = places.iter().filter(|place| place.wanted);
            wanted.map(|place| place.address.clone()).collect()
        };
        if self.limits.fixed {
            return (wanted(&places) == expand_services(named)).then_some(places);
        }
        let services = |all: &[Address]| -> Vec<Address> {
            let services = all.iter().filter(|address| address.at().is_none());
            let mut services: Vec<Address> = services.cloned().collect();
            services.dedup();
            services
        };
        if services(named) != services(&wanted(&places)) {
            return None;
        }
        for place in &mut places {
            place.wanted = named.contains(&place.address);
        }
        for address in named {
            if places.iter().any(|place| place.address == *address) {
                continue;
            }
            let is_ipv6 = address.name().parse::<std::net::Ipv6Addr>().is_ok();
            if places.len() >= SERVERS_MAX || (self.limits.ipv4_only && is_ipv6) {
                return None;
            }
            places.push(DialledPlace {
                address: address.clone(),
                wanted: true,
                tls_port: None,
            });
        }
        Some(places)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<DialledPlace>> {
        // The list is replaced as a whole.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DialledPlace {
    /// Returns the place as the engines need it. The records of a service decide about its places.
    pub(crate) fn place(&self) -> Option<ServerPlace> {
        self.address.at()?;
        Some(ServerPlace {
            wanted: self.wanted,
            tls_port: self.tls_port,
            ..ServerPlace::default()
        })
    }
}

/// Returns one sentence for each server that only one of the lists has, or that has another TCP port.
pub(super) fn changes(old: &[DialledPlace], new: &[DialledPlace]) -> Vec<String> {
    let names = |all: &[DialledPlace], address: &Address| {
        let mut all = all.iter();
        all.any(|place| place.wanted && place.address == *address)
    };
    let port = |all: &[DialledPlace], address: &Address| {
        let place = all.iter().find(|place| place.address == *address);
        place.and_then(|place| place.tls_port)
    };
    let addresses = new.iter().map(|place| &place.address);
    let lines = addresses.filter_map(|address| match (names(old, address), names(new, address)) {
        (true, false) => Some(format!("server {address}: removed; its flows continue")),
        (false, true) => Some(format!("server {address}: added")),
        (true, true) if port(old, address) != port(new, address) => {
            let port =
                port(new, address).map_or("that of its address".to_owned(), |it| it.to_string());
            Some(format!("server {address}: its TCP port is {port}"))
        }
        _ => None,
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<Address> {
        let at = |text: &&str| match text.strip_prefix("srv:") {
            Some(domain) => {
                let service = quictun_wire::srv::ServiceName::parse(domain);
                Address::Service(service.expect("a service"))
            }
            None => Address::At(crate::settings::HostPort {
                host: (*text).to_owned(),
                port: 7500,
            }),
        };
        texts.iter().map(at).collect()
    }

    fn planned(limits: PlaceLimits, old: &[&str], new: &[&str]) -> Option<Vec<String>> {
        let servers = DialledServers::new(&expand_services(&addresses(old)), limits);
        let places = servers.plan(&addresses(new))?;
        let shown = places.iter().map(|place| {
            let mark = if place.wanted { "+" } else { "-" };
            format!("{mark}{}", place.address.name())
        });
        Some(shown.collect())
    }

    #[test]
    fn a_server_keeps_its_place_and_an_added_one_gets_the_next() {
        let planned = |old: &[&str], new: &[&str]| planned(PlaceLimits::default(), old, new);
        let shown = |texts: &[&str]| Some(texts.iter().map(|text| (*text).to_owned()).collect());
        assert_eq!(planned(&["a"], &["a"]), shown(&["+a"]));
        assert_eq!(planned(&["a"], &["b"]), shown(&["-a", "+b"]));
        assert_eq!(
            planned(&["a", "b"], &["c", "b"]),
            shown(&["-a", "+b", "+c"])
        );
    }

    #[test]
    fn a_server_is_found_by_its_address_while_the_configuration_names_it() {
        let limits = PlaceLimits::default();
        let servers = DialledServers::new(&addresses(&["a", "b"]), limits);
        assert_eq!(servers.find("b:7500"), Some(ServerId(1)));
        servers.set(servers.plan(&addresses(&["a"])).expect("no restart"));
        assert_eq!(servers.find("b:7500"), None);
        assert_eq!(servers.find("a:1"), None);
    }

    #[test]
    fn what_a_running_client_cannot_dial_needs_a_restart() {
        let many: Vec<String> = (0..SERVERS_MAX).map(|n| format!("s{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let none = PlaceLimits::default();
        assert!(planned(none, &many, &many).is_some());
        assert_eq!(planned(none, &many, &["other"]), None);
        assert_eq!(planned(none, &["a"], &["a", "srv:example.com"]), None);
        assert_eq!(planned(none, &["srv:example.com"], &["a"]), None);
        let (fixed, ipv4_only) = (true, true);
        let fixed = PlaceLimits { fixed, ..none };
        assert!(planned(fixed, &["a"], &["a"]).is_some());
        assert_eq!(planned(fixed, &["a"], &["b"]), None);
        let ipv4_only = PlaceLimits { ipv4_only, ..none };
        assert_eq!(planned(ipv4_only, &["192.0.2.1"], &["2001:db8::1"]), None);
        assert!(planned(none, &["192.0.2.1"], &["2001:db8::1"]).is_some());
    }
}
