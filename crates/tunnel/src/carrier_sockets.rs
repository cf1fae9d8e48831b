//! TCP connections that carry flows in TLS: a client dials them, and a server listens for them. The engine reads and
//! writes them from then on.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use quictun_engine::ConnectionId;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tracing::debug;

use crate::app_socket::AppSocket;
use crate::marked_sockets::MarkedSockets;
use crate::role::ClientContext;
use crate::tcp_socket::TcpSocket;
use quictun_io::poller::{Key, ReadyEvent};

/// Number of unsent bytes in the kernel below which a carrier's socket counts as writable. Less queued data means less
/// delay for the messages behind it; two batches keep the kernel busy.
const NOTSENT_LOWAT: u32 = 512 * 1024;

/// Time without an acknowledgement after which the kernel ends a connection, like the silence after which QUIC counts as
/// dead.
const USER_TIMEOUT: Duration = Duration::from_millis(4500);

/// The system's congestion control that is asked for by default: the one that stands losses best.
const CONGESTION: &str = "bbr";

/// The error of a dial that does not block: it goes on.
const IN_PROGRESS: i32 = rustix::io::Errno::INPROGRESS.raw_os_error();

/// Connections that a listener keeps until they are accepted.
const BACKLOG: i32 = 1024;

/// TCP connections that a client dials.
#[derive(Debug)]
pub(crate) struct CarrierDials {
    /// The connections under way.
    sockets: HashMap<ConnectionId, AppSocket>,
    congestion: Option<String>,
    /// The sockets to dial with, if those of the client have a mark.
    marked: Option<MarkedSockets>,
}

impl CarrierDials {
    /// `congestion` names the system's congestion control. If sockets are `marked`, the dials use no others.
    pub(crate) fn new(congestion: Option<String>, marked: Option<MarkedSockets>) -> Self {
        Self {
            sockets: HashMap::new(),
            congestion,
            marked,
        }
    }

    /// Begins to dial. The poller reports the result.
    pub(crate) fn dial(
        &mut self,
        cx: &mut ClientContext<'_>,
        connection: ConnectionId,
        remote: SocketAddr,
    ) {
        match self.begin(cx, connection, remote) {
            Ok(socket) => {
                self.sockets.insert(connection, socket);
            }
            Err(error) => cx
                .engine
                .handle_carrier_dialed(cx.now, connection, Err(error)),
        }
    }

    fn begin(
        &mut self,
        cx: &ClientContext<'_>,
        connection: ConnectionId,
        remote: SocketAddr,
    ) -> io::Result<AppSocket> {
        let socket = match &mut self.marked {
            Some(marked) => TcpSocket::marked(marked.take(remote)?),
            None => TcpSocket::new(plain_socket(remote)?),
        };
        let stream = socket.stream();
        prepare(stream, self.congestion.as_deref())?;
        match SockRef::from(stream).connect(&remote.into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(IN_PROGRESS) => {}
            Err(error) => return Err(error),
        }
        let socket = AppSocket::Tcp(socket);
        let (descriptor, key) = (socket.descriptor(), Key::Carrier(connection));
        match cx.poller.add_flow(descriptor, key) {
            // A marked socket that was used before.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                cx.poller.rename_flow(descriptor, key)?;
            }
            added => added?,
        }
        Ok(socket)
    }

    /// Handles a socket that is ready: one that is being dialled, or one that the engine has.
    pub(crate) fn handle_ready(
        &mut self,
        cx: &mut ClientContext<'_>,
        connection: ConnectionId,
        ready: ReadyEvent,
    ) {
        let Some(socket) = self.sockets.remove(&connection) else {
            return cx.handle_carrier_socket(connection, ready);
        };
        let result = match socket.take_error() {
            Ok(None) => Ok(socket),
            Ok(Some(error)) | Err(error) => Err(error),
        };
        cx.engine.handle_carrier_dialed(cx.now, connection, result);
    }
}

fn plain_socket(remote: SocketAddr) -> io::Result<TcpStream> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(remote), kind, Some(Protocol::TCP))?;
    Ok(socket.into())
}

/// Opens a listener for carriers.
pub(crate) fn listen(address: SocketAddr, congestion: Option<&str>) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking().cloexec(),
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    prepare(&socket, congestion)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Sets the options of a carrier's socket, or of a listener for carriers.
pub(crate) fn prepare(socket: &impl AsFd, congestion: Option<&str>) -> io::Result<()> {
    set_options(socket)?;
    let socket = SockRef::from(socket);
    let congestion = congestion.unwrap_or(CONGESTION);
    // The system need not have the algorithm, or permit it.
    if let Err(error) = socket.set_tcp_congestion(congestion.as_bytes()) {
        debug!(target: "quictun", congestion, %error, "the system keeps its congestion control for TCP");
    }
    Ok(())
}

/// Sets the options of an accepted connection, unless it has inherited them. One that waited at a listener of the service
/// manager before this process began has none.
pub(crate) fn prepare_accepted(socket: &impl AsFd) -> io::Result<()> {
    if SockRef::from(socket).tcp_nodelay()? {
        return Ok(());
    }
    set_options(socket)
}

fn set_options(socket: &impl AsFd) -> io::Result<()> {
    let socket = SockRef::from(socket);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_notsent_lowat(NOTSENT_LOWAT)?;
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))
}
