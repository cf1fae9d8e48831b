//! The TUN device itself: creation, addresses and activation.

use std::io;
use std::net::{IpAddr, SocketAddr};

use quictun_sys::{Network, Tun};
use rustix::io::Errno;

/// The name of the device, as in `ip link`.
pub const NAME: &str = "quictun0";

/// Addresses of the device and of its gateways: from the range for benchmarks (RFC 2544), and from a random prefix (RFC
/// 4193).
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

/// The address of the name server that programs behind the device may ask, over TCP as well. It stands for the chosen
/// name server, even for one on the loopback device.
pub const STAND_IN: SocketAddr = SocketAddr::new(ADDRESSES[0].gateway, PORT);

/// Largest number of packets queued in the device. The kernel's default of 500 would drop bursts of several flows.
const QUEUE: u32 = 10_000;

/// An address of the device, with its gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunAddress {
    /// Source address of programs on this host.
    pub own: IpAddr,
    /// An address that no host has, for routes that need a gateway.
    pub gateway: IpAddr,
    /// Length of the prefix that both addresses share, in bits.
    pub prefix: u8,
}

/// Creates the device in the calling thread's network namespace. The device exists as long as this process holds it.
///
/// # Errors
///
/// Fails with `ResourceBusy` if another process holds the device, with `PermissionDenied` without `CAP_NET_ADMIN`, or
/// with another error of a system call.
pub fn create(network: &mut Network) -> io::Result<Tun> {
    let tun = Tun::create(NAME, true)?;
    configure(network)?;
    Ok(tun)
}

/// Activates the device and adds its addresses, as far as they are missing.
pub fn configure(network: &mut Network) -> io::Result<()> {
    network.set_queue_length(NAME, QUEUE)?;
    for address in ADDRESSES {
        match network.add_address(NAME, address.own, address.prefix) {
            // The host has no IPv6.
            Err(_) if address.own.is_ipv6() && !has_ipv6() => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            added => added?,
        }
    }
    network.set_up(NAME)
}

/// Returns whether devices of this network namespace support IPv6.
pub fn has_ipv6() -> bool {
    let off = "/proc/sys/net/ipv6/conf/default/disable_ipv6";
    std::fs::read_to_string(off).is_ok_and(|text| text.trim() == "0")
}

/// Returns whether writing a frame failed for lack of space in the device or of kernel memory.
pub(crate) fn has_no_room(error: &io::Error) -> bool {
    let raw = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(raw, Some(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_for_lack_of_room_are_temporary() {
        for errno in [Errno::AGAIN, Errno::NOBUFS, Errno::NOMEM] {
            assert!(has_no_room(&errno.into()), "{errno}");
        }
        for errno in [Errno::IO, Errno::BADFD, Errno::INVAL] {
            assert!(!has_no_room(&errno.into()), "{errno}");
        }
    }
}
