//! The limits of named clients: concurrent flows, bytes per month, and an expiry date. The engine enforces rates.
//!
//! | limit | checked when | effect |
//! |---|---|---|
//! | `max_flows` | a client asks for a flow | it is refused with [`FlowCode::Limit`]; open ones continue |
//! | `quota` | its last byte has moved (no byte moves after it), a client asks for a flow, or once a second | its flows end, and new ones are refused, with [`FlowCode::Quota`] |
//! | `expires` | a client connects, or once a second | its connections end with [`CloseCode::Expired`], and its listeners close |
//!
//! Flows to a client's listeners count like flows that the client asks for. If no flow may be opened, a connection to a
//! listener is reset.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

use quictun_engine::{ConnectionId, FlowId, FlowPlace};
use quictun_wire::code::{CloseCode, FlowCode};
use tracing::warn;

use super::{ServerWorker, holder_of};
use crate::flow_records::Refusal;
use crate::role::WorkerContext;
use quictun_trust::access::{Client, Peer};
use quictun_trust::limits::timestamp;

/// Time between two checks for events that no byte reports: an expiry date passes while flows are idle, or another
/// worker uses up a quota.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// A worker's state of the limits.
#[derive(Debug, Default)]
pub(crate) struct LimitState {
    /// Flows that count against their client's `max_flows`.
    pub(super) places: BTreeMap<FlowId, FlowPlace>,
    check_at: Option<Instant>,
}

impl LimitState {
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.check_at
    }

    /// Starts the periodic check if this client needs it.
    pub(super) fn watch(&mut self, now: Instant, client: &Client) {
        let limits = client.limits();
        if limits.expires.is_some() || limits.quota.is_some() {
            self.check_at.get_or_insert(now + CHECK_INTERVAL);
        }
    }
}

impl ServerWorker {
    /// Takes a place for a flow among its client's flows.
    pub(super) fn enter(&mut self, flow: FlowId, peer: &Peer) -> Result<(), Refusal> {
        if let Some(place) = self.place_of(peer)? {
            self.limit_state.places.insert(flow, place);
        }
        Ok(())
    }

    /// Takes a place for one more flow of a client. A client without a name needs no place.
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

    /// Returns whether a client has expired. If so, closes its connection.
    pub(super) fn refuse_expired(
        &self,
        cx: &mut WorkerContext<'_>,
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
    pub(super) fn end_flows_of(&self, cx: &mut WorkerContext<'_>, name: &str) {
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

    /// Ends connections and flows that exceed a limit, once a second.
    pub(super) fn check_limits(&mut self, cx: &mut WorkerContext<'_>) {
        if self.limit_state.check_at.is_none_or(|at| at > cx.now) {
            return;
        }
        self.limit_state.check_at = None;
        let now = SystemTime::now();
        let mut connections: Vec<ConnectionId> = self.peers.keys().copied().collect();
        connections.sort_unstable();
        let mut used_up = BTreeSet::new();
        for connection in connections {
            let Some(Peer::Named(client)) = self.peers.get(&connection).cloned() else {
                continue;
            };
            self.limit_state.watch(cx.now, &client);
            let limits = client.limits();
            if limits.has_expired(now) {
                let expired = limits.expires.map(timestamp);
                warn!(target: "quictun", client = client.name(), connection = connection.0, expired, "client endpoint closed: its access has expired");
                self.close_listeners_of(cx, client.name());
                cx.engine
                    .revoke_connection(cx.now, connection, CloseCode::Expired);
            } else if limits.quota.is_some() && self.allowances.of(client.name()).is_used_up() {
                used_up.insert(client.shared_name());
            }
        }
        for name in &used_up {
            self.end_flows_of(cx, name);
        }
    }
}
