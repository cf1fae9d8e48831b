//! Clients whose connections have gone before their flows.

use std::collections::BTreeMap;

use quictun_engine::{ConnectionId, FlowSummary};

use quictun_trust::access::{Peer, Policy};

/// Clients whose connections have gone, while flows of theirs are still being delivered (PROTOCOL CLOSE-12).
#[derive(Debug, Default)]
pub(crate) struct Leaving(BTreeMap<ConnectionId, (Peer, usize)>);

impl Leaving {
    /// A connection has gone; so many of its flows go on without it.
    pub(crate) fn add(&mut self, connection: ConnectionId, peer: Peer, flows: usize) {
        if flows > 0 {
            self.0.insert(connection, (peer, flows));
        }
    }

    pub(crate) fn handle_closed(&mut self, summary: &FlowSummary) {
        if let Some(connection) = summary.connection {
            self.handle_left(connection);
        }
    }

    /// A flow has ended, or continues on another connection.
    pub(crate) fn handle_left(&mut self, connection: ConnectionId) {
        if let Some((_, flows)) = self.0.get_mut(&connection) {
            *flows = flows.saturating_sub(1);
            if *flows == 0 {
                self.0.remove(&connection);
            }
        }
    }

    pub(crate) fn peer(&self, connection: ConnectionId) -> Option<&Peer> {
        self.0.get(&connection).map(|(peer, _)| peer)
    }

    pub(crate) fn identify_again(&mut self, policy: &Policy) {
        for (peer, _) in self.0.values_mut() {
            if let Peer::Named(client) = peer {
                *peer = policy
                    .by_name(client.name())
                    .map_or(Peer::Unknown, Peer::Named);
            }
        }
    }
}
