//! Which host an address belongs to.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

/// UDP port of every host.
const PORT: u16 = 7500;

/// The first half of every address.
const PREFIX: [u8; 2] = [10, 0];

/// Addresses are given one after the other, and never twice.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    /// The owner of each address given, by its last two bytes less one.
    owners: Vec<Option<usize>>,
}

impl Addresses {
    /// An address that nobody has had.
    pub(crate) fn next(&mut self) -> SocketAddr {
        self.owners.push(None);
        let number = u16::try_from(self.owners.len()).expect("at most 65535 addresses");
        let [high, low] = number.to_be_bytes();
        let ip = Ipv4Addr::new(PREFIX[0], PREFIX[1], high, low);
        SocketAddr::new(IpAddr::V4(ip), PORT)
    }

    /// Gives a host an address, and takes those that it had.
    pub(crate) fn assign(&mut self, address: SocketAddr, host: usize) {
        for owner in &mut self.owners {
            *owner = owner.filter(|&owner| owner != host);
        }
        if let SocketAddr::V4(address) = address
            && let Some(owner) = index(address).and_then(|index| self.owners.get_mut(index))
        {
            *owner = Some(host);
        }
    }

    /// The host that an address belongs to.
    pub(crate) fn host(&self, address: SocketAddrV4) -> Option<usize> {
        *self.owners.get(index(address)?)?
    }
}

fn index(address: SocketAddrV4) -> Option<usize> {
    let [first, second, high, low] = address.ip().octets();
    let ours = [first, second] == PREFIX && address.port() == PORT;
    let number = usize::from(u16::from_be_bytes([high, low]));
    number.checked_sub(1).filter(|_| ours)
}
