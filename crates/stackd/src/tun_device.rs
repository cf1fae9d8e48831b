//! The TUN device itself: made, addressed and switched on.

use std::io;
use std::net::{IpAddr, SocketAddr};

use quictun_sys::{Network, Tun};
use rustix::io::Errno;

/// The device's name.
pub const NAME: &str = "quictun0";

/// Addresses of the device, and of what it leads to: RFC 2544's for measurements, and a random prefix of RFC 4193.
pub const ADDRESSES: [TunAddress; 2] = [
    TunAddress {
        own: IpAddr::V4(std::net::Ipv4Addr::new(198, 18, 0, 2)),
        gateway: IpAddr::V4(std::net::Ipv4Addr::new(198, 18, 0, 1)),
        prefix: 30,
    },
    TunAddress {
        own: IpAddr::V6(std::net::Ipv6Addr::new(
            0xfd71, 0x7569, 0x6374, 0, 0, 0, 0, 2,
        )),
        gateway: IpAddr::V6(std::net::Ipv6Addr::new(
            0xfd71, 0x7569, 0x6374, 0, 0, 0, 0, 1,
        )),
        prefix: 64,
    },
];

/// The port of name servers.
pub const PORT: u16 = 53;

/// The name server that programs behind the device may ask by TCP as well: it stands in for the one that was chosen,
/// even for one on the loopback device.
pub const STAND_IN: SocketAddr = SocketAddr::new(ADDRESSES[0].gateway, PORT);

/// Packets that may wait in the device: with the kernel's 500, bursts of several flows would be dropped.
const QUEUE: u32 = 10_000;

/// An address of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunAddress {
    /// What programs of this host speak from.
    pub own: IpAddr,
    /// No host has it: routes that need a gateway name it.
    pub gateway: IpAddr,
    /// Bits that the two have in common.
    pub prefix: u8,
}

/// Makes the device in the calling thread's network. It lasts as long as this process has it.
///
/// # Errors
///
/// `ResourceBusy` where there is one already; `PermissionDenied` without `CAP_NET_ADMIN`; the system's.
pub fn create(network: &mut Network) -> io::Result<Tun> {
    let tun = Tun::create(NAME, true)?;
    configure(network)?;
    Ok(tun)
}

/// Switches the device on, with its addresses, as far as it is not.
pub fn configure(network: &mut Network) -> io::Result<()> {
    network.set_queue_length(NAME, QUEUE)?;
    for address in ADDRESSES {
        match network.add_address(NAME, address.own, address.prefix) {
            // A host without IPv6.
            Err(_) if address.own.is_ipv6() && !has_ipv6() => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            added => added?,
        }
    }
    network.set_up(NAME)
}

/// Whether devices of this network speak IPv6.
pub fn has_ipv6() -> bool {
    let off = "/proc/sys/net/ipv6/conf/default/disable_ipv6";
    std::fs::read_to_string(off).is_ok_and(|text| text.trim() == "0")
}

/// Whether a frame could not be written for want of room: in the device, or in the kernel's memory.
pub(crate) fn has_no_room(error: &io::Error) -> bool {
    let raw = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(raw, Some(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn want_of_room_passes_and_a_device_that_is_gone_does_not() {
        for errno in [Errno::AGAIN, Errno::NOBUFS, Errno::NOMEM] {
            assert!(has_no_room(&errno.into()), "{errno}");
        }
        for errno in [Errno::IO, Errno::BADFD, Errno::INVAL] {
            assert!(!has_no_room(&errno.into()), "{errno}");
        }
    }
}
