//! Listeners of a client that does not answer (PROTOCOL REVERSE-12).
//!
//! ```text
//!  watched, or at rest ─► the client is silent, or its connection has ended ─► away, for the grace ─► closed
//!        ▲                                                                      │                       │
//!        ├──── it answers again, or asks for the listener on another connection ┘                       │
//!        └──── it answers again: its LISTEN is handled once more ◄────────────────── lapsed, if it was silent only
//! ```

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use quictun_engine::ConnectionId;
use quictun_wire::listening::{Listen, ListenId};

use super::ServerWorker;
use super::listeners::{OwnListener, State};
use crate::role::ServerContext;

/// The time that listeners wait for their clients, and the listeners that have waited in vain.
#[derive(Debug)]
pub(super) struct Silence {
    grace: Duration,
    /// The listeners that were closed while their client's connection was silent. The client need not notice the
    /// silence, and then does not ask for them again.
    lapsed: HashMap<ConnectionId, Vec<Listen>>,
}

impl Silence {
    pub(super) fn new(grace: Duration) -> Self {
        Self {
            grace,
            lapsed: HashMap::new(),
        }
    }

    /// Forgets the lapsed listeners of a connection that has ended.
    pub(super) fn forget_all(&mut self, connection: ConnectionId) {
        self.lapsed.remove(&connection);
    }

    /// Forgets lapsed listeners that the client no longer wants.
    pub(super) fn forget(&mut self, connection: ConnectionId, ids: &[ListenId]) {
        if let Some(lapsed) = self.lapsed.get_mut(&connection) {
            lapsed.retain(|listen| !ids.contains(&listen.id));
        }
    }
}

impl ServerWorker {
    /// Returns when the listeners of a client that does not answer close.
    pub(super) fn end_of_grace(&self, cx: &ServerContext<'_>, connection: ConnectionId) -> Instant {
        let heard = cx.engine.last_heard(connection).unwrap_or(cx.now);
        heard + self.listeners.silence.grace
    }

    /// Handles that the client of a connection does not answer. Connections to its listeners wait.
    pub(super) fn handle_silent(&mut self, cx: &mut ServerContext<'_>, connection: ConnectionId) {
        let until = self.end_of_grace(cx, connection);
        let its = |own: &OwnListener| own.connection == connection;
        for key in self.listeners.keys_where(its) {
            self.listeners.unwatch(cx.poller, key, State::Away(until));
        }
    }

    /// Handles that the client of a connection answers again.
    pub(super) fn handle_answering(
        &mut self,
        cx: &mut ServerContext<'_>,
        connection: ConnectionId,
        remote: SocketAddr,
    ) {
        let away =
            |own: &OwnListener| own.connection == connection && matches!(own.state, State::Away(_));
        for key in self.listeners.keys_where(away) {
            self.resume(cx, key);
        }
        let lapsed = self.listeners.silence.lapsed.remove(&connection);
        for listen in lapsed.unwrap_or_default() {
            // The client may have asked for it on another connection meanwhile.
            if !self.listeners.holders.has(&listen.holder, listen.id) {
                self.handle_listen(cx, connection, remote, &listen);
            }
        }
    }

    /// Closes a listener whose client has not answered for the grace.
    pub(super) fn close_abandoned(&mut self, cx: &mut ServerContext<'_>, key: usize) {
        let grace_s = self.listeners.silence.grace.as_secs();
        let reason = format!("its client has not answered for {grace_s} s");
        let Some(own) = self.remove_listener(cx, key, Some(&reason)) else {
            return;
        };
        if self.peers.contains_key(&own.connection) {
            let listen = Listen {
                id: own.id,
                // Another process of the client that has the address meanwhile keeps it (PROTOCOL REVERSE-7).
                wait: true,
                holder: own.holder,
                address: own.asked.to_string(),
            };
            let lapsed = &mut self.listeners.silence.lapsed;
            lapsed.entry(own.connection).or_default().push(listen);
        }
    }
}
