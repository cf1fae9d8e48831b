use super::*;
use quictun_skip::as_own_root;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use crate::Ethtool;

const MAC_A: [u8; 6] = [2, 0, 0, 0, 0, 1];
const MAC_B: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// Makes two namespaces. `None` if the test ran in a child process that may make them, or if no process may.
pub(crate) fn namespaces(test: &str) -> Option<(NetNamespace, NetNamespace)> {
    let made = NetNamespace::new().and_then(|first| Ok((first, NetNamespace::new()?)));
    if let Ok(pair) = made {
        return Some(pair);
    }
    as_own_root(test);
    None
}

impl Network {
    /// Removes a device. If it is one end of a cable, the other end goes with it.
    pub(crate) fn remove(&mut self, name: &str) -> io::Result<()> {
        let header = device_header(self.index(name)?, 0);
        self.netlink
            .execute(Request::new(libc::RTM_DELLINK, 0, &header))
    }
}

pub(crate) fn ends() -> (CableEnd<'static>, CableEnd<'static>) {
    let end = |name, mac| CableEnd { name, mac };
    (end("a0", MAC_A), end("b0", MAC_B))
}

fn configure(device: &str, own: [&str; 2], other: [&str; 2], mac: [u8; 6]) -> io::Result<()> {
    let mut network = Network::open()?;
    network.set_mtu(device, 1400)?;
    for (address, prefix) in own.into_iter().zip([24, 64]) {
        network.add_address(device, address.parse().expect("an address"), prefix)?;
    }
    network.set_up(device)?;
    for address in other {
        let address = address.parse().expect("an address");
        network.add_neighbour(device, address, mac)?;
        network.add_default_route(address)?;
    }
    Ok(())
}

#[test]
fn two_networks_joined_by_a_cable_need_no_neighbour_discovery() {
    let Some((a, b)) =
        namespaces("network::tests::two_networks_joined_by_a_cable_need_no_neighbour_discovery")
    else {
        return;
    };
    let (here, there) = ends();
    a.within(|| Network::open()?.add_cable(here, there, &b))
        .expect("a cable");
    let (addresses_a, addresses_b) = (["100.64.9.1", "fd00:9::1"], ["100.64.9.2", "fd00:9::2"]);
    a.within(|| configure("a0", addresses_a, addresses_b, MAC_B))
        .expect("one end");
    b.within(|| configure("b0", addresses_b, addresses_a, MAC_A))
        .expect("the other end");
    for address in addresses_b {
        let address: IpAddr = address.parse().expect("an address");
        let listener = b
            .within(|| TcpListener::bind((address, 0)))
            .expect("a port of the far network");
        let port = listener.local_addr().expect("bound").port();
        let mut near = a
            .within(|| TcpStream::connect((address, port)))
            .expect("the cable");
        near.write_all(b"across").expect("connected");
        drop(near);
        let mut said = String::new();
        let (mut far, _) = listener.accept().expect("a connection");
        far.read_to_string(&mut said).expect("the sent bytes");
        assert_eq!(said, "across");
    }
    let known = b
        .within(|| Network::open()?.addresses())
        .expect("addresses");
    for address in addresses_b {
        let address = address.parse().expect("an address");
        assert!(known.contains(&address), "{known:?}");
    }
    let mtu = b
        .within(|| fs::read_to_string("/proc/sys/net/ipv6/conf/b0/mtu"))
        .expect("a setting");
    assert_eq!(mtu.trim(), "1400");
}

#[test]
fn taken_and_missing_names_are_errors() {
    let Some((a, b)) = namespaces("network::tests::taken_and_missing_names_are_errors") else {
        return;
    };
    let (here, there) = ends();
    a.within(|| {
        let mut network = Network::open()?;
        network.add_cable(here, there, &b)?;
        let error = network.add_cable(here, there, &b).expect_err("taken");
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{error}");
        network.set_up("a0")?;
        network.remove("a0")?;
        let error = network.set_up("a0").expect_err("no such device");
        assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
        network
            .set_up("a-name-that-is-much-too-long")
            .expect_err("the name is too long");
        Ok(())
    })
    .expect("a cable made and removed");
    b.within(|| Network::open()?.set_up("b0"))
        .expect_err("b0 was removed with its other end");
}

#[test]
fn features_and_segment_limits_are_set_and_read_back() {
    let Some((a, b)) =
        namespaces("network::tests::features_and_segment_limits_are_set_and_read_back")
    else {
        return;
    };
    let (here, there) = ends();
    a.within(|| {
        let mut network = Network::open()?;
        network.add_cable(here, there, &b)?;
        let device = Ethtool::open("a0")?;
        for on in [false, true] {
            for name in ["tx-tcp-segmentation", "tx-udp-segmentation", "rx-gro"] {
                device.set_features(&[(name, on), ("of-another-kernel", on)])?;
                assert_eq!(device.feature(name)?, Some(on), "{name}");
            }
        }
        assert_eq!(device.feature("of-another-kernel")?, None);
        assert!(device.can_change("rx-gro")?);
        for fixed in ["loopback", "of-another-kernel"] {
            assert!(!device.can_change(fixed)?, "{fixed}");
        }
        let error = Ethtool::open("a1").expect_err("no such device");
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV), "{error}");
        let error = Ethtool::open("a-name-that-is-much-too-long").expect_err("too long");
        assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");

        network.set_segment_limit("a0", IpVersion::V6, 185_000)?;
        network.set_segment_limit("a0", IpVersion::V4, 185_000)?;
        network
            .set_segment_limit("a0", IpVersion::V4, 600_000)
            .expect_err("more than the kernel can");
        Ok(())
    })
    .expect("a device");
}
