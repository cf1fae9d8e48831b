//! TCP connections that a client dials for flows in TLS: to its server, or to an outbound proxy that leads there.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use quictun_engine::report::ServerId;
use quictun_engine::{ConnectionId, LossReason};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::app_socket::AppSocket;
use crate::carrier_sockets::prepare;
use crate::marked_sockets::MarkedSockets;
use crate::outbound_proxy::handshake::ProxyHandshake;
use crate::outbound_proxy::{OpenProxy, ProxiedServer};
use crate::role::ClientContext;
use crate::settings::HostPort;
use crate::tcp_socket::TcpSocket;
use quictun_io::poller::{Key, ReadyEvent};

/// The error of a dial that does not block: it goes on.
const IN_PROGRESS: i32 = rustix::io::Errno::INPROGRESS.raw_os_error();

/// Time that a proxy has for connecting to the server. The engine gives an attempt ten seconds, and TLS needs a part of
/// them.
const PROXY_TIMEOUT: Duration = Duration::from_secs(8);

/// TCP connections that a client dials.
#[derive(Debug)]
pub(crate) struct CarrierDials {
    /// The connections under way.
    dials: HashMap<ConnectionId, Dial>,
    congestion: Option<String>,
    /// The sockets to dial with, if those of the client have a mark.
    marked: Option<MarkedSockets>,
    proxy: Option<Arc<OpenProxy>>,
    /// The servers that are reached through the proxy.
    proxied: HashMap<ServerId, HostPort>,
}

#[derive(Debug)]
struct Dial {
    socket: TcpSocket,
    connected: bool,
    proxy: Option<ProxyDial>,
}

/// The handshake of a dial that leads through the proxy, and its deadline.
#[derive(Debug)]
struct ProxyDial {
    handshake: ProxyHandshake,
    until: Instant,
}

impl CarrierDials {
    /// `congestion` names the system's congestion control. If sockets are `marked`, the dials use no others.
    pub(crate) fn new(
        congestion: Option<String>,
        marked: Option<MarkedSockets>,
        proxy: Option<Arc<OpenProxy>>,
    ) -> Self {
        Self {
            dials: HashMap::new(),
            congestion,
            marked,
            proxy,
            proxied: HashMap::new(),
        }
    }

    /// Sets the way to a server: through the proxy, or directly if there is none. Call it before the engine learns the
    /// addresses of the server.
    pub(crate) fn set_way(
        &mut self,
        cx: &mut ClientContext<'_>,
        server: ServerId,
        way: Option<ProxiedServer>,
    ) {
        let addresses = if let Some(way) = way {
            self.proxied.insert(server, way.target);
            Some(way.addresses)
        } else {
            self.proxied.remove(&server);
            None
        };
        cx.engine.set_proxy(cx.now, server, addresses);
    }

    /// Returns the proxy that leads to a server.
    pub(crate) fn proxy_of(&self, server: ServerId) -> Option<&OpenProxy> {
        self.proxy
            .as_deref()
            .filter(|_| self.proxied.contains_key(&server))
    }

    /// Begins to dial. The poller reports the result. `to` is the server if the address is that of the proxy.
    pub(crate) fn dial(
        &mut self,
        cx: &mut ClientContext<'_>,
        connection: ConnectionId,
        remote: SocketAddr,
        to: Option<ServerId>,
    ) {
        let proxy = to.map(|server| self.proxy_dial(cx.now, server));
        let Some(proxy) = proxy.map_or(Some(None), |found| found.map(Some)) else {
            // The server is another one since the attempt was planned.
            let gone = LossReason::OutboundProxy("no proxy leads to the server".to_owned());
            return cx
                .engine
                .handle_carrier_dialed(cx.now, connection, Err(gone));
        };
        let through_proxy = proxy.is_some();
        match self.begin(cx, connection, remote) {
            Ok(socket) => {
                let connected = false;
                let dial = Dial {
                    socket,
                    connected,
                    proxy,
                };
                self.dials.insert(connection, dial);
            }
            Err(error) => {
                let reason = self.unreachable(through_proxy, &error);
                cx.engine
                    .handle_carrier_dialed(cx.now, connection, Err(reason));
            }
        }
    }

    /// Begins the handshake that asks the proxy for a server, if the proxy leads there.
    fn proxy_dial(&self, now: Instant, server: ServerId) -> Option<ProxyDial> {
        let (proxy, target) = (self.proxy.as_ref()?, self.proxied.get(&server)?);
        Some(ProxyDial {
            handshake: ProxyHandshake::new(proxy.handshake(target)),
            until: now + PROXY_TIMEOUT,
        })
    }

    fn begin(
        &mut self,
        cx: &ClientContext<'_>,
        connection: ConnectionId,
        remote: SocketAddr,
    ) -> io::Result<TcpSocket> {
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
        let (descriptor, key) = (Some(stream.as_fd()), Key::Carrier(connection));
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
        let Some(dial) = self.dials.get_mut(&connection) else {
            return cx.handle_carrier_socket(connection, ready);
        };
        let end = match dial.advance() {
            Poll::Pending => return,
            Poll::Ready(end) => end,
        };
        let Some(dial) = self.dials.remove(&connection) else {
            return;
        };
        let result = match end {
            Ok(()) => Ok(AppSocket::Tcp(dial.socket)),
            Err(DialError::Tcp(error)) => Err(self.unreachable(dial.proxy.is_some(), &error)),
            Err(DialError::Proxy(why)) => Err(self.refused(&why)),
        };
        cx.engine.handle_carrier_dialed(cx.now, connection, result);
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let proxied = self.dials.values().filter_map(|dial| dial.proxy.as_ref());
        proxied.map(|proxy| proxy.until).min()
    }

    /// Gives up the dials for which the proxy has taken too long.
    pub(crate) fn handle_timeout(&mut self, cx: &mut ClientContext<'_>) {
        let is_due = |dial: &Dial| dial.proxy.as_ref().is_some_and(|it| it.until <= cx.now);
        let due = self.dials.iter().filter(|(_, dial)| is_due(dial));
        let due: Vec<ConnectionId> = due.map(|(connection, _)| *connection).collect();
        for connection in due {
            let connected = self
                .dials
                .remove(&connection)
                .is_some_and(|it| it.connected);
            let seconds = PROXY_TIMEOUT.as_secs();
            let why = if connected {
                format!(
                    "says nothing about the server for {seconds} s: is that the proxy's port, and does the server listen on TCP?"
                )
            } else {
                format!(
                    "does not answer in {seconds} s: does it run there, and do firewalls let this machine through?"
                )
            };
            let result = Err(self.refused(&why));
            cx.engine.handle_carrier_dialed(cx.now, connection, result);
        }
    }

    /// Returns the reason of a TCP connection that could not be made.
    fn unreachable(&self, through_proxy: bool, error: &io::Error) -> LossReason {
        if !through_proxy {
            return LossReason::Tcp(error.to_string());
        }
        self.refused(&format!(
            "cannot be reached ({error}): does it run there, and is its address right?"
        ))
    }

    /// Returns the reason of a proxy that has not connected. `why` is the sentence about it.
    fn refused(&self, why: &str) -> LossReason {
        let proxy = self.proxy.as_ref().map(ToString::to_string);
        LossReason::OutboundProxy(format!("the proxy {} {why}", proxy.unwrap_or_default()))
    }
}

fn plain_socket(remote: SocketAddr) -> io::Result<TcpStream> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(remote), kind, Some(Protocol::TCP))?;
    Ok(socket.into())
}

/// The reason why a dial has failed.
enum DialError {
    Tcp(io::Error),
    Proxy(String),
}

impl Dial {
    /// Goes on as far as the socket permits.
    fn advance(&mut self) -> Poll<Result<(), DialError>> {
        if !self.connected {
            if let Ok(Some(error)) | Err(error) = self.socket.stream().take_error() {
                return Poll::Ready(Err(DialError::Tcp(error)));
            }
            self.connected = true;
        }
        match &mut self.proxy {
            None => Poll::Ready(Ok(())),
            Some(proxy) => proxy
                .handshake
                .advance(self.socket.stream())
                .map_err(DialError::Proxy),
        }
    }
}
