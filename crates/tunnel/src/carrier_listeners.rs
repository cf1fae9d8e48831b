//! A server's listeners for TCP connections that carry flows in TLS.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use bytes::BytesMut;
use quictun_engine::{AcceptedTcp, ConnectionId};
use tracing::debug;

use crate::app_socket::AppSocket;
use crate::carrier_sockets::accept;
use crate::mailbox::Mailbox;
use crate::role::ServerContext;
use crate::tcp_socket::TcpSocket;
use quictun_io::poller::Key;

/// Connections that one turn accepts, so that others have theirs.
const TURN: usize = 64;

/// The listeners, which all workers share, and the way to the other workers.
#[derive(Debug)]
pub(crate) struct CarrierListeners {
    listeners: Arc<[TcpListener]>,
    siblings: Vec<Mailbox>,
}

impl CarrierListeners {
    pub(crate) fn new(listeners: Arc<[TcpListener]>, siblings: Vec<Mailbox>) -> Self {
        Self {
            listeners,
            siblings,
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

    pub(crate) fn stop(&self, cx: &ServerContext<'_>) {
        for listener in &*self.listeners {
            // An error means that the poller does not watch the listener.
            if cx.poller.remove(listener).is_err() {}
        }
    }

    pub(crate) fn accept(&self, cx: &mut ServerContext<'_>, number: u8) {
        let Some(listener) = self.listeners.get(usize::from(number)) else {
            return;
        };
        for _ in 0..TURN {
            match accept(listener) {
                Ok(None) => return,
                Ok(Some((remote, socket))) => {
                    let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
                    let received = BytesMut::new();
                    let tcp = AcceptedTcp {
                        remote,
                        socket,
                        received,
                    };
                    Self::serve(cx, tcp);
                }
                Err(cause) => {
                    debug!(target: "quictun", %cause, "cannot accept a TCP connection");
                    return;
                }
            }
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
        let Some(sibling) = self.siblings.get(usize::from(to)) else {
            // The client comes from a server with more workers. Its bond is gone.
            return Self::serve(cx, tcp);
        };
        if unwatched && !sibling.hand_over_carrier(tcp) {
            debug!(target: "quictun", "a TCP connection is closed: its worker has too many waiting ones");
        }
    }
}
