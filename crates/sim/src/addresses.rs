//! The addresses of the hosts, and the host at each address.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

/// UDP port of a host that does not share its address.
pub(crate) const PORT: u16 = 7500;

/// First two octets of every address.
const PREFIX: [u8; 2] = [10, 0];

/// Allocates addresses, each one only once, and maps them to hosts.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    hosts: u16,
    /// Number of ports allocated besides [`PORT`].
    ports: u16,
    owners: BTreeMap<SocketAddrV4, usize>,
}

impl Addresses {
    pub(crate) fn next(&mut self) -> SocketAddr {
        self.hosts = self.hosts.checked_add(1).expect("at most 65535 addresses");
        let [high, low] = self.hosts.to_be_bytes();
        let ip = Ipv4Addr::new(PREFIX[0], PREFIX[1], high, low);
        SocketAddr::new(IpAddr::V4(ip), PORT)
    }

    /// Allocates another port of the address `neighbour`, as a NAT does for the hosts behind it.
    pub(crate) fn beside(&mut self, neighbour: SocketAddr) -> SocketAddr {
        self.ports += 1;
        SocketAddr::new(neighbour.ip(), PORT + self.ports)
    }

    pub(crate) fn assign(&mut self, address: SocketAddr, host: usize) {
        self.owners.retain(|_, owner| *owner != host);
        if let SocketAddr::V4(address) = address {
            self.owners.insert(address, host);
        }
    }

    /// Removes an address: packets to it are lost from now on.
    pub(crate) fn withdraw(&mut self, address: SocketAddr) {
        if let SocketAddr::V4(address) = address {
            self.owners.remove(&address);
        }
    }

    pub(crate) fn host(&self, address: SocketAddrV4) -> Option<usize> {
        self.owners.get(&address).copied()
    }
}
