//! The limits of named clients: concurrent flows, bytes per month, and an expiry date. The engine enforces rates.
//!
//! | limit | checked when | effect |
//! |---|---|---|
//! | `max_flows` | a client asks for a flow | the oldest flow on which the client does not answer gives way; without one, the new flow is refused with [`FlowCode::Limit`]. Other open ones continue |
//! | `quota` | its last byte has moved (no byte moves after it), a client asks for a flow, or once a second | its flows end, and new ones are refused, with [`FlowCode::Quota`] |
//! | `expires` | a client connects, or once a second | its connections end with [`CloseCode::Expired`], its flows with [`FlowCode::Revoked`], and its listeners close |
//!
//! Flows to a client's listeners count like flows that the client asks for. If no flow may be opened, a connection to a
//! listener is reset.
//!
//! The check each second covers clients without a connection, too: their listeners and flows may wait for one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use quictun_engine::{ConnectionId, FlowId, FlowPlace};
use quictun_wire::code::{CloseCode, FlowCode};
use tracing::warn;

use super::{ServerWorker, holder_of};
use crate::flow_records::Refusal;
use crate::left_flows::LeftFlow;
use crate::role::ServerContext;
use quictun_trust::access::{Client, Peer};
use quictun_trust::limits::timestamp;
use quictun_trust::shares::Holder;

/// Time between two checks for events that no byte reports: an expiry date passes while flows are idle, or another
/// worker uses up a quota.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// A worker's state of the limits.
#[derive(Debug, Default)]
pub(crate) struct LimitState {
    /// Flows that count against their client's `max_flows`.
    pub(super) places: BTreeMap<FlowId, FlowPlace>,
    /// Clients that the next check covers.
    watched: BTreeSet<Arc<str>>,
    check_at: Option<Instant>,
}

impl LimitState {
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.check_at
    }

    /// Lets the periodic check cover this client if it needs that.
    pub(super) fn watch(&mut self, now: Instant, client: &Client) {
        let limits = client.limits();
        if limits.expires.is_some() || limits.quota.is_some() {
            self.watched.insert(client.shared_name());
            self.check_at.get_or_insert(now + CHECK_INTERVAL);
        }
    }
}

impl ServerWorker {
    /// Takes a place for one more flow of a client. A client without a name needs no place.
    pub(super) fn place_of(
        &mut self,
        cx: &mut ServerContext<'_>,
        peer: &Peer,
    ) -> Result<Option<FlowPlace>, Refusal> {
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
        let place = allowance.enter().or_else(|| {
            let left = self
                .left
                .take_oldest(&Holder::Client(client.shared_name()))?;
            let place = self.limit_state.places.remove(&left.flow);
            self.end_left(cx, left);
            Some(place.unwrap_or_else(|| allowance.enter_above()))
        });
        let Some(place) = place else {
            let most = allowance.usage().limits.flows.unwrap_or_default();
            return Err(Refusal::new(
                FlowCode::Limit,
                format!("its client has {most} flows open, as many as it may have (max_flows)"),
            ));
        };
        Ok(Some(place))
    }

    /// Takes a descriptor for a flow. Returns false if its client has its share of them, and answers on all its flows.
    pub(super) fn open_descriptor(
        &mut self,
        cx: &mut ServerContext<'_>,
        flow: FlowId,
        holder: &Holder,
    ) -> bool {
        if self.descriptors.open(flow, holder) {
            return true;
        }
        let Some(left) = self.left.take_oldest(holder) else {
            return false;
        };
        let own = left.worker == self.index;
        if !own || !self.descriptors.pass_on(left.flow, flow) {
            self.descriptors.open_in_exchange(flow, holder);
        }
        self.end_left(cx, left);
        true
    }

    /// Ends a flow that has given way to another, and gives back what it held.
    fn end_left(&mut self, cx: &mut ServerContext<'_>, left: LeftFlow) {
        if left.worker != self.index {
            if let Some(mailbox) = self.listeners.siblings.get(left.worker) {
                mailbox.give_way();
            }
            return;
        }
        self.descriptors.close(left.flow);
        self.limit_state.places.remove(&left.flow);
        cx.engine.give_way(cx.now, left.flow);
    }

    /// Ends the flows that have given way to flows of other workers.
    pub(super) fn end_claimed(&mut self, cx: &mut ServerContext<'_>) {
        for flow in self.left.claimed() {
            cx.engine.give_way(cx.now, flow);
        }
    }

    /// Notes the flows among these on which their clients do not answer.
    pub(super) fn note_left(&mut self, cx: &ServerContext<'_>, flows: &[FlowId]) {
        for &flow in flows {
            if cx.engine.is_left(flow)
                && let Some((peer, remote, _)) = self.flows.requester(flow)
            {
                self.left.note(cx.now, flow, holder_of(peer, remote));
            }
        }
    }

    /// Handles that the client of a connection answers: its flows no longer give way to others.
    pub(super) fn note_answering(&mut self, cx: &ServerContext<'_>, connection: ConnectionId) {
        for flow in cx.engine.flows_of(connection) {
            self.left.forget(flow);
        }
    }

    /// Returns whether a client has expired. If so, closes its connection.
    pub(super) fn refuse_expired(
        &self,
        cx: &mut ServerContext<'_>,
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
        if let Some(line) = self.lines.take(&holder_of(peer, remote), cx.now) {
            let expired = client.limits().expires.map(timestamp);
            warn!(target: "quictun", { "Client-Endpoint-Addr" = %remote, client = client.name(), expired, lines_left_out = line.left_out() }, "client endpoint refused: its access has expired");
        }
        cx.engine
            .close_connection(cx.now, connection, CloseCode::Expired);
        true
    }

    /// Ends the flows of a client in this worker, because it has used up its quota.
    pub(super) fn end_flows_of(&self, cx: &mut ServerContext<'_>, name: &str) {
        let flows = self.flows.flows_of(name);
        if flows.is_empty() {
            return;
        }
        let usage = self.allowances.of(name).usage();
        warn!(target: "quictun", client = name, flows = flows.len(), used_bytes = usage.used, quota_bytes = usage.limits.quota, "client has used its quota for this month: its flows end");
        for flow in flows {
            cx.engine.end_flow(cx.now, flow, FlowCode::Quota);
        }
    }

    /// Lets the periodic check cover the clients of all listeners and flows after a change of the rules. These clients
    /// need not be connected.
    pub(super) fn watch_unconnected(&mut self, now: Instant) {
        let listeners = self.listeners.own.iter();
        let mut names: BTreeSet<Arc<str>> = listeners.map(|(_, own)| own.client.clone()).collect();
        names.extend(self.flows.clients());
        for name in names {
            if let Some(client) = self.policy.by_name(&name) {
                self.limit_state.watch(now, &client);
            }
        }
    }

    /// Ends connections, listeners and flows that exceed a limit, once a second.
    pub(super) fn check_limits(&mut self, cx: &mut ServerContext<'_>) {
        if self.limit_state.check_at.is_none_or(|at| at > cx.now) {
            return;
        }
        self.limit_state.check_at = None;
        let now = SystemTime::now();
        for name in std::mem::take(&mut self.limit_state.watched) {
            let Some(client) = self.policy.by_name(&name) else {
                continue;
            };
            if client.limits().has_expired(now) {
                self.end_expired(cx, &client);
                continue;
            }
            self.limit_state.watch(cx.now, &client);
            if client.limits().quota.is_some() && self.allowances.of(&name).is_used_up() {
                self.end_flows_of(cx, &name);
            }
        }
    }

    /// Closes the listeners, connections and flows of a client whose access has expired.
    fn end_expired(&mut self, cx: &mut ServerContext<'_>, client: &Client) {
        let (name, expired) = (client.name(), client.limits().expires.map(timestamp));
        self.close_listeners_of(cx, name);
        let peers = self.peers.iter();
        let its = peers.filter(|(_, peer)| matches!(peer, Peer::Named(it) if it.name() == name));
        let mut connections: Vec<ConnectionId> = its.map(|(&connection, _)| connection).collect();
        connections.sort_unstable();
        for &connection in &connections {
            warn!(target: "quictun", client = name, connection = connection.0, expired, "client endpoint closed: its access has expired");
            cx.engine
                .revoke_connection(cx.now, connection, CloseCode::Expired);
        }
        // The other flows wait for a connection, or deliver the data that has arrived.
        let flows = self.flows.flows_of(name);
        if connections.is_empty() && !flows.is_empty() {
            warn!(target: "quictun", client = name, flows = flows.len(), expired, "the flows of a client without a connection end: its access has expired");
        }
        for flow in flows {
            cx.engine.revoke_flow(cx.now, flow);
        }
    }
}
