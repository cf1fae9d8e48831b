//! Connections to the listeners of this worker's clients: each becomes a flow, or waits in the listener's queue.

use std::net::SocketAddr;
use std::time::Duration;

use quictun_engine::{ConnectionId, FlowId, OpenOutcome, Socket as _};
use quictun_wire::listening::{Incoming, IncomingPeer};
use tracing::debug;

use super::listeners::{ListenerFlow, OwnListener, REST, State};
use super::{ServerWorker, holder_of};
use crate::app_addr::AppAddr;
use crate::app_socket::AppSocket;
use crate::flow_records::{Opener, name_of};
use crate::listener::{AcceptOutcome, warn_of_exhaustion};
use crate::role::ServerContext;

/// Maximum number of connections to accept from one listener before other work gets its turn.
const ACCEPT_BURST: usize = 64;

/// Time for which each connection waits for the client (PROTOCOL REVERSE-11).
const PENDING_TIME: Duration = Duration::from_secs(10);

impl ServerWorker {
    pub(super) fn accept(&mut self, cx: &mut ServerContext<'_>, key: usize) {
        for _ in 0..ACCEPT_BURST {
            let Some(own) = self.listeners.own.get_mut(key) else {
                return;
            };
            let (connection, number, datagrams) =
                (own.connection, own.number, own.takes_datagrams());
            if matches!(own.state, State::Away(_)) {
                return;
            }
            let rest = State::Resting(cx.now + REST);
            let location = self.listeners.location(connection);
            if !self.listeners.holders.is_at(number, location) {
                // Another worker holds the listener, and the message about it is late or lost.
                self.listeners.forget(cx.poller, key);
                return;
            }
            if datagrams {
                return self.receive_datagrams(cx, key);
            }
            // An accepted connection would be lost if the listener moved to another worker. One in its queue moves along.
            if !self.listeners.has_room(connection) || !cx.engine.takes_incoming(connection) {
                return self.listeners.unwatch(cx.poller, key, rest);
            }
            match self.listeners.own[key].listener.accept() {
                AcceptOutcome::Connection(socket, from) => {
                    // A connection that gets no flow was reset.
                    let _none = self.open_incoming(cx, key, (socket, from));
                }
                AcceptOutcome::Empty => return self.listeners.watch(cx.poller, cx.now, key),
                // A client's listener never receives diverted connections.
                AcceptOutcome::Diverted(..) | AcceptOutcome::Direct(_) | AcceptOutcome::Failed => {}
                AcceptOutcome::Exhausted(cause) => {
                    warn_of_exhaustion(&mut self.listeners.exhausted, cx.now, &cause);
                    return self.listeners.unwatch(cx.poller, key, rest);
                }
            }
        }
        // Other work gets its turn. The poller reports the remaining connections again.
        self.listeners.watch(cx.poller, cx.now, key);
    }

    /// Opens a flow for an accepted connection, or for a source of datagrams. Returns `None` if it was reset.
    pub(super) fn open_incoming(
        &mut self,
        cx: &mut ServerContext<'_>,
        key: usize,
        (mut socket, from): (AppSocket, AppAddr),
    ) -> Option<FlowId> {
        let own = &self.listeners.own[key];
        let (id, connection) = (own.id, own.connection);
        let client = self.peer(connection);
        let place = match self.place_of(cx, &client) {
            Ok(place) => place,
            Err(refusal) => {
                let denied = refusal.denied;
                debug!(target: "quictun", client = name_of(&client), denied, "an application has connected to a client's listener, and was reset");
                socket.abort();
                return None;
            }
        };
        let own = &self.listeners.own[key];
        let listener = own.bound.to_string();
        let peer = match from {
            AppAddr::Ip(address) => {
                IncomingPeer::Ip(SocketAddr::new(address.ip().to_canonical(), address.port()))
            }
            AppAddr::Unix => IncomingPeer::Unix,
        };
        // The engine chooses the number.
        let number = None;
        let incoming = Incoming { id, peer, number };
        let (now, until) = (cx.now, cx.now + PENDING_TIME);
        let opening = cx
            .engine
            .open_incoming(now, connection, incoming, (socket, listener), until);
        let flow = match opening {
            OpenOutcome::Opened(flow) => flow,
            OpenOutcome::Refused => return None,
            // The engine took flows before the connection was accepted.
            OpenOutcome::NoRoom(mut socket) => {
                socket.abort();
                return None;
            }
        };
        let own = &self.listeners.own[key];
        let listener_flow = ListenerFlow {
            client: own.client.clone(),
            asked: own.asked.clone(),
            pending: Some(connection),
        };
        self.listeners.flows.insert(flow, listener_flow);
        self.limit_state
            .places
            .extend(place.map(|place| (flow, place)));
        *self.listeners.pending.entry(connection).or_default() += 1;
        let remote = cx.engine.remote(connection);
        if let Some(remote) = remote {
            self.flows
                .add(flow, client.clone(), remote, Opener::Visitor(peer));
            debug!(target: "quictun", client = name_of(&client), flow = self.flows.log.id(flow), from = %peer, "an application has connected to a client's listener");
            if cx
                .engine
                .socket(flow)
                .is_some_and(|it| it.descriptor().is_some())
                && !self.open_descriptor(cx, flow, &holder_of(&client, remote))
            {
                debug!(target: "quictun", client = name_of(&client), "its client has its share of the descriptors: it was reset");
                cx.fail(flow);
                return None;
            }
        }
        cx.watch_flow(flow).then_some(flow)
    }

    /// Handles that a client has accepted a flow, or that the flow is over: the client may take another one.
    pub(super) fn handle_incoming_answered(
        &mut self,
        cx: &mut ServerContext<'_>,
        flow: FlowId,
        over: bool,
    ) {
        if let Some(connection) = self.listeners.answered(flow, over) {
            self.wake_listeners(cx, connection);
        }
    }

    /// Handles that a client allows more flows.
    pub(super) fn wake_listeners(&mut self, cx: &mut ServerContext<'_>, connection: ConnectionId) {
        let resting = |own: &OwnListener| {
            own.connection == connection && matches!(own.state, State::Resting(_))
        };
        for key in self.listeners.keys_where(resting) {
            self.accept(cx, key);
        }
    }

    pub(super) fn handle_listener_timeout(&mut self, cx: &mut ServerContext<'_>) {
        if self.listeners.at.is_none_or(|at| at > cx.now) {
            return;
        }
        self.listeners.at = None;
        for key in self.listeners.keys_where(|_| true) {
            match self.listeners.own[key].state {
                State::Watched => {}
                State::Resting(at) if at <= cx.now => self.accept(cx, key),
                State::Away(until) if until <= cx.now => self.close_abandoned(cx, key),
                State::Resting(at) | State::Away(at) => self.listeners.wake_at(at),
            }
        }
    }
}
