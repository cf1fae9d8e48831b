//! Local listeners: where applications connect to the client.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;

use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};

use crate::app_socket::{AppSocket, reset_on_close};
use crate::settings::ListenOn;
use crate::token_source::AppAddr;
use quictun_io::stale_socket::remove_stale;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

/// A bound listener.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// What an accept came to.
#[derive(Debug)]
pub(crate) enum Accepted {
    Connection(AppSocket, AppAddr),
    /// Nothing waits.
    Empty,
    /// Descriptors or memory have run out; accepting goes on when some are free.
    Exhausted(io::Error),
    /// This connection failed before it was ours; the next may not.
    Failed,
}

/// Binds a listener. A Unix socket that nobody listens on any more is replaced.
pub(crate) fn bind(address: &ListenOn) -> io::Result<Listener> {
    match address {
        ListenOn::Tcp(address) => {
            let domain = Domain::for_address(*address);
            let socket = Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
            socket.set_reuse_address(true)?;
            reset_on_close(&socket)?;
            socket.bind(&(*address).into())?;
            socket.listen(BACKLOG)?;
            Ok(Listener::Tcp(socket.into()))
        }
        ListenOn::Unix(path) => {
            remove_stale(path)?;
            let listener = UnixListener::bind(path)?;
            listener.set_nonblocking(true)?;
            Ok(Listener::Unix(listener))
        }
    }
}

impl Listener {
    /// A second handle for another worker.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(listener) => Self::Tcp(listener.try_clone()?),
            Self::Unix(listener) => Self::Unix(listener.try_clone()?),
        })
    }

    /// The address applications connect to, as text.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::Tcp(listener) => listener.local_addr().map_or_else(
                |_| "unknown".to_owned(),
                |address: SocketAddr| address.to_string(),
            ),
            Self::Unix(listener) => listener
                .local_addr()
                .ok()
                .and_then(|address| address.as_pathname().map(|path| path.display().to_string()))
                .unwrap_or_else(|| "unknown".to_owned()),
        }
    }

    /// Takes the next connection that waits.
    pub(crate) fn accept(&self) -> Accepted {
        let accepted = match self {
            Self::Tcp(listener) => listener
                .accept()
                .and_then(|(stream, peer)| Ok((AppSocket::tcp(stream)?, AppAddr::Ip(peer)))),
            Self::Unix(listener) => listener
                .accept()
                .and_then(|(stream, _)| Ok((AppSocket::unix(stream)?, AppAddr::Unix))),
        };
        match accepted {
            Ok((socket, address)) => Accepted::Connection(socket, address),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Accepted::Empty,
            Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    Accepted::Exhausted(error)
                }
                _ => Accepted::Failed,
            },
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpStream};
    use std::time::Duration;

    use socket2::SockRef;

    use super::*;

    fn linger(socket: &impl AsFd) -> Option<Duration> {
        SockRef::from(socket).linger().expect("it can be asked")
    }

    // PROTOCOL CLOSE-11.
    #[test]
    fn what_is_accepted_is_reset_when_the_process_dies_whoever_made_the_listener() {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let bound = bind(&ListenOn::Tcp(any)).expect("a free port");
        assert_eq!(linger(&bound), Some(Duration::ZERO));
        let inherited = TcpListener::bind(any).expect("a free port");
        let address = inherited.local_addr().expect("it is bound");
        let _queued = TcpStream::connect(address).expect("it listens");
        let inherited = Listener::Tcp(inherited);
        let Accepted::Connection(AppSocket::Tcp(accepted), _) = inherited.accept() else {
            panic!("one waits");
        };
        assert_eq!(linger(&accepted), Some(Duration::ZERO));
        assert_eq!(linger(&inherited), None, "it stays as systemd made it");
    }

    // Linux: what a listener accepts begins with its options. There is no moment in between.
    #[test]
    fn an_accepted_socket_inherits_what_closing_means() {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let Listener::Tcp(bound) = bind(&ListenOn::Tcp(any)).expect("a free port") else {
            panic!("TCP was asked for");
        };
        bound.set_nonblocking(false).expect("an option");
        let address = bound.local_addr().expect("it is bound");
        let _queued = TcpStream::connect(address).expect("it listens");
        let (accepted, _) = bound.accept().expect("one waits");
        assert_eq!(linger(&accepted), Some(Duration::ZERO));
    }
}
