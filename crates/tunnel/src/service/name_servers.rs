//! The name servers of this machine: those of `/etc/resolv.conf` (resolv.conf(5)).

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use quictun_control::log::Untrusted;
use tracing::warn;

use crate::zone;

const LIST: &str = "/etc/resolv.conf";

const PORT: u16 = 53;

/// Limit of name servers: as many as the C library asks.
const NAME_SERVERS_MAX: usize = 3;

/// Number of bytes of the file that are read: some hundred lines.
const LIST_MAX: usize = 64 * 1024;

/// The name servers to ask, and those that cannot be asked.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NameServers {
    pub(super) each: Vec<SocketAddr>,
    unusable: Vec<Unusable>,
}

/// A name server that cannot be asked.
#[derive(Debug, PartialEq, Eq)]
struct Unusable {
    written: String,
    reason: String,
}

/// Reads the list of name servers again, since another network has other ones. Without a list, this machine is the name
/// server.
pub(super) fn of_system() -> NameServers {
    let list = std::fs::read(Path::new(LIST)).unwrap_or_default();
    let list = list.get(..LIST_MAX).unwrap_or(&list);
    read(&String::from_utf8_lossy(list), quictun_sys::device_index)
}

impl NameServers {
    /// Logs the name servers that cannot be asked, except those that `before` has as well.
    pub(super) fn log_unusable(&self, before: &Self) {
        let new = self.unusable.iter();
        for server in new.filter(|it| !before.unusable.contains(it)) {
            let (name_server, reason) = (Untrusted(&server.written), Untrusted(&server.reason));
            warn!(target: "quictun", %name_server, %reason, list = LIST, "a name server is not asked for the records of services");
        }
    }
}

fn read(list: &str, index: impl Fn(&str) -> io::Result<u32>) -> NameServers {
    let mut servers = NameServers::default();
    for line in list.lines() {
        let mut words = line.split_whitespace();
        let is_server = words.next() == Some("nameserver");
        let Some(written) = words.next().filter(|_| is_server) else {
            continue;
        };
        match address(written, &index) {
            Ok(address) => servers.each.push(address),
            Err(reason) => servers.unusable.push(Unusable {
                written: written.to_owned(),
                reason,
            }),
        }
    }
    servers.each.truncate(NAME_SERVERS_MAX);
    servers.unusable.truncate(NAME_SERVERS_MAX);
    if servers.each.is_empty() {
        let this_machine = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), PORT);
        servers.each.push(this_machine);
    }
    servers
}

/// Parses an address. A link-local one has the name or the index of its device after `%` (RFC 4007 section 11).
fn address(written: &str, index: impl Fn(&str) -> io::Result<u32>) -> Result<SocketAddr, String> {
    let no_address = || "it is not an IP address".to_owned();
    if let Some(scoped) = zone::parse(written, PORT, index) {
        return scoped;
    }
    let address: IpAddr = written.parse().map_err(|_| no_address())?;
    Ok(SocketAddr::new(address, PORT))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Knows the index of one device.
    fn index(name: &str) -> io::Result<u32> {
        match name {
            "eth0" => Ok(7),
            _ => Err(io::Error::other("no such device")),
        }
    }

    fn shown(list: &str) -> Vec<String> {
        let servers = read(list, index).each;
        servers.iter().map(SocketAddr::to_string).collect()
    }

    #[test]
    fn the_first_three_are_asked_and_without_any_this_machine_is() {
        let list = "# nameserver 192.0.2.9\nsearch example.com\nnameserver 192.0.2.1\n\
            nameserver\t2001:db8::1 # why\nnameservers 192.0.2.8\n\
            nameserver 192.0.2.2\noptions edns0\nnameserver 192.0.2.3\n";
        assert_eq!(
            shown(list),
            ["192.0.2.1:53", "[2001:db8::1]:53", "192.0.2.2:53"]
        );
        for list in ["", "nameserver", "nameserver x\n; nameserver 192.0.2.1"] {
            assert_eq!(shown(list), ["127.0.0.1:53"]);
        }
    }

    #[test]
    fn a_name_server_on_a_link_is_asked_through_its_device() {
        let list = "nameserver fe80::1%eth0\nnameserver fe80::2%12\nnameserver fe80::3%wlan9\n\
            nameserver 192.0.2.1%eth0\nnameserver 192.0.2.2\n";
        assert_eq!(
            shown(list),
            ["[fe80::1%7]:53", "[fe80::2%12]:53", "192.0.2.2:53"]
        );
        let unusable = read(list, index).unusable.into_iter();
        let unusable: Vec<_> = unusable.map(|it| (it.written, it.reason)).collect();
        let expected = [
            ("fe80::3%wlan9", "device wlan9: no such device"),
            ("192.0.2.1%eth0", "it is not an IP address"),
        ];
        assert_eq!(
            unusable,
            expected.map(|(it, why)| (it.to_owned(), why.to_owned()))
        );
    }
}
