//! Sources of a client's flows: its forwards, its reverse forwards, a TUN device, and the single flow of
//! `quictun connect`.
//!
//! A source handles its own listeners, sockets and times as a [`WorkerPart`]. It opens flows by [`FlowToOpen::open`], except
//! for DNS queries, or takes those that the server opens. The worker passes the events of every flow to all its sources, and each source
//! ignores the flows of others.

use std::net::SocketAddr;

use quictun_control::log_beginning;
use quictun_control::settings::Phrases;
use quictun_engine::{Client, FlowId, FlowRequest, FlowSummary};
use tracing::warn;

use crate::app_socket::AppSocket;
use crate::role::{ClientContext, WorkerPart};
use quictun_io::poller::Key;

pub(crate) trait FlowSource: WorkerPart<Role = Client> {
    /// Handles that the server has connected the target of a flow.
    fn handle_established(&mut self, _: &mut ClientContext<'_>, _flow: FlowId) {}
    fn handle_closed(&mut self, cx: &mut ClientContext<'_>, end: &FlowEnd<'_>);
}

/// The end of a flow.
pub(crate) struct FlowEnd<'a> {
    pub(crate) summary: &'a FlowSummary,
    /// The cause that keeps flows from every server, if known.
    pub(crate) unreachable: Option<&'a str>,
}

/// A connection of an application that becomes a flow.
#[derive(Debug)]
pub(crate) struct FlowToOpen {
    pub(crate) socket: AppSocket,
    pub(crate) token: String,
    /// The socket's key in the poller, if the poller watches it.
    pub(crate) watched: Option<Key>,
}

impl FlowToOpen {
    /// Takes a connection that the poller does not watch.
    pub(crate) fn new(socket: AppSocket, token: String) -> Self {
        Self {
            socket,
            token,
            watched: None,
        }
    }

    /// Asks the server for the flow. With `source`, the server learns this address of the application. Returns `None`,
    /// and resets the connection, if the engine takes no more flows.
    pub(crate) fn open(
        self,
        cx: &mut ClientContext<'_>,
        phrases: Phrases,
        source: Option<SocketAddr>,
    ) -> Option<FlowId> {
        let client_app = self.socket.peer();
        log_beginning!(
            phrases,
            { "Client-App-Addr" = client_app },
            "Starting handshake with server endpoint",
            "asking the server for a flow"
        );
        let request = FlowRequest {
            token: self.token,
            client_app,
            source,
        };
        let flow = cx.engine.open_flow(cx.now, self.socket, request)?;
        if let Some(socket) = cx.engine.socket(flow) {
            let (fd, key) = (socket.descriptor(), Key::Flow(flow));
            let watched = if self.watched.is_some() {
                cx.poller.rename_flow(fd, key)
            } else {
                cx.poller.add_flow(fd, key)
            };
            if let Err(cause) = watched {
                warn!(target: "quictun", %cause, "a connection cannot be watched: it was reset");
                cx.fail(flow);
            }
        }
        Some(flow)
    }
}
