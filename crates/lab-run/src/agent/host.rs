//! Facts about a machine, and about its route to another one.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use quictun_io::udp_port::{any_address, path_mtu};
use quictun_sys::{Ethtool, NetNamespace, Network};

use super::message::Counters;
use crate::environment;

/// Features of a network device that decide how much work a packet causes.
const FEATURES: [&str; 4] = [
    "tx-tcp-segmentation",
    "tx-udp-segmentation",
    "tx-generic-segmentation",
    "rx-gro",
];

/// The port for route look-ups. Nothing is sent to it.
const DISCARD: u16 = 9;

/// Returns facts about the machine and about the device that leads to `other`.
pub(crate) fn facts(other: IpAddr) -> BTreeMap<String, String> {
    let mut all = environment::snapshot();
    if let Some((own, device)) = route_to(other) {
        all.insert("own address".to_owned(), own.to_string());
        let payload = path_mtu(None)(SocketAddr::new(other, DISCARD));
        let headers = if other.is_ipv4() { 28 } else { 48 };
        all.insert(
            "MTU of the way".to_owned(),
            (u32::from(payload) + headers).to_string(),
        );
        all.insert("offloads".to_owned(), offloads(&device));
        all.insert("device".to_owned(), device);
    }
    all
}

fn route_to(other: IpAddr) -> Option<(IpAddr, String)> {
    let socket = UdpSocket::bind(any_address(other.is_ipv6())).ok()?;
    // Connecting a UDP socket sends nothing: the kernel only looks up the route.
    socket.connect(SocketAddr::new(other, DISCARD)).ok()?;
    let own = socket.local_addr().ok()?.ip();
    let device = Network::open().ok()?.device_of(own).ok()??;
    Some((own, device))
}

fn offloads(device: &str) -> String {
    let Ok(ethtool) = Ethtool::open(device) else {
        return "unknown".to_owned();
    };
    let state = |name: &&str| match ethtool.feature(name) {
        Ok(Some(true)) => format!("{name} on"),
        Ok(Some(false)) => format!("{name} off"),
        Ok(None) | Err(_) => format!("{name} unknown"),
    };
    FEATURES.iter().map(state).collect::<Vec<_>>().join(", ")
}

impl Counters {
    pub(crate) fn read(network: &NetNamespace) -> Self {
        let text = network.within(|| fs::read_to_string("/proc/thread-self/net/snmp"));
        Self::find(&text.unwrap_or_default())
    }

    /// Parses `/proc/net/snmp`, which has a line of names and a line of numbers for each protocol.
    fn find(text: &str) -> Self {
        let find = |protocol: &str, name: &str| -> Option<u64> {
            let mut lines = text.lines().filter_map(|line| line.strip_prefix(protocol));
            let (names, numbers) = (lines.next()?, lines.next()?);
            let column = names.split_whitespace().position(|known| known == name)?;
            numbers.split_whitespace().nth(column)?.parse().ok()
        };
        Self {
            tcp_resent: find("Tcp:", "RetransSegs").unwrap_or_default(),
            udp_overflows: find("Udp:", "RcvbufErrors").unwrap_or_default(),
        }
    }

    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            tcp_resent: self.tcp_resent.saturating_sub(before.tcp_resent),
            udp_overflows: self.udp_overflows.saturating_sub(before.udp_overflows),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_name_and_missing_ones_are_none() {
        let text =
            "Ip: A B\nIp: 1 2\nTcp: InSegs RetransSegs\nTcp: 5 7\nUdp: RcvbufErrors X\nUdp: 3 4\n";
        let counters = Counters::find(text);
        assert_eq!((counters.tcp_resent, counters.udp_overflows), (7, 3));
        assert_eq!(Counters::find("Tcp: RetransSegs\n"), Counters::default());
        let later = Counters {
            tcp_resent: 9,
            udp_overflows: 3,
        };
        assert_eq!(later.since(counters).tcp_resent, 2);
    }
}
