//! What named clients may use: flows at once, bytes in a month, and until when they may come at all. Rates are the engine's.
//!
//! | limit | where it is seen | what happens |
//! |---|---|---|
//! | `max_flows` | a client asks for a flow | it is refused with [`FlowCode::Limit`]; open ones go on |
//! | `quota` | the last byte of it has moved (none moves after it), a client asks for a flow, or once a second | its flows end, and new ones are refused, with [`FlowCode::Quota`] |
//! | `expires` | a client connects, or once a second | its connections end with [`CloseCode::Expired`], and its listeners close |
//!
//! Flows to a client's listeners count as those that it asks for. What connects to a listener when no flow may be opened
//! is reset.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

use quictun_engine::{ConnectionId, FlowId, FlowPlace};
use quictun_wire::code::{CloseCode, FlowCode};
use tracing::warn;

use super::{ServerDuty, holder_of};
use crate::asked::Refusal;
use crate::duty::Io;
use quictun_trust::access::{Client, Peer};
use quictun_trust::limits::timestamp;

/// Time between two looks at clients whose time or quota may be over without a byte that says so: a date passes for
/// flows that rest, and a quota is used up in another worker.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A worker's part in limits.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// Flows that count against their client's number.
    pub(super) places: BTreeMap<FlowId, FlowPlace>,
    look_at: Option<Instant>,
}

impl Held {
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.look_at
    }

    /// A client is there that has to be looked at now and then.
    pub(super) fn watch(&mut self, now: Instant, client: &Client) {
        let limits = client.limits();
        if limits.expires.is_some() || limits.quota.is_some() {
            self.look_at.get_or_insert(now + LOOK_EVERY);
        }
    }
}

impl ServerDuty {
    /// Takes a place for a flow among those of its client.
    pub(super) fn enter(&mut self, flow: FlowId, peer: &Peer) -> Result<(), Refusal> {
        if let Some(place) = self.place_of(peer)? {
            self.held.places.insert(flow, place);
        }
        Ok(())
    }

    /// A place for one flow more of a client; a client without a name needs none.
    pub(super) fn place_of(&self, peer: &Peer) -> Result<Option<FlowPlace>, Refusal> {
        let Peer::Named(client) = peer else {
            return Ok(None);
        };
        let allowance = self.allowances.of(client.name());
        if allowance.is_used_up() {
            return Err(Refusal::new(
                FlowCode::Quota,
                "its client has used its quota for this month".to_owned(),
            ));
        }
        let Some(place) = allowance.enter() else {
            let most = allowance.usage().limits.flows.unwrap_or_default();
            return Err(Refusal::new(
                FlowCode::Limit,
                format!("its client has {most} flows open, as many as it may have (max_flows)"),
            ));
        };
        Ok(Some(place))
    }

    /// Whether a client's time is over; then its connection is closed.
    pub(super) fn refuse_expired(
        &self,
        io: &mut Io<'_>,
        connection: ConnectionId,
        remote: SocketAddr,
        peer: &Peer,
    ) -> bool {
        let Peer::Named(client) = peer else {
            return false;
        };
        if !client.limits().has_expired(SystemTime::now()) {
            return false;
        }
        if let Some(line) = self.lines.take(&holder_of(peer, remote), io.now) {
            let expired = client.limits().expires.map(timestamp);
            warn!(target: "quictun", { "Client-Endpoint-Addr" = %remote, client = client.name(), expired, lines_left_out = line.left_out() }, "client endpoint refused: its time is over");
        }
        io.engine
            .close_connection(io.now, connection, CloseCode::Expired);
        true
    }

    /// A client has used up its quota: its flows in this worker end.
    pub(super) fn end_flows_of(&self, io: &mut Io<'_>, name: &str) {
        let flows = self.asked.flows_of(name);
        if flows.is_empty() {
            return;
        }
        let usage = self.allowances.of(name).usage();
        warn!(target: "quictun", client = name, flows = flows.len(), used_bytes = usage.used, quota_bytes = usage.limits.quota, "client has used its quota for this month: its flows end");
        for flow in flows {
            io.engine.end_flow(io.now, flow, FlowCode::Quota);
        }
    }

    /// Ends what no longer may go on, once a second.
    pub(super) fn look_at_limits(&mut self, io: &mut Io<'_>) {
        if self.held.look_at.is_none_or(|at| at > io.now) {
            return;
        }
        self.held.look_at = None;
        let now = SystemTime::now();
        let mut connections: Vec<ConnectionId> = self.peers.keys().copied().collect();
        connections.sort_unstable();
        let mut used_up = BTreeSet::new();
        for connection in connections {
            let Some(Peer::Named(client)) = self.peers.get(&connection).cloned() else {
                continue;
            };
            self.held.watch(io.now, &client);
            let limits = client.limits();
            if limits.has_expired(now) {
                let expired = limits.expires.map(timestamp);
                warn!(target: "quictun", client = client.name(), connection = connection.0, expired, "client endpoint closed: its time is over");
                self.close_listeners_of(io, client.name());
                io.engine
                    .revoke_connection(io.now, connection, CloseCode::Expired);
            } else if limits.quota.is_some() && self.allowances.of(client.name()).is_used_up() {
                used_up.insert(client.shared_name());
            }
        }
        for name in &used_up {
            self.end_flows_of(io, name);
        }
    }
}
