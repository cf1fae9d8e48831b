//! A server's listeners for TCP connections that carry flows in TLS.
//!
//! Each connection has a place among the descriptors of the process: as a stranger's at first, and as its client's once
//! that is admitted. A connection without a place is closed.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use quictun_engine::{AcceptedTcp, ConnectionId};
use quictun_trust::shares::{CommonShares, Holder, SharePlace};
use tracing::{debug, warn};

use crate::app_socket::AppSocket;
use crate::carrier_sockets::prepare_accepted;
use crate::listener::{accept_tcp, is_exhaustion, warn_of_exhaustion};
use crate::mailbox::Mailbox;
use crate::rate_limited_warning::RateLimitedWarning;
use crate::role::ServerContext;
use crate::tcp_socket::TcpSocket;
use quictun_io::poller::Key;

/// Connections that one turn accepts, so that others have theirs.
const TURN: usize = 64;

/// Time for which the listeners are not watched after descriptors or memory have run out: long enough for some to be
/// freed, short enough not to be noticed.
const REST: Duration = Duration::from_millis(100);

/// The listeners, which all workers share, and the way to the other workers.
#[derive(Debug)]
pub(crate) struct CarrierListeners {
    listeners: Arc<[TcpListener]>,
    siblings: Vec<Mailbox>,
    /// Places for connections of strangers, in all workers.
    strangers: CommonShares,
    /// The time at which the listeners are watched again.
    resume_at: Option<Instant>,
    stopped: bool,
    exhausted: RateLimitedWarning,
    refused: RateLimitedWarning,
}

impl CarrierListeners {
    pub(crate) fn new(
        listeners: Arc<[TcpListener]>,
        siblings: Vec<Mailbox>,
        strangers: CommonShares,
    ) -> Self {
        Self {
            listeners,
            siblings,
            strangers,
            resume_at: None,
            stopped: false,
            exhausted: RateLimitedWarning::default(),
            refused: RateLimitedWarning::default(),
        }
    }

    pub(crate) fn start(&self, cx: &ServerContext<'_>) -> io::Result<()> {
        (0..)
            .zip(&*self.listeners)
            .try_for_each(|(number, listener)| {
                cx.poller
                    .add_listener(listener, Key::CarrierListener(number))
            })
    }

    pub(crate) fn stop(&mut self, cx: &ServerContext<'_>) {
        self.stopped = true;
        self.unwatch(cx);
    }

    fn unwatch(&mut self, cx: &ServerContext<'_>) {
        self.resume_at = None;
        for listener in &*self.listeners {
            // An error means that the poller does not watch the listener.
            if cx.poller.remove(listener).is_err() {}
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.resume_at
    }

    pub(crate) fn handle_timeout(&mut self, cx: &ServerContext<'_>) {
        if self.resume_at.is_none_or(|at| at > cx.now) {
            return;
        }
        self.resume_at = None;
        if let Err(cause) = self.start(cx) {
            warn!(target: "quictun", %cause, "cannot watch the TCP listeners: trying again");
            self.rest(cx);
        }
    }

    /// Stops to watch the listeners for a while.
    fn rest(&mut self, cx: &ServerContext<'_>) {
        self.unwatch(cx);
        if !self.stopped {
            self.resume_at = Some(cx.now + REST);
        }
    }

    pub(crate) fn accept(&mut self, cx: &mut ServerContext<'_>, number: u8) {
        let listeners = self.listeners.clone();
        let Some(listener) = listeners.get(usize::from(number)) else {
            return;
        };
        for _ in 0..TURN {
            let (stream, remote) = match accept_tcp(listener) {
                Ok(accepted) => accepted,
                Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => return,
                Err(cause) if is_exhaustion(&cause) => {
                    warn_of_exhaustion(&mut self.exhausted, cx.now, &cause);
                    return self.rest(cx);
                }
                Err(cause) => {
                    debug!(target: "quictun", %cause, "cannot accept a TCP connection");
                    continue;
                }
            };
            let Some(place) = self.strangers.place(&Holder::at(remote.ip())) else {
                if let Some(connections) = self.refused.count(cx.now) {
                    warn!(target: "quictun", { "Client-Endpoint-Addr" = %remote, connections }, "TCP connections are closed: too many clients on TCP have not identified themselves");
                }
                continue;
            };
            if let Err(cause) = prepare_accepted(&stream) {
                debug!(target: "quictun", %cause, "an accepted TCP connection has failed");
                continue;
            }
            let mut socket = TcpSocket::new(stream);
            socket.keep(place);
            let tcp = AcceptedTcp {
                remote: SocketAddr::new(remote.ip().to_canonical(), remote.port()),
                socket,
                received: BytesMut::new(),
            };
            Self::serve(cx, tcp);
        }
    }

    /// Lets the engine serve a connection. Without room for another one, closes it.
    pub(crate) fn serve(cx: &mut ServerContext<'_>, tcp: AcceptedTcp<TcpSocket>) {
        let tcp = AcceptedTcp {
            remote: tcp.remote,
            socket: AppSocket::Tcp(tcp.socket),
            received: tcp.received,
        };
        if let Some(connection) = cx.engine.handle_accepted(cx.now, tcp) {
            cx.watch_carrier(connection);
        }
    }

    /// Passes a connection to the worker that its client has named.
    pub(crate) fn pass_on(&self, cx: &mut ServerContext<'_>, connection: ConnectionId, to: u8) {
        let Some(AcceptedTcp {
            remote,
            socket: AppSocket::Tcp(socket),
            received,
        }) = cx.engine.take_carrier(cx.now, connection)
        else {
            return;
        };
        let unwatched = cx.poller.remove(socket.stream()).is_ok();
        let tcp = AcceptedTcp {
            remote,
            socket,
            received,
        };
        // The client may come from a server with more workers, which this one has taken over.
        let sibling = usize::from(to) % self.siblings.len().max(1);
        let Some(sibling) = self.siblings.get(sibling) else {
            return;
        };
        if unwatched && !sibling.hand_over_carrier(tcp) {
            debug!(target: "quictun", "a TCP connection is closed: its worker has too many waiting ones");
        }
    }

    /// Gives the TCP connection of a client that is admitted a place among the client's descriptors, which `take` finds.
    /// Returns false if there is none. A connection over QUIC needs none.
    pub(crate) fn admit(
        cx: &mut ServerContext<'_>,
        connection: ConnectionId,
        take: impl FnOnce() -> Option<SharePlace>,
    ) -> bool {
        let Some(AppSocket::Tcp(socket)) = cx.engine.carrier_socket_mut(connection) else {
            return true;
        };
        let Some(place) = take() else {
            return false;
        };
        socket.keep(place);
        true
    }
}

#[cfg(test)]
mod tests;
