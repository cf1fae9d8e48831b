//! TCP sockets towards a server whose packets bypass the client's own device and its rules, because they have a mark.
//!
//! A confined process may not set marks. So each worker's sockets are opened before that, and used again and again: a
//! connection that ends leaves its socket here, and the next dial disconnects it first.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;

use quictun_sys::set_mark;
use socket2::{Domain, Protocol, Socket, Type};

/// Number of sockets of each family beside those of connections in use: for attempts, of which a race may have a few.
const SPARE: usize = 12;

/// The sockets of one worker, for IPv4 and for IPv6. The least recently used one is the first.
#[derive(Debug)]
pub(crate) struct MarkedSockets([Vec<Arc<TcpStream>>; 2]);

/// A socket in use. It is closed for the peer when this value is dropped.
#[derive(Debug)]
pub(crate) struct MarkedSocket(Arc<TcpStream>);

impl MarkedSockets {
    /// Opens the sockets for a worker that keeps this number of connections, each with another one for transfers.
    ///
    /// # Errors
    ///
    /// Returns the system's error if a socket cannot be marked.
    pub(crate) fn open(mark: u32, connections: usize) -> io::Result<Self> {
        let open = |domain| {
            let kind = Type::STREAM.nonblocking().cloexec();
            // A host may have only one address family.
            let Ok(socket) = Socket::new(domain, kind, Some(Protocol::TCP)) else {
                return Ok(None);
            };
            set_mark(&socket, mark)?;
            Ok(Some(Arc::new(TcpStream::from(socket))))
        };
        let family = |domain| {
            let opened = (0..2 * connections + SPARE).filter_map(|_| open(domain).transpose());
            opened.collect::<io::Result<_>>()
        };
        Ok(Self([family(Domain::IPV4)?, family(Domain::IPV6)?]))
    }

    /// Takes a socket that is not connected, for this address.
    ///
    /// # Errors
    ///
    /// Returns an error if all sockets are in use.
    pub(crate) fn take(&mut self, remote: SocketAddr) -> io::Result<MarkedSocket> {
        let family = &mut self.0[usize::from(remote.is_ipv6())];
        let mut each = family.iter();
        let Some(place) = each.position(|socket| Arc::strong_count(socket) == 1) else {
            let text = "all TCP sockets that bypass the tunnel are in use";
            return Err(io::Error::other(text));
        };
        let socket = family.remove(place);
        family.push(socket.clone());
        // The kernel drops what the previous connection has not sent yet, and keeps the options.
        rustix::net::connect_unspec(&socket)?;
        Ok(MarkedSocket(socket))
    }
}

impl std::ops::Deref for MarkedSocket {
    type Target = TcpStream;

    fn deref(&self) -> &TcpStream {
        &self.0
    }
}

impl Drop for MarkedSocket {
    fn drop(&mut self) {
        // Without a connection, which is the only error, there is nothing to end.
        self.0.shutdown(Shutdown::Write).ok();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use rustix::net::sockopt;

    use super::*;

    /// Number of sockets for two connections.
    const SOCKETS: usize = 2 * 2 + SPARE;

    /// Connects a socket. Returns it with the other end.
    fn connect(sockets: &mut MarkedSockets, listener: &TcpListener) -> (MarkedSocket, TcpStream) {
        let address = listener.local_addr().expect("bound");
        let socket = sockets.take(address).expect("a free socket");
        socket.set_nonblocking(false).expect("an option");
        rustix::net::connect(&*socket, &address).expect("a connection");
        let (far, _) = listener.accept().expect("the other end");
        (socket, far)
    }

    #[test]
    fn a_socket_is_used_again_after_its_connection_has_ended() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = listener.local_addr().expect("bound");
        // 0 is no mark, which every process may set.
        let mut sockets = MarkedSockets::open(0, 2).expect("sockets");
        for round in 0..3 {
            let mut ends: Vec<_> = (0..SOCKETS)
                .map(|_| connect(&mut sockets, &listener))
                .collect();
            sockets.take(address).expect_err("all are in use");
            for (near, far) in &mut ends {
                (&**near).write_all(&[round]).expect("room");
                far.write_all(b"an answer that is not read").expect("room");
            }
            for (near, mut far) in ends {
                drop(near);
                let mut received = Vec::new();
                far.read_to_end(&mut received).expect("its end");
                assert_eq!(received, [round]);
            }
        }
    }

    #[test]
    fn options_outlive_a_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let mut sockets = MarkedSockets::open(0, 2).expect("sockets");
        for _ in 0..=SOCKETS {
            let (socket, _far) = connect(&mut sockets, &listener);
            sockopt::set_tcp_nodelay(&*socket, true).expect("an option");
        }
        let (again, _far) = connect(&mut sockets, &listener);
        assert_eq!(sockopt::tcp_nodelay(&*again), Ok(true));
    }
}
