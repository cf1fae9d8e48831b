//! One end of an application's connection, TCP or Unix: what it can do, and how it can end.

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

/// No application of a test is silent for longer unless the test is at an end.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Where an application listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// TCP address.
    Tcp(SocketAddr),
    /// Path of a Unix socket.
    Unix(PathBuf),
}

impl Endpoint {
    /// Reads what programs print: `127.0.0.1:80`, `/run/x.sock`, and both with `tcp:` or `unix:` before it.
    ///
    /// # Errors
    ///
    /// Where it is neither.
    pub fn parse(text: &str) -> Result<Self> {
        let bare = text.trim_start_matches("tcp:").trim_start_matches("unix:");
        if bare.starts_with('/') {
            return Ok(Self::Unix(bare.into()));
        }
        Ok(Self::Tcp(
            bare.parse()
                .with_context(|| format!("{text:?} is no address"))?,
        ))
    }

    /// Connects to it.
    ///
    /// # Errors
    ///
    /// The system's answer.
    pub fn connect(&self) -> Result<Connection> {
        let socket: Socket = match self {
            Self::Tcp(address) => TcpStream::connect_timeout(address, PATIENCE)
                .with_context(|| format!("connecting to {self}"))?
                .into(),
            Self::Unix(path) => OwnedFd::from(
                UnixStream::connect(path).with_context(|| format!("connecting to {self}"))?,
            )
            .into(),
        };
        Connection::new(socket)
    }

    /// Connects to it with a receive buffer of about so many bytes, where it is TCP.
    ///
    /// # Errors
    ///
    /// The system's answer.
    pub fn connect_with(&self, receive_buffer: usize) -> Result<Connection> {
        let Self::Tcp(address) = self else {
            return self.connect();
        };
        let socket = Socket::new(Domain::for_address(*address), Type::STREAM, None)?;
        socket.set_recv_buffer_size(receive_buffer)?;
        socket
            .connect_timeout(&(*address).into(), PATIENCE)
            .with_context(|| format!("connecting to {self}"))?;
        Connection::new(socket)
    }

    /// Connects to it, and tells how the other end ends what nothing is sent on.
    ///
    /// # Errors
    ///
    /// The system's answer, unless it is a reset: one that comes at once may be noticed before the connection is.
    pub fn ending(&self) -> Result<Ending> {
        match self.connect() {
            Ok(mut connection) => Ok(connection.ending()),
            Err(error) if is_reset(&error) => Ok(Ending::Reset { bytes: 0 }),
            Err(error) => Err(error),
        }
    }

    /// Connects to it from this address of the loopback device: token files tell applications apart by it.
    ///
    /// # Errors
    ///
    /// The system's answer; a Unix socket.
    pub fn connect_from(&self, source: Ipv4Addr) -> Result<Connection> {
        let Self::Tcp(address) = self else {
            bail!("{self} knows no source address");
        };
        let socket = Socket::new(Domain::for_address(*address), Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((source, 0)).into())?;
        socket
            .connect(&(*address).into())
            .with_context(|| format!("connecting to {self} from {source}"))?;
        Connection::new(socket)
    }

    /// Its TCP port.
    ///
    /// # Errors
    ///
    /// Where it is a Unix socket.
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

/// One end of an application's connection. Reads and writes fail after [`PATIENCE`].
#[derive(Debug)]
pub struct Connection(Socket);

impl Connection {
    /// Takes over a connected socket.
    ///
    /// # Errors
    ///
    /// Where its options cannot be set.
    pub fn new(socket: Socket) -> Result<Self> {
        let connection = Self(socket);
        connection.set_patience(PATIENCE)?;
        Ok(connection)
    }

    /// Lets reads and writes wait for so long.
    ///
    /// # Errors
    ///
    /// Where the options cannot be set.
    pub fn set_patience(&self, patience: Duration) -> Result<()> {
        self.0.set_read_timeout(Some(patience))?;
        self.0.set_write_timeout(Some(patience))?;
        Ok(())
    }

    /// Lets the kernel keep about so many bytes that were written and not sent.
    ///
    /// # Errors
    ///
    /// Where the option cannot be set.
    pub fn limit_sending(&self, bytes: usize) -> Result<()> {
        Ok(self.0.set_send_buffer_size(bytes)?)
    }

    /// A second handle on the same socket.
    ///
    /// # Errors
    ///
    /// Where descriptors have run out.
    pub fn try_clone(&self) -> Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    /// Ends its own direction and keeps the other: FIN.
    ///
    /// # Errors
    ///
    /// The system's answer.
    pub fn finish(&self) -> Result<()> {
        self.0.shutdown(Shutdown::Write).context("finishing")
    }

    /// Ends both directions so that the other end sees it. TCP: RST.
    ///
    /// # Errors
    ///
    /// Where the option cannot be set.
    pub fn reset(self) -> Result<()> {
        SockRef::from(&self.0).set_linger(Some(Duration::ZERO))?;
        Ok(())
    }

    /// How many bytes there are to be read, one at most; `None`: neither any nor the end.
    ///
    /// # Errors
    ///
    /// How the connection has ended.
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

    /// Waits until the other end has ended the connection, and leaves what it has sent unread.
    ///
    /// # Errors
    ///
    /// How the connection has ended.
    pub fn wait_for_end(&self) -> Result<()> {
        let mut events = [PollFd::new(&self.0, PollFlags::RDHUP)];
        rustix::event::poll(&mut events, None)?;
        bail!("the other end has ended the connection");
    }

    /// How the other end ends, once all that it sent has been thrown away.
    pub fn ending(&mut self) -> Ending {
        let mut bytes = 0;
        let mut block = vec![0; 64 * 1024];
        loop {
            match self.0.read(&mut block) {
                Ok(0) => return Ending::Finished { bytes },
                Ok(read) => bytes += read as u64,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Ending::Reset { bytes };
                }
                Err(error) => return Ending::Other(error.to_string()),
            }
        }
    }
}

/// Tells whether this error of [`Endpoint::connect`] is a reset by a peer that accepted and refused at once.
pub fn is_reset(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::ConnectionReset)
}

/// How a direction came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// End of file.
    Finished {
        /// Before it.
        bytes: u64,
    },
    /// ECONNRESET.
    Reset {
        /// Before it.
        bytes: u64,
    },
    /// Silence, or another error.
    Other(String),
}

impl Ending {
    /// Whether the end was a reset.
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
