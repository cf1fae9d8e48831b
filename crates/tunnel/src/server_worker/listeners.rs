//! The listeners of this worker's clients (PROTOCOL section 5.9): which of them are watched, and what happens to their
//! connections.
//!
//! ```text
//!  LISTEN ─► Holders ─► watched ◄──────────────┐
//!                         │ ▲                  │ the client takes more, or 100 ms have passed
//!       it connects       ▼ │ 64 unanswered,   │
//!                       a flow, no stream, no descriptor ─► at rest: connections wait in the listener's queue
//!                         │
//!                         └─► the client does not answer ─► away, see `silence` ─► closed
//! ```

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quictun_engine::{ConnectionId, FlowId, LossReason};
use quictun_wire::code::{CloseCode, ListenCode};
use quictun_wire::listening::{HOLDER_LEN, ListenAck, ListenAddress, ListenId};
use slab::Slab;
use tracing::{debug, info, warn};

use super::ServerWorker;
use super::silence::Silence;
use crate::listener::Listener;
use crate::mailbox::Mailbox;
use crate::rate_limited_warning::RateLimitedWarning;
use crate::requests::Request;
use crate::reverse::holders::{HolderLocation, Holders, ListenerNumber, PlacedListener};
use crate::role::ServerContext;
use quictun_io::poller::{Key, Poller};

/// Maximum number of connections that one client has not accepted yet (PROTOCOL REVERSE-11).
const PENDING_MAX: usize = 64;

/// Longest time for which a listener is not watched after its client could take no flow, or after an error such as a
/// lack of descriptors. An event may end the pause earlier. If none does, the pause is too short to be noticed.
pub(super) const REST: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Listeners {
    worker: usize,
    pub(super) holders: Holders,
    pub(super) silence: Silence,
    pub(super) siblings: Vec<Mailbox>,
    pub(super) own: Slab<OwnListener>,
    /// Listeners that are being made, with the client that asked.
    pub(super) asked: HashMap<ListenerNumber, PendingListener>,
    /// Flows from connections to listeners.
    pub(super) flows: HashMap<FlowId, ListenerFlow>,
    /// For each connection, the number of flows that its client has not accepted yet.
    pub(super) pending: HashMap<ConnectionId, usize>,
    /// Next time at which a listener may need an action.
    pub(super) at: Option<Instant>,
    pub(super) stopped: bool,
    pub(super) exhausted: RateLimitedWarning,
}

/// A listener that this worker holds.
#[derive(Debug)]
pub(super) struct OwnListener {
    pub(super) number: ListenerNumber,
    pub(super) listener: Arc<PlacedListener>,
    pub(super) client: Arc<str>,
    pub(super) id: ListenId,
    pub(super) holder: [u8; HOLDER_LEN],
    pub(super) asked: ListenAddress,
    pub(super) bound: ListenAddress,
    pub(super) connection: ConnectionId,
    pub(super) state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Watched,
    Resting(Instant),
    /// The client does not answer, or its connection has ended; holds the time at which the listener closes.
    Away(Instant),
}

#[derive(Debug)]
pub(super) struct PendingListener {
    pub(super) connection: ConnectionId,
    pub(super) client: Arc<str>,
    pub(super) id: ListenId,
    pub(super) holder: [u8; HOLDER_LEN],
    pub(super) asked: ListenAddress,
}

#[derive(Clone, Debug)]
pub(super) struct ListenerFlow {
    /// The client of the listener, and the address that it has asked for. The flow may outlive the listener.
    pub(super) client: Arc<str>,
    pub(super) asked: ListenAddress,
    /// The connection whose client has not accepted the flow yet.
    pub(super) pending: Option<ConnectionId>,
}

impl OwnListener {
    pub(super) fn takes_datagrams(&self) -> bool {
        matches!(self.bound, ListenAddress::Udp(_))
    }
}

impl Listeners {
    pub(crate) fn new(
        worker: usize,
        holders: Holders,
        grace: Duration,
        siblings: Vec<Mailbox>,
    ) -> Self {
        Self {
            worker,
            holders,
            silence: Silence::new(grace),
            siblings,
            own: Slab::new(),
            asked: HashMap::new(),
            flows: HashMap::new(),
            pending: HashMap::new(),
            at: None,
            stopped: false,
            exhausted: RateLimitedWarning::default(),
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.at
    }

    pub(super) fn location(&self, connection: ConnectionId) -> HolderLocation {
        HolderLocation {
            worker: self.worker,
            connection,
        }
    }

    pub(super) fn find(&self, number: ListenerNumber) -> Option<usize> {
        let mut own = self.own.iter();
        own.find(|(_, own)| own.number == number)
            .map(|(key, _)| key)
    }

    pub(super) fn keys_where(&self, is: impl Fn(&OwnListener) -> bool) -> Vec<usize> {
        let own = self.own.iter().filter(|(_, own)| is(own));
        own.map(|(key, _)| key).collect()
    }

    pub(super) fn wake_at(&mut self, at: Instant) {
        self.at = Some(self.at.map_or(at, |before| before.min(at)));
    }

    pub(super) fn watch(&mut self, poller: &Poller, now: Instant, key: usize) {
        let Some(own) = self.own.get_mut(key) else {
            return;
        };
        if own.state == State::Watched {
            return;
        }
        if let Err(cause) = poller.add_listener(&**own.listener, Key::Listener(key)) {
            warn!(target: "quictun", %cause, "a listener cannot be watched: trying again");
            own.state = State::Resting(now + REST);
            return self.wake_at(now + REST);
        }
        own.state = State::Watched;
    }

    /// Stops watching a listener. New connections wait in its queue.
    pub(super) fn unwatch(&mut self, poller: &Poller, key: usize, state: State) {
        let Some(own) = self.own.get_mut(key) else {
            return;
        };
        if own.state == State::Watched
            && let Err(cause) = poller.remove(&**own.listener)
        {
            debug!(target: "quictun", %cause, "a listener was not watched");
        }
        own.state = state;
        if let State::Resting(at) | State::Away(at) = state {
            self.wake_at(at);
        }
    }

    /// Forgets a listener. Its descriptor closes if no other worker holds it.
    pub(super) fn forget(&mut self, poller: &Poller, key: usize) -> Option<OwnListener> {
        self.unwatch(poller, key, State::Away(Instant::now()));
        self.own.try_remove(key)
    }

    pub(super) fn has_room(&self, connection: ConnectionId) -> bool {
        self.pending_of(connection) < PENDING_MAX
    }

    /// Returns whether there is room for another source of datagrams. Sources may have false addresses, so they leave half
    /// of the room to connections.
    pub(super) fn has_room_for_source(&self, connection: ConnectionId) -> bool {
        self.pending_of(connection) < PENDING_MAX / 2
    }

    fn pending_of(&self, connection: ConnectionId) -> usize {
        self.pending.get(&connection).copied().unwrap_or_default()
    }

    /// Handles that a flow is accepted or over. Returns the connection whose client may take another flow.
    pub(super) fn answered(&mut self, flow: FlowId, over: bool) -> Option<ConnectionId> {
        let listener_flow = self.flows.get_mut(&flow)?;
        let connection = listener_flow.pending.take();
        if over {
            self.flows.remove(&flow);
        }
        let connection = connection?;
        if let Some(pending) = self.pending.get_mut(&connection) {
            *pending -= 1;
            if *pending == 0 {
                self.pending.remove(&connection);
            }
        }
        Some(connection)
    }
}

/// Events of connections, rules and the process. `listen_requests` has the requests of clients.
impl ServerWorker {
    /// Handles the end of a connection. Its listeners are kept for their holder, unless the holder will not return.
    pub(super) fn lose_listeners(
        &mut self,
        cx: &mut ServerContext<'_>,
        connection: ConnectionId,
        reason: &LossReason,
    ) {
        let shutdown = CloseCode::Shutdown.to_u64();
        let for_good = match reason {
            LossReason::ClosedByPeer(code) => *code == shutdown,
            // The client has violated the protocol. `judge_listeners` closes the listeners of a revoked client.
            LossReason::Violation(_) => true,
            _ => false,
        };
        for key in self
            .listeners
            .keys_where(|own| own.connection == connection)
        {
            if for_good {
                self.close_listener(cx, key, None);
            } else {
                self.lose_listener(cx, key);
            }
        }
        self.listeners.silence.forget_all(connection);
    }

    pub(super) fn lose_listener(&mut self, cx: &mut ServerContext<'_>, key: usize) {
        let own = &self.listeners.own[key];
        let until = match own.state {
            State::Away(until) => until,
            _ => self.end_of_grace(cx, own.connection),
        };
        let listeners = &mut self.listeners;
        let own = &listeners.own[key];
        let location = listeners.location(own.connection);
        if until <= cx.now {
            self.close_abandoned(cx, key);
        } else if listeners.holders.lose(own.number, location, until) {
            listeners.unwatch(cx.poller, key, State::Away(until));
        } else {
            listeners.forget(cx.poller, key);
        }
    }

    /// Closes a listener. If there is a code, reports it to the client.
    pub(super) fn close_listener(
        &mut self,
        cx: &mut ServerContext<'_>,
        key: usize,
        code: Option<ListenCode>,
    ) {
        let reason = code.map(|code| code.to_string());
        let own = self.remove_listener(cx, key, reason.as_deref());
        if let Some((own, code)) = own.zip(code) {
            let (id, result) = (own.id, Err(code));
            cx.engine
                .answer_listen(own.connection, ListenAck { id, result });
        }
    }

    /// Closes a listener. Returns it, or `None` if it is not this worker's.
    pub(super) fn remove_listener(
        &mut self,
        cx: &mut ServerContext<'_>,
        key: usize,
        reason: Option<&str>,
    ) -> Option<OwnListener> {
        let own = self.listeners.forget(cx.poller, key)?;
        let location = self.listeners.location(own.connection);
        if !self.listeners.holders.release(own.number, location) {
            return None;
        }
        self.remove_socket(&own.listener, &own.bound);
        self.end_sources(cx, own.number);
        if let Some(line) = self.line_about(cx.now, &own.client) {
            let (client, bound) = (&*own.client, &own.bound);
            info!(target: "quictun", client, listen = %bound, reason, lines_left_out = line.left_out(), "no longer listening for a client");
        }
        Some(own)
    }

    /// Has the socket file of a listener removed that is closed. Otherwise a client that listens on one path after the
    /// other would leave any number of files.
    pub(super) fn remove_socket(&self, listener: &Listener, bound: &ListenAddress) {
        if matches!(bound, ListenAddress::Unix(_)) {
            listener.stop();
            let request = Request::RemoveSocket(bound.clone());
            if let Err(cause) = self.control.send(request) {
                // The control plane is too busy, or ends. A client that listens on the path again replaces the file.
                debug!(target: "quictun", %bound, %cause, "the socket file of a client's listener stays");
            }
        }
    }

    /// Closes the listeners of a client that may no longer connect.
    pub(super) fn close_listeners_of(&mut self, cx: &mut ServerContext<'_>, client: &str) {
        for key in self.listeners.keys_where(|own| &*own.client == client) {
            self.close_listener(cx, key, None);
        }
        // A listener that is being made is closed as soon as it exists.
        let Listeners { asked, holders, .. } = &mut self.listeners;
        asked.retain(|number, asked| {
            let its = &*asked.client == client;
            if its {
                holders.forget(*number);
            }
            !its
        });
    }

    /// Lets go of all listeners, so that another process can bind their addresses. Socket files stay: that process
    /// replaces them.
    pub(super) fn release_listeners(&mut self, cx: &mut ServerContext<'_>) {
        self.listeners.stopped = true;
        for key in self.listeners.keys_where(|_| true) {
            if let Some(own) = self.listeners.forget(cx.poller, key) {
                let location = self.listeners.location(own.connection);
                self.listeners.holders.release(own.number, location);
            }
        }
    }

    /// Closes all listeners, because the process takes no more flows.
    pub(super) fn stop_listeners(&mut self, cx: &mut ServerContext<'_>) {
        self.listeners.stopped = true;
        for key in self.listeners.keys_where(|_| true) {
            self.close_listener(cx, key, Some(ListenCode::ShuttingDown));
        }
    }
}

#[cfg(test)]
mod tests;
