//! Application sockets: the TCP, Unix and user-space sockets that the engine reads and writes.

use std::io::{self, IoSlice, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use bytes::Bytes;
use quictun_engine::Socket;
use quictun_wire::handover::HandedSocket;
use rustix::buffer::spare_capacity;
use socket2::SockRef;

use crate::datagram_socket::DatagramSocket;
use crate::proxy::socket::ProxiedSocket;
use crate::query_socket::QuerySocket;
use crate::tcp_socket::TcpSocket;
use quictun_stackd::netstackd::RemoteSocket;
use quictun_stackd::stack_socket::StackSocket;

/// Number of unsent bytes in the kernel below which a TCP socket counts as writable. Less queued data means less delay
/// for the data behind it; 128 KiB still lasts a local reader for several scheduler ticks.
const NOTSENT_LOWAT: u32 = 128 * 1024;

/// A connected, non-blocking application socket. Dropping it resets the connection unless it was closed in good order.
/// The kernel resets it likewise if the process dies (PROTOCOL CLOSE-11).
#[derive(Debug)]
pub(crate) enum AppSocket {
    Tcp(TcpSocket),
    /// A Unix stream socket. It has no reset, so closing it after an abort looks like an ordinary end.
    Unix(UnixStream),
    /// A TCP connection of the user-space stack behind a TUN device.
    Stack(StackSocket),
    /// A TCP connection behind a TUN device that another process serves.
    Remote(RemoteSocket),
    /// A DNS query, from a program behind a TUN device.
    Query(Box<QuerySocket>),
    /// A connection to a proxy. The inner socket is TCP or Unix.
    Proxied(Box<ProxiedSocket>),
    /// An application, or a target, that exchanges datagrams.
    Datagrams(Box<DatagramSocket>),
}

impl AppSocket {
    /// Takes a non-blocking TCP socket that has been [prepared](prepare).
    pub(crate) fn tcp(stream: TcpStream) -> Self {
        Self::Tcp(TcpSocket::new(stream))
    }

    /// Takes a non-blocking connection that a listener has accepted.
    pub(crate) fn accepted(stream: TcpStream) -> io::Result<Self> {
        // A listener that systemd opened has no options to inherit.
        if SockRef::from(&stream).linger()? != Some(Duration::ZERO) {
            prepare(&stream)?;
        }
        Ok(Self::tcp(stream))
    }

    pub(crate) fn unix(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self::Unix(stream))
    }

    /// Returns what another process has to know of the socket, beside its descriptor. `None` if only this process can use
    /// it, which no target's socket is, or if a request to a proxy is not over.
    pub(crate) fn hand_over(&self) -> Option<HandedSocket> {
        match self {
            Self::Tcp(socket) => Some(socket.hand_over()),
            Self::Unix(_) => Some(HandedSocket::Unix),
            Self::Datagrams(socket) => {
                socket.descriptor()?;
                Some(HandedSocket::Datagrams(socket.peer()))
            }
            Self::Proxied(socket) => socket.answered()?.hand_over(),
            Self::Stack(_) | Self::Remote(_) | Self::Query(_) => None,
        }
    }

    /// Takes a socket of this kind, which another process has handed over. Nothing is set on it.
    pub(crate) fn take_over(handed: HandedSocket, fd: OwnedFd) -> Self {
        match handed {
            HandedSocket::Tcp { reset, half_closed } => {
                Self::Tcp(TcpSocket::take_over(fd.into(), reset, half_closed))
            }
            HandedSocket::Unix => Self::Unix(fd.into()),
            HandedSocket::Datagrams(target) => {
                Self::Datagrams(Box::new(DatagramSocket::take_over(target, fd.into())))
            }
        }
    }

    pub(crate) fn peer(&self) -> String {
        match self {
            Self::Tcp(socket) => match socket.stream().peer_addr() {
                Ok(address) => address.to_string(),
                Err(_) => "unknown".to_owned(),
            },
            Self::Unix(stream) => stream
                .peer_addr()
                .ok()
                .and_then(|address| address.as_pathname().map(|path| path.display().to_string()))
                .unwrap_or_else(|| "unix".to_owned()),
            Self::Stack(socket) => socket.client.to_string(),
            Self::Remote(socket) => socket.client.to_string(),
            Self::Query(socket) => socket.client().to_string(),
            Self::Proxied(socket) => socket.inner().map(Self::peer).unwrap_or_default(),
            Self::Datagrams(socket) => socket.peer().to_string(),
        }
    }

    /// Returns the remote address of a connection accepted by a listener, or `None` if the socket type has none.
    pub(crate) fn peer_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(socket) => socket.stream().peer_addr().ok(),
            Self::Proxied(socket) => socket.inner()?.peer_address(),
            Self::Datagrams(socket) => Some(socket.peer()),
            Self::Unix(_) | Self::Stack(_) | Self::Remote(_) | Self::Query(_) => None,
        }
    }

    /// Writes a few bytes of the tunnel's own. After an error, some of the bytes may have been written. A socket to
    /// which little was written before has room for them.
    pub(crate) fn say(&self, bytes: &[u8]) -> io::Result<()> {
        let written = match self {
            Self::Tcp(socket) => socket.stream().write(bytes)?,
            Self::Unix(stream) => (&*stream).write(bytes)?,
            Self::Stack(_)
            | Self::Remote(_)
            | Self::Query(_)
            | Self::Proxied(_)
            | Self::Datagrams(_) => 0,
        };
        if written == bytes.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::WriteZero.into())
        }
    }

    /// Returns the descriptor to register with the poller, or `None` for a user-space socket.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Tcp(socket) => Some(socket.stream().as_fd()),
            Self::Unix(stream) => Some(stream.as_fd()),
            Self::Proxied(socket) => socket.inner()?.descriptor(),
            Self::Datagrams(socket) => socket.descriptor(),
            Self::Stack(_) | Self::Remote(_) | Self::Query(_) => None,
        }
    }

    /// Returns whether a TCP socket is connected to itself. A socket without an address has been closed by its peer, and
    /// the next read reports that.
    pub(crate) fn is_its_own_peer(&self) -> bool {
        let Self::Tcp(socket) = self else {
            return false;
        };
        let stream = socket.stream();
        matches!((stream.local_addr(), stream.peer_addr()), (Ok(own), Ok(peer)) if own == peer)
    }

    pub(crate) fn take_error(&self) -> io::Result<Option<io::Error>> {
        match self {
            Self::Tcp(socket) => socket.stream().take_error(),
            Self::Unix(stream) => stream.take_error(),
            Self::Proxied(socket) => socket.inner().map_or(Ok(None), Self::take_error),
            Self::Stack(_) | Self::Remote(_) | Self::Query(_) | Self::Datagrams(_) => Ok(None),
        }
    }
}

impl Socket for AppSocket {
    fn read(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        loop {
            let read = match self {
                Self::Tcp(socket) => return socket.read(into),
                Self::Unix(stream) => rustix::io::read(&*stream, spare_capacity(into)),
                Self::Stack(socket) => return socket.read(into),
                Self::Remote(socket) => return socket.read(into),
                Self::Query(socket) => return socket.read(into),
                Self::Proxied(socket) => return socket.read(into),
                Self::Datagrams(socket) => return socket.read(into),
            };
            match read {
                Err(rustix::io::Errno::INTR) => {}
                result => return Ok(result?),
            }
        }
    }

    fn is_drained(&self) -> bool {
        match self {
            Self::Tcp(socket) => socket.is_drained(),
            Self::Proxied(socket) => socket.is_drained(),
            Self::Unix(_)
            | Self::Stack(_)
            | Self::Remote(_)
            | Self::Query(_)
            | Self::Datagrams(_) => false,
        }
    }

    fn lend(&mut self, max: usize) -> Option<io::Result<Bytes>> {
        match self {
            Self::Remote(socket) => socket.lend(max),
            Self::Tcp(_)
            | Self::Unix(_)
            | Self::Stack(_)
            | Self::Query(_)
            | Self::Proxied(_)
            | Self::Datagrams(_) => None,
        }
    }

    fn write(&mut self, chunks: &[IoSlice<'_>]) -> io::Result<usize> {
        loop {
            let result = match self {
                Self::Tcp(socket) => socket.write(chunks),
                Self::Unix(stream) => stream.write_vectored(chunks),
                Self::Stack(socket) => return socket.write(chunks),
                Self::Remote(socket) => return socket.write(chunks),
                Self::Query(socket) => return socket.write(chunks),
                Self::Proxied(socket) => return socket.write(chunks),
                Self::Datagrams(socket) => return socket.write(chunks),
            };
            match result {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.finish(),
            Self::Unix(stream) => stream.shutdown(Shutdown::Write),
            Self::Stack(socket) => socket.finish(),
            Self::Remote(socket) => socket.finish(),
            Self::Query(socket) => socket.finish(),
            Self::Proxied(socket) => socket.finish(),
            Self::Datagrams(socket) => socket.finish(),
        }
    }

    fn carries_datagrams(&self) -> bool {
        matches!(self, Self::Datagrams(_))
    }

    fn stays_with_process(&self) -> bool {
        self.hand_over().is_none()
    }

    fn recv_datagram(&mut self) -> io::Result<Bytes> {
        match self {
            Self::Datagrams(socket) => socket.recv_datagram(),
            _ => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn send_datagram(&mut self, payload: &[u8]) -> io::Result<()> {
        match self {
            Self::Datagrams(socket) => socket.send_datagram(payload),
            _ => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn has_unread(&self) -> bool {
        // If the query fails, reading reports the error.
        match self {
            Self::Tcp(socket) => {
                rustix::io::ioctl_fionread(socket.stream()).is_ok_and(|bytes| bytes > 0)
            }
            Self::Unix(stream) => rustix::io::ioctl_fionread(stream).is_ok_and(|bytes| bytes > 0),
            Self::Stack(socket) => socket.has_unread(),
            Self::Remote(socket) => socket.has_unread(),
            Self::Query(_) | Self::Datagrams(_) => false,
            Self::Proxied(socket) => socket.has_unread(),
        }
    }

    fn unsent(&self) -> usize {
        match self {
            // If the query fails, the socket has failed: it sends nothing more.
            Self::Tcp(socket) => quictun_sys::tcp_unsent(socket.stream()).unwrap_or_default(),
            Self::Stack(socket) => socket.unsent(),
            Self::Remote(socket) => socket.unsent(),
            Self::Proxied(socket) => socket.unsent(),
            Self::Unix(_) | Self::Query(_) | Self::Datagrams(_) => 0,
        }
    }

    fn set_unsent_max(&mut self, bytes: u32) {
        if let Self::Tcp(socket) = self {
            // The limit only shortens waits. Without it, a socket still works; one that has failed reports that when it is read.
            SockRef::from(socket.stream())
                .set_tcp_notsent_lowat(bytes)
                .ok();
        }
    }

    fn segments_lost(&self) -> u64 {
        let Self::Tcp(socket) = self else { return 0 };
        let info = quictun_sys::tcp_info(socket.stream());
        // If the query fails, the socket has failed, which the next read reports.
        info.map_or(0, |info| info.segments_again + info.segments_out_of_order)
    }

    fn abort(&mut self) {
        match self {
            // An error means that the socket has failed already, so there is nothing to reset.
            Self::Tcp(socket) => if reset_on_close(socket.stream()).is_err() {},
            Self::Stack(socket) => socket.abort(),
            Self::Remote(socket) => socket.abort(),
            Self::Proxied(socket) => socket.abort(),
            Self::Unix(_) | Self::Query(_) | Self::Datagrams(_) => {}
        }
    }

    fn close(&mut self) {
        match self {
            // An error means that the socket has failed already, so there is nothing to deliver.
            Self::Tcp(socket) => if SockRef::from(socket.stream()).set_linger(None).is_err() {},
            Self::Stack(socket) => socket.close(),
            Self::Remote(socket) => socket.close(),
            Self::Proxied(socket) => socket.close(),
            Self::Unix(_) | Self::Query(_) | Self::Datagrams(_) => {}
        }
    }
}

/// Sets the options of a TCP socket for applications. Call it before the socket listens or connects: accepted connections
/// inherit all options, which saves as many system calls for each of them.
pub(crate) fn prepare(socket: &impl AsFd) -> io::Result<()> {
    reset_on_close(socket)?;
    let socket = SockRef::from(socket);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_notsent_lowat(NOTSENT_LOWAT)?;
    // A machine that has lost its power or its network sends no FIN. Its flows would stay for good, and count against
    // their client's limits. The system sets the times, as for sshd: a machine may sleep for two hours by default. Once
    // one direction has ended, other times apply: `TcpSocket::finish`.
    socket.set_keepalive(true)
}

/// Makes closing a TCP socket a reset, whether this process closes it or the kernel does at the process's death.
fn reset_on_close(socket: &impl AsFd) -> io::Result<()> {
    SockRef::from(socket).set_linger(Some(Duration::ZERO))
}
