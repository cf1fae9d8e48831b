//! Devices, addresses, neighbours and routes of a network namespace.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use ipnet::IpNet;
use rustix::io::Errno;
use rustix::net::netdevice::{index_to_name, name_to_index};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::net_namespace::NetNamespace;
use crate::netlink::{Netlink, Request, attribute, u32_at};

#[cfg(test)]
pub(crate) mod tests;

/// Length of `struct ifinfomsg`.
const DEVICE_HEADER: usize = 16;

/// The other end of a veth pair, `VETH_INFO_PEER`.
const VETH_PEER: u16 = 1;

/// The address may be used at once, without duplicate address detection: `IFA_F_NODAD`.
const NO_DETECTION: u8 = 2;

/// The network namespace that the calling thread was in when this was opened.
///
/// Operations on a device fail with `NotFound` if there is no device of that name.
#[derive(Debug)]
pub struct Network {
    pub(crate) netlink: Netlink,
    /// A socket for looking up device indexes. Any socket would do.
    pub(crate) names: OwnedFd,
}

/// One end of a cable.
#[derive(Clone, Copy, Debug)]
pub struct CableEnd<'a> {
    /// The device's name, 1 to 15 bytes.
    pub name: &'a str,
    /// The device's hardware address.
    pub mac: [u8; 6],
}

/// The address family for which a limit on segment sizes is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpVersion {
    /// IPv4: `gso_ipv4_max_size` and `gro_ipv4_max_size`.
    V4,
    /// IPv6: `gso_max_size` and `gro_max_size`.
    V6,
}

impl Network {
    /// Opens the network namespace of the calling thread.
    pub fn open() -> io::Result<Self> {
        Ok(Self {
            netlink: Netlink::open(None)?,
            names: socket_with(
                AddressFamily::INET,
                SocketType::DGRAM,
                SocketFlags::CLOEXEC,
                None,
            )?,
        })
    }

    /// Makes a cable (veth pair) from this namespace to `namespace`. Both ends are down, and removing one removes the
    /// other. Fails with `AlreadyExists` if a name is taken, and with `PermissionDenied` without `CAP_NET_ADMIN` on
    /// both sides.
    pub fn add_cable(
        &mut self,
        here: CableEnd<'_>,
        there: CableEnd<'_>,
        namespace: &NetNamespace,
    ) -> io::Result<()> {
        let namespace = namespace.as_fd().as_raw_fd().cast_unsigned();
        let end = |request: Request, end: CableEnd<'_>| {
            request
                .with_text(libc::IFLA_IFNAME, end.name)
                .with(libc::IFLA_ADDRESS, &end.mac)
        };
        let request = Request::new(libc::RTM_NEWLINK, CREATE, &[0; DEVICE_HEADER]);
        let request = end(request, here).nested(libc::IFLA_LINKINFO, |info| {
            let info = info.with_text(libc::IFLA_INFO_KIND, "veth");
            info.nested(libc::IFLA_INFO_DATA, |data| {
                data.nested(VETH_PEER, |peer| {
                    end(peer.raw(&[0; DEVICE_HEADER]), there)
                        .with_u32(libc::IFLA_NET_NS_FD, namespace)
                })
            })
        });
        self.netlink.execute(request)
    }

    /// Joins devices to one network with a bridge, which is up at once. Devices keep their addresses, but should have
    /// none. Fails with `AlreadyExists` if the name is taken, and with `Unsupported` if the kernel has no bridges.
    pub fn add_bridge(&mut self, name: &str, devices: &[&str]) -> io::Result<()> {
        let request = Request::new(libc::RTM_NEWLINK, CREATE, &[0; DEVICE_HEADER])
            .with_text(libc::IFLA_IFNAME, name)
            .nested(libc::IFLA_LINKINFO, |info| {
                info.with_text(libc::IFLA_INFO_KIND, "bridge")
            });
        self.netlink.execute(request)?;
        let bridge = self.index(name)?;
        for device in devices {
            self.set_number(device, libc::IFLA_MASTER, bridge)?;
        }
        self.set_up(name)
    }

    /// Returns whether there is a device of this name.
    pub fn has(&self, name: &str) -> bool {
        self.index(name).is_ok()
    }

    /// Sets a device up.
    pub fn set_up(&mut self, name: &str) -> io::Result<()> {
        let header = device_header(self.index(name)?, libc::IFF_UP.cast_unsigned());
        self.netlink
            .execute(Request::new(libc::RTM_NEWLINK, 0, &header))
    }

    /// Sets the longest packet of a device, in bytes without the Ethernet header.
    pub fn set_mtu(&mut self, name: &str, mtu: u32) -> io::Result<()> {
        self.set_number(name, libc::IFLA_MTU, mtu)
    }

    /// Sets how many packets may wait in a device's queue.
    pub fn set_queue_length(&mut self, name: &str, packets: u32) -> io::Result<()> {
        self.set_number(name, libc::IFLA_TXQLEN, packets)
    }

    /// Sets the largest size of a segmentation-offload packet of a device, in bytes. More than 65536 is BIG TCP. Set V6
    /// first, because the kernel may lower V4 with it. The kernel refuses more than 524280.
    pub fn set_segment_limit(
        &mut self,
        name: &str,
        family: IpVersion,
        bytes: u32,
    ) -> io::Result<()> {
        let (gso, gro) = match family {
            IpVersion::V4 => (IFLA_GSO_IPV4_MAX_SIZE, IFLA_GRO_IPV4_MAX_SIZE),
            IpVersion::V6 => (IFLA_GSO_MAX_SIZE, IFLA_GRO_MAX_SIZE),
        };
        self.set_number(name, gso, bytes)?;
        self.set_number(name, gro, bytes)
    }

    pub(crate) fn index(&self, name: &str) -> io::Result<u32> {
        name_to_index(&self.names, name).map_err(|error| match error {
            Errno::NODEV => io::Error::new(
                io::ErrorKind::NotFound,
                format!("there is no device {name:?}"),
            ),
            other => other.into(),
        })
    }

    fn set_number(&mut self, name: &str, attribute: u16, value: u32) -> io::Result<()> {
        let header = device_header(self.index(name)?, 0);
        let request = Request::new(libc::RTM_NEWLINK, 0, &header).with_u32(attribute, value);
        self.netlink.execute(request)
    }

    /// Gives a device an address that can be used at once, and a route to the network of the address.
    pub fn add_address(&mut self, name: &str, address: IpAddr, prefix: u8) -> io::Result<()> {
        let mut header = [family(address), prefix, NO_DETECTION, 0, 0, 0, 0, 0];
        header[4..].copy_from_slice(&self.index(name)?.to_ne_bytes());
        let bytes = octets(address);
        let request = Request::new(libc::RTM_NEWADDR, CREATE, &header)
            .with(libc::IFA_LOCAL, &bytes)
            .with(libc::IFA_ADDRESS, &bytes);
        self.netlink.execute(request)
    }

    /// Sets the hardware address of `address` permanently, so that it is not asked for over the cable.
    pub fn add_neighbour(&mut self, name: &str, address: IpAddr, mac: [u8; 6]) -> io::Result<()> {
        // struct ndmsg: family, padding, device, state, flags, kind.
        let mut header = [0; 12];
        header[0] = family(address);
        header[4..8].copy_from_slice(&self.index(name)?.to_ne_bytes());
        header[8..10].copy_from_slice(&libc::NUD_PERMANENT.to_ne_bytes());
        let request = Request::new(libc::RTM_NEWNEIGH, CREATE, &header)
            .with(libc::NDA_DST, &octets(address))
            .with(libc::NDA_LLADDR, &mac);
        self.netlink.execute(request)
    }

    /// Returns the name of the device that has an address of this namespace.
    pub fn device_of(&mut self, wanted: IpAddr) -> io::Result<Option<String>> {
        let mut found = None;
        self.each_address(|address, content| {
            if address == wanted {
                found = u32_at(content, 4);
            }
        })?;
        let name = found.map(|index| index_to_name(&self.names, index));
        Ok(name.transpose()?)
    }

    /// Returns the networks of this namespace's addresses, except loopback and those of the device `but`.
    pub fn networks(&mut self, but: &str) -> io::Result<Vec<IpNet>> {
        // A device that does not exist has no addresses to leave out.
        let but = self.index(but).ok();
        let mut all = Vec::new();
        self.each_address(|address, content| {
            if u32_at(content, 4) != but
                && let Some(length) = content.get(1)
                && !address.is_loopback()
                && let Ok(network) = IpNet::new(address, *length)
            {
                all.push(network.trunc());
            }
        })?;
        Ok(all)
    }

    /// Returns all addresses of this namespace.
    pub fn addresses(&mut self) -> io::Result<Vec<IpAddr>> {
        let mut all = Vec::new();
        self.each_address(|address, _| all.push(address))?;
        Ok(all)
    }

    /// Passes every address of this namespace, with the message about it, to `each`.
    fn each_address(&mut self, mut each: impl FnMut(IpAddr, &[u8])) -> io::Result<()> {
        let request = Request::new(libc::RTM_GETADDR, 0, &[0; 8]);
        self.netlink.dump(request, |kind, content| {
            if let (libc::RTM_NEWADDR, Some(address)) = (kind, address(content)) {
                each(address, content);
            }
        })
    }
}

/// Writes a network setting of the calling thread's namespace, for example `net/ipv4/tcp_no_metrics_save`.
pub fn set_sysctl(name: &str, value: &str) -> io::Result<()> {
    fs::write(format!("/proc/sys/{name}"), value)
}

pub(crate) const CREATE: i32 = libc::NLM_F_CREATE | libc::NLM_F_EXCL;

// Missing from the libc crate.
const IFLA_GSO_MAX_SIZE: u16 = 41;
const IFLA_GRO_MAX_SIZE: u16 = 58;
const IFLA_GSO_IPV4_MAX_SIZE: u16 = 63;
const IFLA_GRO_IPV4_MAX_SIZE: u16 = 64;

/// Makes a `struct ifinfomsg` for this device, with these flags to set.
fn device_header(index: u32, flags: u32) -> [u8; DEVICE_HEADER] {
    let mut header = [0; DEVICE_HEADER];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    header[12..16].copy_from_slice(&flags.to_ne_bytes());
    header
}

pub(crate) fn family(address: IpAddr) -> u8 {
    family_of(address.is_ipv6())
}

pub(crate) fn family_of(v6: bool) -> u8 {
    let family = if v6 { libc::AF_INET6 } else { libc::AF_INET };
    u8::try_from(family).unwrap_or_default()
}

pub(crate) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

pub(crate) fn from_octets(octets: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(octets).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from))
        .ok()
}

fn address(content: &[u8]) -> Option<IpAddr> {
    // struct ifaddrmsg: family, prefix, flags, scope, device.
    u32_at(content, 4)?;
    let attributes = content.get(8..)?;
    let local = attribute(attributes, libc::IFA_LOCAL);
    from_octets(local.or_else(|| attribute(attributes, libc::IFA_ADDRESS))?)
}
