//! Applies new rules while clients are connected: every connection and flow is judged again, and only those that are no
//! longer allowed end.
//!
//! When [`ServerWorker::apply`] returns, no flow of this worker continues, is dialled or is looked up by the old rules:
//!
//! | item | judged by |
//! |---|---|
//! | a connection | the certificates and the proof that its client has shown; it is closed with [`CloseCode::Revoked`] |
//! | a flow, open or being dialled | its target, and the address that it is connected to |
//! | the addresses of a dial | each address; the dial continues with the remaining ones |
//! | a look-up | its target now, its addresses when they arrive |
//! | a listener of a client | its client's name, and the address that it asked for; its flows end with it |
//! | a listener that is being made | the same, when it has been made |
//! | a flow whose connection has gone, and which waits for another one or is still being delivered | its target, by the rules of the client that has its client's keys, secrets or certificate name now |
//!
//! A certificate must have been valid when the connection began. A certificate that has expired since ends nothing,
//! because a reload must not cut connections that the same rules allow.

use std::net::{IpAddr, SocketAddr};
use std::time::SystemTime;

use quictun_engine::{ConnectionId, FlowId, RequestedFlow};
use quictun_wire::code::{CloseCode, FlowCode, ListenCode};
use quictun_wire::listening::ListenAddress;
use rustls::pki_types::UnixTime;
use tracing::{error, warn};

use super::ServerWorker;
use crate::dial::DialResult;
use crate::flow_records::name_of;
use crate::reload::change::RevokedCounts;
use crate::reload::server::ServerRules;
use crate::role::ServerContext;
use crate::token_source::parse_token;
use quictun_trust::access::Peer;

impl ServerWorker {
    pub(super) fn apply(
        &mut self,
        cx: &mut ServerContext<'_>,
        rules: &ServerRules,
    ) -> RevokedCounts {
        self.policy = rules.policy.clone();
        if let Err(cause) = cx.engine.set_server_crypto(&rules.crypto) {
            // The configuration was tested before it was sent to this worker.
            error!(target: "quictun", %cause, "cannot set the new certificate: new connections use the old one");
        }
        self.allowances.apply(&self.policy);
        self.register_clients(cx);
        let mut ended = RevokedCounts::default();
        self.judge_connections(cx, &mut ended);
        self.watch_unconnected(cx.now);
        self.judge_flows(cx, &mut ended);
        ended
    }

    /// Judges all flows, and all listeners.
    pub(super) fn judge_flows(&mut self, cx: &mut ServerContext<'_>, ended: &mut RevokedCounts) {
        for requested in cx.engine.requested_flows() {
            self.judge_flow(cx, &requested, ended);
        }
        ended.flows += self.judge_listeners(cx);
    }

    fn judge_connections(&mut self, cx: &mut ServerContext<'_>, ended: &mut RevokedCounts) {
        let mut connections: Vec<ConnectionId> = self.peers.keys().copied().collect();
        connections.sort_unstable();
        for connection in connections {
            let peer = self.reidentify(cx, connection);
            self.name_peer(cx, connection, &peer);
            let revoked = peer == Peer::Unknown;
            let known = self.peers.insert(connection, peer);
            if revoked {
                ended.connections += 1;
                let client = known.as_ref().map(name_of);
                warn!(target: "quictun", client, connection = connection.0, "client endpoint revoked: the configuration no longer names its key, certificate or secret");
                ended.flows += cx
                    .engine
                    .revoke_connection(cx.now, connection, CloseCode::Revoked);
            }
        }
    }

    fn reidentify(&self, cx: &ServerContext<'_>, connection: ConnectionId) -> Peer {
        let Some(shown) = cx.engine.credentials(connection) else {
            return Peer::Unknown;
        };
        let age = cx.now.saturating_duration_since(shown.opened);
        let began = SystemTime::now().checked_sub(age);
        let began = began.and_then(|began| began.duration_since(SystemTime::UNIX_EPOCH).ok());
        let at = began.map_or_else(UnixTime::now, UnixTime::since_unix_epoch);
        let peer = self.policy.identify_at(shown.certificates.as_deref(), at);
        if peer != Peer::Unknown {
            return peer;
        }
        let mut proofs = shown.proofs.iter().flatten();
        let client = shown.exporter.and_then(|exporter| {
            proofs.find_map(|proof| self.policy.identify_by_proof(&exporter, proof))
        });
        client.map_or(Peer::Unknown, Peer::Named)
    }

    fn judge_flow(
        &mut self,
        cx: &mut ServerContext<'_>,
        requested: &RequestedFlow,
        ended: &mut RevokedCounts,
    ) {
        let peer = self.peers.get(&requested.connection);
        // A flow may continue, or wait, without a connection.
        let by_proof = || match self.flows.peer(requested.flow)? {
            Peer::Named(client) => {
                let again = self.policy.successor(client);
                Some(again.map_or(Peer::Unknown, Peer::Named))
            }
            Peer::Anyone => Some(Peer::Anyone),
            Peer::Unknown => None,
        };
        // A flow without a client was never admitted: it ends by itself.
        let Some(peer) = peer.cloned().or_else(by_proof) else {
            return;
        };
        let Ok(target) = parse_token(self.token_parser, &requested.token) else {
            return;
        };
        // The path of a Unix socket is not an address: the rule for its target decides alone.
        let connected: Option<SocketAddr> = requested.server_app.parse().ok();
        let verdict = self.policy.may_reach(&peer, &target);
        let verdict = verdict.and_then(|()| match connected {
            Some(address) => self.policy.may_reach_addr(&peer, &target, address.ip()),
            None => Ok(()),
        });
        if let Err(denied) = verdict {
            ended.flows += 1;
            let flow = self.flows.log.id(requested.flow);
            warn!(target: "quictun", client = name_of(&peer), flow, %denied, "flow revoked");
            return cx.engine.revoke_flow(cx.now, requested.flow);
        }
        let family = self.policy.dial_family();
        let permits = |address: IpAddr| {
            family.allows(address) && self.policy.may_reach_addr(&peer, &target, address).is_ok()
        };
        let dialed = self
            .dials
            .rejudge(cx.now, cx.poller, requested.flow, permits);
        let revoked = |dialed: &DialResult| matches!(dialed.result, Err(FlowCode::Revoked));
        ended.flows += usize::from(dialed.as_ref().is_some_and(revoked));
        self.answer(cx, dialed);
        self.flows.set_peer(requested.flow, peer.clone());
        self.lookups.set_peer(requested.flow, peer);
    }

    /// Applies changed rules: closes listeners that are no longer allowed, and ends their flows. Returns the number of
    /// these flows.
    fn judge_listeners(&mut self, cx: &mut ServerContext<'_>) -> usize {
        for key in self.listeners.keys_where(|_| true) {
            let own = &self.listeners.own[key];
            if !self.may_still_listen(&own.client, &own.asked) {
                self.close_listener(cx, key, Some(ListenCode::Revoked));
            }
        }
        // The listener of a flow may be closed, or may have moved to another worker.
        let flows = self.listeners.flows.iter();
        let disallowed =
            flows.filter(|(_, flow)| !self.may_still_listen(&flow.client, &flow.asked));
        let mut flows: Vec<FlowId> = disallowed.map(|(flow, _)| *flow).collect();
        flows.sort_unstable();
        for &flow in &flows {
            cx.engine.revoke_flow(cx.now, flow);
        }
        flows.len()
    }

    pub(super) fn may_still_listen(&self, client: &str, asked: &ListenAddress) -> bool {
        let again = self.policy.by_name(client);
        let peer = again.map_or(Peer::Unknown, Peer::Named);
        self.policy.may_listen(&peer, asked).is_ok()
    }
}
