//! Two networks with a link between them.

use std::io;
use std::thread::{self, JoinHandle};

use quictun_emu::{Audit, EmulatorConfig, Stop, emulate};
use quictun_skip::as_own_root;
use quictun_sys::{CableEnd, Ethtool, NetNamespace, Network, PacketSocket, set_sysctl};

/// Two networks, and a router between them in which the emulator runs.
pub(crate) struct Networks {
    pub(crate) near: NetNamespace,
    pub(crate) far: NetNamespace,
    router: NetNamespace,
}

/// An emulator that runs on a thread of its own.
pub(crate) struct RunningEmulator {
    stop: Stop,
    thread: JoinHandle<io::Result<Audit>>,
}

pub(crate) const FAR: [&str; 2] = ["100.64.9.2", "fd00:9::2"];
const NEAR: [&str; 2] = ["100.64.9.1", "fd00:9::1"];
const NEAR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const FAR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

impl Networks {
    /// Returns `None` if this process may not create namespaces: the test `name` has then run in a child process that
    /// may, or was skipped.
    pub(crate) fn new(name: &str) -> Option<Self> {
        let made = || {
            Ok([
                NetNamespace::new()?,
                NetNamespace::new()?,
                NetNamespace::new()?,
            ])
        };
        match made().map_err(|error: io::Error| error.kind()) {
            Ok([near, far, router]) => {
                let networks = Self { near, far, router };
                networks.connect().expect("connect namespaces");
                Some(networks)
            }
            Err(io::ErrorKind::PermissionDenied) => {
                as_own_root(&format!("across::{name}"));
                None
            }
            Err(error) => panic!("cannot create namespaces: {error}"),
        }
    }

    fn connect(&self) -> io::Result<()> {
        for (namespace, [own, theirs], macs, addresses) in [
            (
                &self.near,
                ["a0", "ra"],
                [NEAR_MAC, [2, 0, 0, 0, 1, 1]],
                [NEAR, FAR],
            ),
            (
                &self.far,
                ["b0", "rb"],
                [FAR_MAC, [2, 0, 0, 0, 1, 2]],
                [FAR, NEAR],
            ),
        ] {
            let end = |name, mac| CableEnd { name, mac };
            let (here, there) = (end(own, macs[0]), end(theirs, macs[1]));
            namespace.within(|| Network::open()?.add_cable(here, there, &self.router))?;
            self.router.within(|| {
                set_sysctl(&format!("net/ipv6/conf/{theirs}/disable_ipv6"), "1")?;
                Network::open()?.set_up(theirs)
            })?;
            let other = if own == "a0" { FAR_MAC } else { NEAR_MAC };
            namespace.within(|| {
                let mut network = Network::open()?;
                for (address, prefix) in addresses[0].into_iter().zip([24, 64]) {
                    network.add_address(own, address.parse().expect("valid address"), prefix)?;
                }
                network.set_up(own)?;
                for address in addresses[1] {
                    network.add_neighbour(own, address.parse().expect("valid address"), other)?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Switches features of the devices at both ends.
    pub(crate) fn set_features(&self, features: &[(&str, bool)]) {
        for (namespace, device) in [(&self.near, "a0"), (&self.far, "b0")] {
            namespace
                .within(|| Ethtool::open(device)?.set_features(features))
                .expect("set features");
        }
    }

    pub(crate) fn start(&self, plan: EmulatorConfig) -> RunningEmulator {
        let open = || Ok([PacketSocket::open("ra")?, PacketSocket::open("rb")?]);
        let ends = self.router.within(open).expect("open sockets");
        let stop = Stop::new().expect("create eventfd");
        let told = stop.clone();
        let thread = thread::spawn(move || emulate(&ends, plan, &told));
        RunningEmulator { stop, thread }
    }

    /// Returns the number of wrong checksums that both ends found, and of headers that they could not read.
    pub(crate) fn bad_checksums(&self) -> u64 {
        let count = || {
            let v4 = std::fs::read_to_string("/proc/thread-self/net/snmp")?;
            let v6 = std::fs::read_to_string("/proc/thread-self/net/snmp6")?;
            Ok(errors_v4(&v4) + errors_v6(&v6))
        };
        [&self.near, &self.far]
            .into_iter()
            .map(|namespace| namespace.within(count).expect("read counters"))
            .sum()
    }
}

impl RunningEmulator {
    pub(crate) fn stop(self) -> Audit {
        self.stop.stop();
        self.thread.join().expect("no panic").expect("emulate")
    }
}

/// Sums the errors in the IPv4 counters. Each protocol has two lines: names, then numbers.
fn errors_v4(text: &str) -> u64 {
    let lines: Vec<&str> = text.lines().collect();
    let pairs = lines.chunks_exact(2).flat_map(|pair| {
        let names = pair[0].split_whitespace();
        names.zip(pair[1].split_whitespace())
    });
    pairs
        .filter(|(name, _)| matches!(*name, "InCsumErrors" | "InHdrErrors"))
        .map(|(_, count)| count.parse::<u64>().expect("number"))
        .sum()
}

fn errors_v6(text: &str) -> u64 {
    let pairs = text
        .lines()
        .filter_map(|line| line.split_once(char::is_whitespace));
    pairs
        .filter(|(name, _)| name.ends_with("InCsumErrors") || name.ends_with("InHdrErrors"))
        .map(|(_, count)| count.trim().parse::<u64>().expect("number"))
        .sum()
}
