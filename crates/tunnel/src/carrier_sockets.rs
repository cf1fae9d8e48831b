//! Sockets of TCP connections that carry flows in TLS, and the listeners for them. The engine reads and writes them.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::time::Duration;

use quictun_engine::UNSENT_FIRST;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tracing::debug;

/// Time without an acknowledgement after which the kernel ends a connection, like the silence after which QUIC counts as
/// dead.
const USER_TIMEOUT: Duration = Duration::from_millis(4500);

/// The system's congestion control that is asked for by default: the one that stands losses best.
const CONGESTION: &str = "bbr";

/// Connections that a listener keeps until they are accepted.
const BACKLOG: i32 = 1024;

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

/// Sets the options of a connection that is one flow alone. No other connection continues the flow, so the connection
/// stands silences as an application's does. If the process dies, the system resets it (PROTOCOL CLOSE-11).
pub(crate) fn prepare_tunnel(socket: &impl AsFd) -> io::Result<()> {
    let socket = SockRef::from(socket);
    socket.set_linger(Some(Duration::ZERO))?;
    socket.set_tcp_user_timeout(None)?;
    socket.set_keepalive(true)
}

fn set_options(socket: &impl AsFd) -> io::Result<()> {
    let socket = SockRef::from(socket);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_notsent_lowat(UNSENT_FIRST)?;
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))
}
