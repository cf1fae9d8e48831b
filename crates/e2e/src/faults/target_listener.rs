//! The target's listener, which accepts at once or only after the fault.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use socket2::{Domain, SockAddr, Socket, Type};

use super::script::HoldPoint;
use quictun_testbed::connection::{Connection, Endpoint};
use quictun_testbed::deadline;

/// The time limit for a connection to reach the target once it accepts. TCP retransmits an unanswered SYN after one,
/// two and four seconds.
const REACHED: Duration = Duration::from_secs(10);

/// A small receive buffer in bytes, so that data that a slow reader has not read is still in the tunnel.
pub(crate) const RECEIVE_BUFFER: usize = 64 * 1024;

/// A listener that accepts one connection.
#[derive(Debug)]
pub(crate) struct TargetListener {
    listener: Socket,
    endpoint: Endpoint,
    /// `Some` if the listener opens only after the fault: connections that fill its queue until then, because otherwise
    /// the kernel would complete handshakes by itself.
    queued: Option<Vec<TcpStream>>,
}

impl TargetListener {
    pub(crate) fn unix(path: &Path, late: bool) -> Result<Self> {
        let listener = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        listener.bind(&SockAddr::unix(path)?)?;
        listener.listen(1)?;
        Ok(Self {
            listener,
            endpoint: Endpoint::Unix(path.to_owned()),
            queued: late.then(Vec::new),
        })
    }

    pub(crate) fn tcp(address: SocketAddr, late: bool) -> Result<Self> {
        let listener = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        listener.set_recv_buffer_size(RECEIVE_BUFFER)?;
        listener.bind(&address.into())?;
        listener.listen(i32::from(!late))?;
        let address = listener.local_addr()?.as_socket();
        let address = address.context("invariant: a bound TCP socket has an IP address")?;
        Ok(Self {
            listener,
            endpoint: Endpoint::Tcp(address),
            queued: late.then(|| fill(address)).transpose()?,
        })
    }

    /// Returns the address of the listener.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Accepts one connection once that is allowed; returns `None` if no connection arrives in time.
    pub(crate) fn open(self, hold: &HoldPoint) -> Result<Option<Connection>> {
        let late = self.queued.is_some();
        let queued = self.queued.unwrap_or_default();
        let mut fillers = Vec::new();
        for stream in &queued {
            fillers.push(stream.local_addr()?);
        }
        if late {
            hold.released.recv()?;
        }
        self.listener.set_nonblocking(true)?;
        let accepted = deadline::wait("a connection", REACHED, || match self.listener.accept() {
            Ok((_, peer)) if peer.as_socket().is_some_and(|it| fillers.contains(&it)) => Ok(None),
            Ok((socket, _)) => Ok(Some(socket)),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error.into()),
        });
        let Ok(socket) = accepted else {
            return Ok(None);
        };
        socket.set_nonblocking(false)?;
        Connection::new(socket).map(Some)
    }
}

/// Makes connections that a listener with a queue of 0 does not accept, until it no longer answers SYNs.
fn fill(address: SocketAddr) -> Result<Vec<TcpStream>> {
    const ENOUGH: usize = 8;
    const ANSWERED: Duration = Duration::from_millis(200);
    let mut queued = Vec::new();
    while queued.len() < ENOUGH {
        match TcpStream::connect_timeout(&address, ANSWERED) {
            Ok(stream) => queued.push(stream),
            Err(_) => return Ok(queued),
        }
    }
    bail!("a listener with a queue of 0 took {ENOUGH} connections")
}
