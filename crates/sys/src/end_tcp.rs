//! Lists TCP connections of other programs (`ss`) and ends them (`ss --kill`). Their programs see an abort.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use rustix::net::netlink::SOCK_DIAG;

use crate::netlink::{Netlink, Request};

/// Ends all TCP connections in the calling thread's network that have one of these local addresses. Returns how many
/// were ended.
///
/// Fails with `PermissionDenied` without `CAP_NET_ADMIN` there, and with `Unsupported` if the kernel cannot end
/// connections. If some connections cannot be ended, the others are ended nevertheless.
pub fn end_tcp(from: &[IpAddr]) -> io::Result<usize> {
    let mut netlink = Netlink::open(Some(SOCK_DIAG))?;
    let mut found = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        list(&mut netlink, family, ALIVE, |_, socket| {
            if source(family, socket).is_some_and(|address| from.contains(&address)) {
                found.push((family, *socket));
            }
        })?;
    }
    let (mut ended, mut refused) = (0, Ok(()));
    for (family, socket) in found {
        match netlink.execute(Request::new(DESTROY, 0, &request(family, ALIVE, socket))) {
            Ok(()) => ended += 1,
            // The connection has ended meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => refused = refused.and(Err(error)),
        }
    }
    refused.map(|()| ended)
}

/// Returns the established TCP connections in the calling thread's network that were accepted from other hosts, as
/// (local, remote) address. A connection counts if a program listens on its local port now. Fails with `Unsupported` if
/// the kernel cannot list connections.
pub fn accepted_tcp() -> io::Result<Vec<(SocketAddr, SocketAddr)>> {
    let mut netlink = Netlink::open(Some(SOCK_DIAG))?;
    let mut listening = BTreeSet::new();
    let mut established: Vec<(SocketAddr, SocketAddr)> = Vec::new();
    let states = 1 << LISTENS | 1 << ESTABLISHED;
    for family in [libc::AF_INET, libc::AF_INET6] {
        list(&mut netlink, family, states, |state, socket| {
            let port = |at| u16::from_be_bytes([socket[at], socket[at + 1]]);
            if u32::from(state) == LISTENS {
                listening.insert(port(0));
                return;
            }
            let ends = source(family, socket).zip(address(family, socket, 20));
            let ends = ends.map(|(own, other)| ((own, port(0)).into(), (other, port(2)).into()));
            established.extend(ends);
        })?;
    }
    established.retain(|(own, other)| listening.contains(&own.port()) && !other.ip().is_loopback());
    Ok(established)
}

/// Lists the TCP sockets that are in one of the states. Passes the state and the `struct inet_diag_sockid` to `each`.
fn list(
    netlink: &mut Netlink,
    family: i32,
    states: u32,
    mut each: impl FnMut(u8, &[u8; SOCKET]),
) -> io::Result<()> {
    let all = request(family, states, [0; SOCKET]);
    netlink.dump(Request::new(BY_FAMILY, 0, &all), |kind, content| {
        let socket = content.get(4..).and_then(|rest| rest.first_chunk());
        if let (BY_FAMILY, Some(state), Some(socket)) = (kind, content.get(1), socket) {
            each(*state, socket);
        }
    })
}

/// Makes a `struct inet_diag_req_v2` for TCP.
fn request(family: i32, states: u32, socket: [u8; SOCKET]) -> [u8; 8 + SOCKET] {
    let mut bytes = [0; 8 + SOCKET];
    bytes[0] = u8::try_from(family).unwrap_or_default();
    bytes[1] = u8::try_from(libc::IPPROTO_TCP).unwrap_or_default();
    bytes[4..8].copy_from_slice(&states.to_ne_bytes());
    bytes[8..].copy_from_slice(&socket);
    bytes
}

fn source(family: i32, socket: &[u8; SOCKET]) -> Option<IpAddr> {
    address(family, socket, 4)
}

/// Reads an address. For an IPv6 socket that uses IPv4, this is the IPv4 address.
fn address(family: i32, socket: &[u8; SOCKET], at: usize) -> Option<IpAddr> {
    let bytes = socket.get(at..at + 16)?;
    if family == libc::AF_INET {
        let v4: [u8; 4] = *bytes.first_chunk()?;
        return Some(v4.into());
    }
    let v6: [u8; 16] = *bytes.first_chunk()?;
    Some(Ipv6Addr::from(v6).to_canonical())
}

/// Length of `struct inet_diag_sockid`: ports, addresses, device, cookie.
const SOCKET: usize = 48;
// linux/sock_diag.h
const BY_FAMILY: u16 = 20;
const DESTROY: u16 = 21;
/// The socket state `TCP_ESTABLISHED`.
const ESTABLISHED: u32 = 1;
/// The socket state `TCP_TIME_WAIT`.
const WAITS: u32 = 6;
/// The socket state `TCP_LISTEN`.
const LISTENS: u32 = 10;
/// All states except that of listeners and `TIME_WAIT`. Sockets in `TIME_WAIT` belong to no program, and kernels before
/// 6.0 cannot end them.
const ALIVE: u32 = !(1 << LISTENS | 1 << WAITS);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Network;
    use crate::network::tests::namespaces;
    use std::io::Read as _;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn connections_from_an_address_are_ended_and_others_live() {
        let test = "end_tcp::tests::connections_from_an_address_are_ended_and_others_live";
        let Some((network, _)) = namespaces(test) else {
            return;
        };
        network
            .within(|| {
                let mut network = Network::open()?;
                network.set_up("lo")?;
                let listener = TcpListener::bind("127.0.0.1:0")?;
                let address = listener.local_addr()?;
                let mut here = TcpStream::connect(address)?;
                let mut there = listener.accept()?.0;
                assert_eq!(accepted_tcp()?, [], "nothing came from outside");
                assert_eq!(end_tcp(&[IpAddr::from([127, 0, 0, 2])])?, 0);
                here.set_nonblocking(true)?;
                let alive = here.read(&mut [0; 1]).map_err(|error| error.kind());
                assert_eq!(alive, Err(io::ErrorKind::WouldBlock));
                match end_tcp(&[address.ip()]) {
                    Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                        quictun_skip::skipped(test, error);
                        return Ok(());
                    }
                    // Ending one connection resets the other end.
                    ended => assert!((1..=2).contains(&ended?)),
                }
                for end in [&mut here, &mut there] {
                    let ended = end.read(&mut [0; 1]).map_err(|error| error.kind());
                    let abort = io::ErrorKind::ConnectionAborted;
                    let reset = io::ErrorKind::ConnectionReset;
                    assert!(ended == Err(abort) || ended == Err(reset), "{ended:?}");
                }
                let mut here = TcpStream::connect(address)?;
                let mut there = listener.accept()?.0;
                // An orderly end: only a TIME_WAIT socket is left, which belongs to no program.
                for end in [&mut here, &mut there] {
                    end.shutdown(std::net::Shutdown::Write)?;
                }
                for end in [&mut here, &mut there] {
                    assert_eq!(end.read(&mut [0; 1])?, 0);
                }
                drop((here, there));
                let table = std::fs::read_to_string("/proc/thread-self/net/tcp")?;
                let state = format!(" {WAITS:02X} ");
                assert!(table.contains(&state), "{table}");
                assert_eq!(end_tcp(&[address.ip()])?, 0);
                Ok(())
            })
            .expect("connections");
    }
}
