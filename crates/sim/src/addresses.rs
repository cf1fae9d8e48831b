//! Which host an address belongs to.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

/// UDP port of a host that has its address for itself.
const PORT: u16 = 7500;

/// The first half of every address.
const PREFIX: [u8; 2] = [10, 0];

/// Addresses are given one after the other, and never twice.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    hosts: u16,
    /// Ports given beside [`PORT`].
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

    /// Another port of an address, as a translator gives to the hosts behind it.
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

    /// Packets to the address are lost from now on.
    pub(crate) fn withdraw(&mut self, address: SocketAddr) {
        if let SocketAddr::V4(address) = address {
            self.owners.remove(&address);
        }
    }

    pub(crate) fn host(&self, address: SocketAddrV4) -> Option<usize> {
        self.owners.get(&address).copied()
    }
}
