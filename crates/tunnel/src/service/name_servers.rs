//! The name servers of this machine: those of `/etc/resolv.conf` (resolv.conf(5)).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

const LIST: &str = "/etc/resolv.conf";

const PORT: u16 = 53;

/// Limit of name servers: as many as the C library asks.
const NAME_SERVERS_MAX: usize = 3;

/// Number of bytes of the file that are read: some hundred lines.
const LIST_MAX: usize = 64 * 1024;

/// Reads the list of name servers anew, since another network has other ones. Without a list, this machine is the name
/// server.
pub(super) fn of_system() -> Vec<SocketAddr> {
    let list = std::fs::read(Path::new(LIST)).unwrap_or_default();
    let list = list.get(..LIST_MAX).unwrap_or(&list);
    read(&String::from_utf8_lossy(list))
}

fn read(list: &str) -> Vec<SocketAddr> {
    let servers = list.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let is_server = words.next() == Some("nameserver");
        // An address with an interface's name is left out, since the list usually has others.
        let address: IpAddr = words.next().filter(|_| is_server)?.parse().ok()?;
        Some(SocketAddr::new(address, PORT))
    });
    let mut servers: Vec<SocketAddr> = servers.take(NAME_SERVERS_MAX).collect();
    if servers.is_empty() {
        servers.push(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), PORT));
    }
    servers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_three_are_asked_and_without_any_this_machine_is() {
        let list = "# nameserver 192.0.2.9\nsearch example.com\nnameserver 192.0.2.1\n\
            nameserver\t2001:db8::1 # why\nnameserver fe80::1%eth0\nnameservers 192.0.2.8\n\
            nameserver 192.0.2.2\noptions edns0\nnameserver 192.0.2.3\n";
        let shown: Vec<String> = read(list).iter().map(SocketAddr::to_string).collect();
        assert_eq!(shown, ["192.0.2.1:53", "[2001:db8::1]:53", "192.0.2.2:53"]);
        for list in ["", "nameserver", "nameserver x\n; nameserver 192.0.2.1"] {
            assert_eq!(read(list), ["127.0.0.1:53".parse().expect("an address")]);
        }
    }
}
