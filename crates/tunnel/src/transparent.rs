//! Connections that the packet filter diverts to this process. The kernel knows their original destination.
//!
//! | method | packet filter rule | source of the destination |
//! |---|---|---|
//! | [`DivertMethod::Redirect`] | `redirect to :PORT` (NAT) | the connection tracking table (`SO_ORIGINAL_DST`) |
//! | [`DivertMethod::Tproxy`] | `tproxy to :PORT` | the local address of the socket, which is transparent (`IP_TRANSPARENT`) |
//! | the same, for datagrams | the same | a control message with each of them (`IP_RECVORIGDSTADDR`) |
//!
//! Each family has its own listener on all addresses, since diverted packets keep their address. A connection to the
//! listener itself, or a diverted one whose destination is this very port, is refused. It would be carried to the
//! listener in an endless loop.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};

use quictun_wire::target::{Family, Target};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::datagram_socket::make_room_for_many;
use crate::settings::{Forward, ForwardTo, ListenOn};
use quictun_sys::report_original_destinations;

pub use crate::settings::DivertMethod;

/// Returns the forwards for what is diverted to this port, one for each family and kind: datagrams need
/// [`DivertMethod::Tproxy`].
pub fn forwards(method: DivertMethod, port: u16) -> impl Iterator<Item = Forward> {
    let any = [
        SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)),
        SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
    ];
    let connections = any.map(|at| ListenOn::Transparent(method, at));
    let datagrams = any.map(ListenOn::TransparentUdp);
    let datagrams = datagrams
        .into_iter()
        .filter(move |_| method == DivertMethod::Tproxy);
    connections
        .into_iter()
        .chain(datagrams)
        .map(|listen| Forward {
            listen,
            to: ForwardTo::Destination,
        })
}

/// Prepares a socket before it is bound. A transparent socket needs `CAP_NET_ADMIN`.
pub(crate) fn prepare(socket: &Socket, method: DivertMethod, at: SocketAddr) -> io::Result<()> {
    if at.is_ipv6() {
        // IPv4 has its own listener.
        socket.set_only_v6(true)?;
    }
    match (method, at) {
        (DivertMethod::Redirect, _) => Ok(()),
        (DivertMethod::Tproxy, SocketAddr::V4(_)) => socket.set_ip_transparent_v4(true),
        (DivertMethod::Tproxy, SocketAddr::V6(_)) => socket.set_ip_transparent_v6(true),
    }
}

/// Binds a socket for datagrams that are diverted to this address.
pub(crate) fn bind_for_datagrams(at: SocketAddr) -> io::Result<UdpSocket> {
    let socket = datagram_socket(at)?;
    report_original_destinations(&socket, at.is_ipv6())?;
    make_room_for_many(&socket)?;
    socket.bind(&at.into())?;
    Ok(socket.into())
}

/// Binds a socket that sends from an address of another host. Needs `CAP_NET_RAW`, and `CAP_NET_BIND_SERVICE` for ports below
/// 1024 (`quictun_trust::confinement`).
pub(crate) fn bind_to_destination(destination: SocketAddr) -> io::Result<UdpSocket> {
    let socket = datagram_socket(destination)?;
    // Other workers may answer for the address. A program of this host that has the port on all addresses must have set
    // the option, too.
    socket.set_reuse_address(true)?;
    socket.bind(&destination.into())?;
    Ok(socket.into())
}

fn datagram_socket(at: SocketAddr) -> io::Result<Socket> {
    let domain = Domain::for_address(at);
    let socket = Socket::new(domain, Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    prepare(&socket, DivertMethod::Tproxy, at)?;
    Ok(socket)
}

/// Returns the original destination of an accepted connection, or `None` for a connection to the listener itself.
///
/// # Errors
///
/// Fails if the kernel does not know a destination: the connection was not diverted.
pub(crate) fn destination(
    stream: &TcpStream,
    method: DivertMethod,
    listens: SocketAddr,
) -> io::Result<Option<SocketAddr>> {
    let asked = match method {
        DivertMethod::Tproxy => stream.local_addr()?,
        DivertMethod::Redirect => {
            let socket = SockRef::from(stream);
            let found = if listens.is_ipv4() {
                socket.original_dst_v4()
            } else {
                socket.original_dst_v6()
            };
            let unknown = || io::Error::from(io::ErrorKind::InvalidData);
            found?.as_socket().ok_or_else(unknown)?
        }
    };
    // Connections to the listener itself have its port, on any address of this machine.
    Ok((asked.port() != listens.port()).then_some(asked))
}

/// Returns the target for a connection to this address.
pub(crate) fn target(address: SocketAddr) -> Target {
    Target::Tcp {
        family: Family::Any,
        // A zone has a meaning on this machine only.
        host: address.ip().to_canonical().to_string(),
        port: address.port(),
    }
}

/// Returns the target for datagrams to this address.
pub(crate) fn datagram_target(address: SocketAddr) -> Target {
    Target::Udp {
        host: address.ip().to_canonical().to_string(),
        port: address.port(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_connection_to_the_listener_itself_has_no_destination() {
        for method in [DivertMethod::Redirect, DivertMethod::Tproxy] {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
            let address = listener.local_addr().expect("bound");
            let _queued = TcpStream::connect(address).expect("it listens");
            let (stream, _) = listener.accept().expect("a connection is queued");
            let found = destination(&stream, method, address);
            // Without connection tracking the kernel knows no destination.
            assert!(
                found.is_err() || matches!(found, Ok(None)),
                "{method:?}: {found:?}"
            );
        }
    }

    #[test]
    fn a_destination_is_a_target_by_address() {
        for (address, text) in [
            ("192.0.2.1:80", "192.0.2.1:80"),
            ("[2001:db8::1]:443", "[2001:db8::1]:443"),
            ("[::ffff:192.0.2.1]:80", "192.0.2.1:80"),
        ] {
            let address = address.parse().expect("an address");
            assert_eq!(target(address).to_string(), format!("tcp:{text}"));
            assert_eq!(datagram_target(address).to_string(), format!("udp:{text}"));
        }
    }

    #[test]
    fn both_families_have_a_listener() {
        for (method, count) in [(DivertMethod::Redirect, 2), (DivertMethod::Tproxy, 4)] {
            let all: Vec<_> = forwards(method, 7501).collect();
            assert_eq!(all.len(), count);
            for (n, forward) in all.iter().enumerate() {
                assert!(all[..n].iter().all(|it| it.listen != forward.listen));
                assert!(matches!(forward.to, ForwardTo::Destination));
            }
        }
    }
}
