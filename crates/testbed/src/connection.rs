//! One end of an application's TCP or Unix connection: its operations and the ways in which it can end.

use std::fmt;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags};
use socket2::{Domain, SockRef, Socket, Type};

use crate::deadline;

/// Timeout for reads, writes and connecting. Test applications are not silent for longer unless the test has ended.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// The address of a listening application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// The address of a TCP listener.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl Endpoint {
    /// Parses the forms that programs print: `127.0.0.1:80`, `/run/x.sock`, and both with a `tcp:` or `unix:` prefix.
    ///
    /// # Errors
    ///
    /// Fails if `text` is neither a TCP address nor an absolute path.
    pub fn parse(text: &str) -> Result<Self> {
        let bare = text.trim_start_matches("tcp:").trim_start_matches("unix:");
        if bare.starts_with('/') {
            return Ok(Self::Unix(bare.into()));
        }
        Ok(Self::Tcp(
            bare.parse()
                .with_context(|| format!("{text:?} is not an address"))?,
        ))
    }

    /// Connects to this endpoint.
    ///
    /// # Errors
    ///
    /// Fails if connecting fails or takes longer than [`TIMEOUT`].
    pub fn connect(&self) -> Result<Connection> {
        let socket: Socket = match self {
            Self::Tcp(address) => TcpStream::connect_timeout(address, TIMEOUT)
                .with_context(|| format!("connecting to {self}"))?
                .into(),
            Self::Unix(path) => OwnedFd::from(
                UnixStream::connect(path).with_context(|| format!("connecting to {self}"))?,
            )
            .into(),
        };
        Connection::new(socket)
    }

    /// Connects to this endpoint; for TCP, with a receive buffer of about `receive_buffer` bytes.
    ///
    /// # Errors
    ///
    /// Fails if the buffer size cannot be set, or if connecting fails.
    pub fn connect_with(&self, receive_buffer: usize) -> Result<Connection> {
        let Self::Tcp(address) = self else {
            return self.connect();
        };
        let socket = Socket::new(Domain::for_address(*address), Type::STREAM, None)?;
        socket.set_recv_buffer_size(receive_buffer)?;
        socket
            .connect_timeout(&(*address).into(), TIMEOUT)
            .with_context(|| format!("connecting to {self}"))?;
        Connection::new(socket)
    }

    /// Connects without sending anything, and returns how the peer ends the connection.
    ///
    /// # Errors
    ///
    /// Fails if connecting fails. A reset is not an error here: the client may notice an immediate reset while it
    /// connects.
    pub fn ending(&self) -> Result<DirectionEnd> {
        match self.connect() {
            Ok(mut connection) => Ok(connection.ending()),
            Err(error) if is_reset(&error) => Ok(DirectionEnd::Reset { bytes: 0 }),
            Err(error) => Err(error),
        }
    }

    /// Connects from this address of the loopback device. Token files distinguish applications by source address.
    ///
    /// # Errors
    ///
    /// Fails for a Unix socket, and if binding or connecting fails.
    pub fn connect_from(&self, source: Ipv4Addr) -> Result<Connection> {
        let Self::Tcp(address) = self else {
            bail!("{self} is a Unix socket and has no source address");
        };
        let socket = Socket::new(Domain::for_address(*address), Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((source, 0)).into())?;
        socket
            .connect(&(*address).into())
            .with_context(|| format!("connecting to {self} from {source}"))?;
        Connection::new(socket)
    }

    /// Returns the TCP port.
    ///
    /// # Errors
    ///
    /// Fails for a Unix socket.
    pub fn port(&self) -> Result<u16> {
        match self {
            Self::Tcp(address) => Ok(address.port()),
            Self::Unix(path) => bail!("{} has no port", path.display()),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "tcp:{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// One end of an application's connection. Reads and writes fail after [`TIMEOUT`] by default.
#[derive(Debug)]
pub struct Connection(Socket);

impl Connection {
    /// Takes ownership of a connected socket and sets its timeouts.
    ///
    /// # Errors
    ///
    /// Fails if the socket options cannot be set.
    pub fn new(socket: Socket) -> Result<Self> {
        let connection = Self(socket);
        connection.set_timeout(TIMEOUT)?;
        Ok(connection)
    }

    /// Sets the timeout of reads and writes.
    ///
    /// # Errors
    ///
    /// Fails if the socket options cannot be set.
    pub fn set_timeout(&self, timeout: Duration) -> Result<()> {
        self.0.set_read_timeout(Some(timeout))?;
        self.0.set_write_timeout(Some(timeout))?;
        Ok(())
    }

    /// Sets the size of the kernel's send buffer, in bytes. The kernel takes this as an approximate limit.
    ///
    /// # Errors
    ///
    /// Fails if the socket option cannot be set.
    pub fn limit_sending(&self, bytes: usize) -> Result<()> {
        Ok(self.0.set_send_buffer_size(bytes)?)
    }

    /// Returns a second handle to the same socket.
    ///
    /// # Errors
    ///
    /// Fails if the process has run out of descriptors.
    pub fn try_clone(&self) -> Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    /// Shuts down the sending direction (FIN) and keeps the receiving direction open.
    ///
    /// # Errors
    ///
    /// Fails if the system call fails.
    pub fn finish(&self) -> Result<()> {
        self.0
            .shutdown(Shutdown::Write)
            .context("finishing the sending side")
    }

    /// Closes the socket so that the peer sees an abrupt end; for TCP, an RST.
    ///
    /// # Errors
    ///
    /// Fails if the socket option cannot be set.
    pub fn reset(self) -> Result<()> {
        SockRef::from(&self.0).set_linger(Some(Duration::ZERO))?;
        Ok(())
    }

    /// Closes the socket with data unread, as a program does that answers before it has read everything: the peer's
    /// system gets all that was written, and right behind it an abrupt end. A byte must have arrived that was not read.
    ///
    /// # Errors
    ///
    /// Fails if the peer's system does not get the written data.
    pub fn close_unread(self) -> Result<()> {
        if self.0.domain()? != Domain::UNIX {
            // The system discards what it has not delivered.
            let sent = || quictun_sys::tcp_unsent(&self.0).is_ok_and(|unsent| unsent == 0);
            deadline::until("everything to be acknowledged", TIMEOUT, sent)?;
        }
        deadline::until("a byte to be unread", TIMEOUT, || {
            self.peek().is_ok_and(|unread| unread == Some(1))
        })
    }

    /// Checks without blocking for data to read. Returns `Some(1)` if there is data, `Some(0)` at the end, and `None`
    /// if there is neither.
    ///
    /// # Errors
    ///
    /// Returns the error with which the connection ended.
    pub fn peek(&self) -> io::Result<Option<usize>> {
        self.0.set_nonblocking(true)?;
        let peeked = self.0.peek(&mut [MaybeUninit::uninit()]);
        self.0.set_nonblocking(false)?;
        match peeked {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits until the peer has ended the connection, and leaves data from the peer unread.
    ///
    /// # Errors
    ///
    /// Always returns an error: that the peer has ended the connection, or that polling failed.
    pub fn wait_for_end(&self) -> Result<()> {
        let mut events = [PollFd::new(&self.0, PollFlags::RDHUP)];
        rustix::event::poll(&mut events, None)?;
        bail!("the peer has ended the connection");
    }

    /// Reads and discards data until the peer ends the connection, and returns how it ended.
    pub fn ending(&mut self) -> DirectionEnd {
        let mut bytes = 0;
        let mut block = vec![0; 64 * 1024];
        loop {
            match self.0.read(&mut block) {
                Ok(0) => return DirectionEnd::Finished { bytes },
                Ok(read) => bytes += read as u64,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return DirectionEnd::Reset { bytes };
                }
                Err(error) => return DirectionEnd::Other(error.to_string()),
            }
        }
    }
}

/// Returns true if this error of [`Endpoint::connect`] is a reset by a peer that accepted and immediately refused.
pub fn is_reset(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::ConnectionReset)
}

/// The way in which one direction of a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DirectionEnd {
    /// The peer sent FIN.
    Finished {
        /// Bytes received before the end.
        bytes: u64,
    },
    /// The peer reset the connection (ECONNRESET).
    Reset {
        /// Bytes received before the reset.
        bytes: u64,
    },
    /// The read timed out or failed in another way; holds the error's text.
    Other(String),
}

impl DirectionEnd {
    /// Returns true if the direction ended with a reset.
    pub fn is_reset(&self) -> bool {
        matches!(self, Self::Reset { .. })
    }
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Connection {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.0.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<Connection> for OwnedFd {
    fn from(connection: Connection) -> Self {
        connection.0.into()
    }
}
