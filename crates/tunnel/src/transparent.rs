//! Connections that the packet filter diverts to this process. The kernel knows their original destination.
//!
//! | method | packet filter rule | source of the destination |
//! |---|---|---|
//! | [`DivertMethod::Redirect`] | `redirect to :PORT` (NAT) | the connection tracking table (`SO_ORIGINAL_DST`) |
//! | [`DivertMethod::Tproxy`] | `tproxy to :PORT` | the local address of the socket, which is transparent (`IP_TRANSPARENT`) |
//!
//! Each family has its own listener on all addresses, since diverted packets keep their address. A connection to the
//! listener itself, or a diverted one whose destination is this very port, is refused. It would be carried to the
//! listener in an endless loop.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};

use quictun_wire::target::{Family, Target};
use socket2::{SockRef, Socket};

use crate::settings::{Forward, ForwardTo, ListenOn};

pub use crate::settings::DivertMethod;

/// Returns the forwards for connections diverted to this port, one for each family.
pub fn forwards(method: DivertMethod, port: u16) -> [Forward; 2] {
    let any = [
        SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)),
        SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
    ];
    any.map(|at| Forward {
        listen: ListenOn::Transparent(method, at),
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
            ("192.0.2.1:80", "tcp:192.0.2.1:80"),
            ("[2001:db8::1]:443", "tcp:[2001:db8::1]:443"),
            ("[::ffff:192.0.2.1]:80", "tcp:192.0.2.1:80"),
        ] {
            let address = address.parse().expect("an address");
            assert_eq!(target(address).to_string(), text);
        }
    }

    #[test]
    fn both_families_have_a_listener() {
        let [v4, v6] = forwards(DivertMethod::Redirect, 7501);
        assert_ne!(v4.listen, v6.listen);
        assert!(matches!(v4.to, ForwardTo::Destination));
    }
}
