//! Connections to the listeners of this worker's clients: each becomes a flow, or waits in the listener's queue.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use quictun_engine::{ConnectionId, FlowId, Opening, Socket as _};
use quictun_wire::listening::{Incoming, IncomingPeer};
use tracing::{debug, warn};

use super::listeners::{Brought, Own, REST, State};
use super::{ServerDuty, holder_of};
use crate::app_addr::AppAddr;
use crate::app_socket::AppSocket;
use crate::asked::name_of;
use crate::duty::Io;
use crate::listener::Accepted;
use quictun_io::poller::Key;

/// Maximum number of connections to accept from one listener before other work gets its turn.
const ACCEPT_BURST: usize = 64;

/// How long each connection waits for the client (PROTOCOL REVERSE-11).
const PENDING_TIME: Duration = Duration::from_secs(10);

impl ServerDuty {
    pub(super) fn accept(&mut self, io: &mut Io<'_>, key: usize) {
        for _ in 0..ACCEPT_BURST {
            let Some(own) = self.listeners.own.get_mut(key) else {
                return;
            };
            let (connection, number) = (own.connection, own.number);
            if matches!(own.state, State::Lost(_)) {
                return;
            }
            let rest = State::Resting(io.now + REST);
            let place = self.listeners.place(connection);
            if !self.listeners.holders.is_at(number, place) {
                // Another worker holds the listener, and the message about it has not arrived yet.
                return self.listeners.rest(io.poller, key, rest);
            }
            if !self.listeners.has_room(connection) {
                return self.listeners.rest(io.poller, key, rest);
            }
            let own = &mut self.listeners.own[key];
            let (socket, from, until) = match own.next.take() {
                Some(next) => next,
                None => match own.listener.accept() {
                    Accepted::Connection(socket, from) => (socket, from, io.now + PENDING_TIME),
                    Accepted::Empty => return self.listeners.watch(io.poller, io.now, key),
                    // A client's listener never receives diverted connections.
                    Accepted::Led(..) | Accepted::Direct(_) | Accepted::Failed => continue,
                    Accepted::Exhausted(cause) => {
                        warn!(target: "quictun", %cause, "no descriptors or memory for new connections: accepting pauses; raise the limit (ulimit -n, LimitNOFILE=)");
                        return self.listeners.rest(io.poller, key, rest);
                    }
                },
            };
            if !self.open_incoming(io, key, (socket, from, until)) {
                return self.listeners.rest(io.poller, key, rest);
            }
        }
        // Other work gets its turn. The poller reports the remaining connections again.
        self.listeners.watch(io.poller, io.now, key);
    }

    /// Opens a flow for an accepted connection. Returns `false` if the client takes no more flows for now.
    fn open_incoming(
        &mut self,
        io: &mut Io<'_>,
        key: usize,
        (mut socket, from, until): (AppSocket, AppAddr, Instant),
    ) -> bool {
        if until <= io.now {
            socket.abort();
            return true;
        }
        let own = &self.listeners.own[key];
        let (id, number, connection) = (own.id, own.number, own.connection);
        let client = self.known(connection);
        let place = match self.place_of(&client) {
            Ok(place) => place,
            Err(refusal) => {
                let denied = refusal.denied;
                debug!(target: "quictun", client = name_of(&client), denied, "an application has connected to a client's listener, and was reset");
                socket.abort();
                return true;
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
        let incoming = Incoming { id, peer };
        let now = io.now;
        let opening = io
            .engine
            .open_incoming(now, connection, incoming, (socket, listener), until);
        let flow = match opening {
            Opening::Opened(flow) => flow,
            Opening::Refused => return true,
            Opening::NoRoom(socket) => {
                self.listeners.own[key].next = Some((socket, from, until));
                return false;
            }
        };
        let brought = Brought {
            number,
            pending: Some(connection),
        };
        self.listeners.flows.insert(flow, brought);
        self.held.places.extend(place.map(|place| (flow, place)));
        *self.listeners.pending.entry(connection).or_default() += 1;
        let remote = io.engine.remote(connection);
        if let Some(remote) = remote {
            self.asked.ask(flow, client.clone(), remote);
            debug!(target: "quictun", client = name_of(&client), flow = self.asked.log.id(flow), from = %peer, "an application has connected to a client's listener");
            if !self.descriptors.open(flow, &holder_of(&client, remote)) {
                debug!(target: "quictun", client = name_of(&client), "its client has its share of the descriptors: it was reset");
                io.fail(flow);
                return true;
            }
        }
        if let Some(socket) = io.engine.socket(flow)
            && let Err(cause) = io.poller.add_flow(socket.descriptor(), Key::Flow(flow))
        {
            warn!(target: "quictun", %cause, "a connection cannot be watched: it was reset");
            io.fail(flow);
        }
        true
    }

    /// Handles that a client has accepted a flow, or that the flow is over: the client may take another one.
    pub(super) fn handle_incoming_answered(&mut self, io: &mut Io<'_>, flow: FlowId, over: bool) {
        if let Some(connection) = self.listeners.answered(flow, over) {
            self.wake_listeners(io, connection);
        }
    }

    /// Handles that a client allows more flows.
    pub(super) fn wake_listeners(&mut self, io: &mut Io<'_>, connection: ConnectionId) {
        let resting =
            |own: &Own| own.connection == connection && matches!(own.state, State::Resting(_));
        for key in self.listeners.keys_where(resting) {
            self.accept(io, key);
        }
    }

    pub(super) fn handle_listener_timeout(&mut self, io: &mut Io<'_>) {
        if self.listeners.at.is_none_or(|at| at > io.now) {
            return;
        }
        self.listeners.at = None;
        for key in self.listeners.keys_where(|_| true) {
            match self.listeners.own[key].state {
                State::Watched => {}
                State::Resting(at) if at <= io.now => self.accept(io, key),
                State::Lost(until) if until <= io.now => self.close_listener(io, key, None),
                State::Resting(at) | State::Lost(at) => self.listeners.wake_at(at),
            }
        }
    }
}
