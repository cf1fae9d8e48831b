//! Whether packets to an address stay on this host, as the kernel would route them.

use std::io;
use std::net::IpAddr;

use ipnet::IpNet;
use rustix::io::Errno;

use crate::netlink::{Netlink, Request};
use crate::network::{family, octets};

/// Length of `struct rtmsg`, and the place of the kind of route in it.
const HEADER: usize = 12;
const KIND: usize = 7;

/// Returns whether a connection to this address reaches this host: a device has the address, or a route makes it local
/// (`ip route add local`), in whichever table. `zone` is the device of a link-local address; 0 means any.
///
/// The kernel is asked for the route from the calling thread's network namespace. No packet is sent, and a socket that
/// could be bound to the address is no proof: IPv6 refuses that for local routes, and a setting allows it for every
/// address.
///
/// # Errors
///
/// The kernel cannot be asked. An address without any route is not an error.
pub fn is_local(address: IpAddr, zone: u32) -> io::Result<bool> {
    let mut header = [0; HEADER];
    (header[0], header[1]) = (family(address), IpNet::from(address).prefix_len());
    let mut request =
        Request::new(libc::RTM_GETROUTE, 0, &header).with(libc::RTA_DST, &octets(address));
    if zone != 0 {
        request = request.with_u32(libc::RTA_OIF, zone);
    }
    let mut kind = None;
    let answer = Netlink::open(None)?.exchange(request, libc::NLM_F_ACK, |_, content| {
        kind = content.get(KIND).copied();
    });
    match answer {
        Ok(()) => Ok(matches!(kind, Some(libc::RTN_LOCAL | libc::RTN_ANYCAST))),
        Err(error) if is_without_route(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns whether the kernel has no route to the address, or does not have the address's version of IP.
fn is_without_route(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(
        error.kind(),
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable
    ) || matches!(code, Some(Errno::OPNOTSUPP | Errno::AFNOSUPPORT))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv6Addr, TcpListener, TcpStream, UdpSocket};
    use std::process::Command;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::network::tests::namespaces;

    fn ip(arguments: &str) {
        let done = Command::new("ip").args(arguments.split(' ')).output();
        let done = done.expect("ip runs");
        assert!(done.status.success(), "ip {arguments}: {done:?}");
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect(text)
    }

    #[test]
    fn the_route_decides_whether_an_address_is_of_this_host() {
        let test = "local_address::tests::the_route_decides_whether_an_address_is_of_this_host";
        if Command::new("ip").arg("-V").output().is_err() {
            return quictun_skip::skipped(test, "ip is missing: apt-get install -y iproute2");
        }
        let Some((here, _)) = namespaces(test) else {
            return;
        };
        let checked = here.within(|| {
            for command in [
                "link set lo up",
                "link add d0 type veth peer name d1",
                "link set d0 up",
                "link set d1 up",
                "addr add 192.0.2.7/24 dev d0",
                "addr add 2001:db8:7::7/64 dev d0 nodad",
                "addr add fe80::77/64 dev d0 nodad",
                "route add local 203.0.113.0/24 dev lo",
                "-6 route add local 2001:db8:a::/64 dev lo",
                // In another table, which a rule selects.
                "route add local 198.51.100.0/24 dev lo table 100",
                "rule add to 198.51.100.0/24 lookup 100",
                "-6 route add local 2001:db8:b::/64 dev lo table 100",
                "-6 rule add to 2001:db8:b::/64 lookup 100",
                "-6 route add anycast 2001:db8:c::1 dev d0",
                "-6 route add unreachable 2001:db8:d::/64",
                "-6 route add blackhole 2001:db8:e::/64",
            ] {
                ip(command);
            }
            // A router also has the first address of each network: the anycast address of its routers.
            std::fs::write("/proc/sys/net/ipv6/conf/d0/forwarding", "1")?;
            // The addresses of a device count once its cable is found to be connected.
            let deadline = Instant::now() + Duration::from_secs(10);
            for own in ["2001:db8:7::7", "fe80::77"] {
                while !is_local(address(own), 0)? && Instant::now() < deadline {
                    std::thread::yield_now();
                }
            }
            let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0))?;
            let port = listener.local_addr()?.port();
            for local in [
                "127.0.0.1",
                "127.3.2.1",
                "::1",
                "192.0.2.7",
                "2001:db8:7::7",
                "203.0.113.1",
                "203.0.113.255",
                "2001:db8:a::1",
                "2001:db8:a:0:ffff::",
                "2001:db8:b::1",
            ] {
                let local = address(local);
                assert!(is_local(local, 0)?, "{local}");
                TcpStream::connect((local, port)).expect("the route leads here");
            }
            // Whether TCP connects to these depends on the kernel and on its rules for source addresses.
            for local in ["198.51.100.1", "2001:db8:c::1", "2001:db8:7::"] {
                assert!(is_local(address(local), 0)?, "{local}");
            }
            // The settings that let a socket bind any address do not make every address local.
            std::fs::write("/proc/sys/net/ipv4/ip_nonlocal_bind", "1")?;
            std::fs::write("/proc/sys/net/ipv6/ip_nonlocal_bind", "1")?;
            UdpSocket::bind((address("2001:db8:7::8"), 0))?;
            for far in [
                "192.0.2.8",
                "2001:db8:7::8",
                "198.18.0.1",
                "2001:db8::1",
                "2001:db8:d::1",
            ] {
                assert!(!is_local(address(far), 0)?, "{far}");
            }
            // A dial fails there, so the answer does not matter.
            drop(is_local(address("2001:db8:e::1"), 0));
            let zone = |name| crate::device_index(name);
            let link_local = address("fe80::77");
            assert!(is_local(link_local, 0)? && is_local(link_local, zone("d0")?)?);
            assert!(!is_local(link_local, zone("d1")?)?);
            Ok(())
        });
        checked.expect("a namespace with routes");
    }

    #[test]
    fn a_host_without_ipv6_is_not_an_error() {
        assert!(is_without_route(&Errno::OPNOTSUPP.into()));
        assert!(is_without_route(&Errno::NETUNREACH.into()));
        for unknown in [Errno::MFILE, Errno::PERM, Errno::NOMEM, Errno::TIMEDOUT] {
            assert!(!is_without_route(&unknown.into()), "{unknown}");
        }
    }
}
