//! The servers as a client's worker dials them: the outcome of its dials, the log lines about it, and the changes that a
//! reload makes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use quictun_engine::report::{
    CarrierKind, ChoiceReason, Protocol, ServerId, TransferReason, TransfersOverTls,
};
use quictun_engine::{LossReason, ServerPlace};
use tracing::{debug, error, info, warn};

use crate::outage_log::{self, Origin, OutageSummary};
use crate::outbound_proxy::OpenProxy;
use crate::refusal;
use crate::reload::dialled::DialledServer;
use crate::requests::{Request, Requester};
use crate::role::ClientContext;
use crate::servers::Servers;
use quictun_control::log::Untrusted;
use quictun_control::systemd;

/// All servers, as this worker sees them.
pub(crate) struct ServerDialling {
    control: Requester,
    pub(super) servers: Arc<Servers>,
    each: Vec<DialState>,
}

/// One server, as this worker sees it.
#[derive(Clone, Debug, Default)]
struct DialState {
    /// Time of the warning that the server does not answer, while this worker dials without a connection.
    silent_at: Option<Instant>,
    /// The cause of the latest failed attempt, unless the server was only silent.
    unreachable: Option<String>,
}

impl DialState {
    /// Notes an attempt. The server must answer it, or one of those after it, within the limit.
    fn handle_attempt(&mut self, now: Instant) {
        let silent_at = now + outage_log::SILENCE_LIMIT;
        self.silent_at.get_or_insert(silent_at);
    }

    /// Notes that a connection has ended. A server that refuses this client has answered.
    fn handle_disconnected(&mut self, reason: &LossReason) {
        if refusal::cause(reason).is_some() {
            self.silent_at = None;
        }
    }
}

impl ServerDialling {
    /// Begins with this number of servers.
    pub(crate) fn new(control: Requester, servers: Arc<Servers>, count: usize) -> Self {
        Self {
            control,
            servers,
            each: vec![DialState::default(); count],
        }
    }

    fn set(&mut self, server: ServerId, state: DialState) {
        if let Some(known) = self.each.get_mut(server.0) {
            *known = state;
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.each.iter().filter_map(|it| it.silent_at).min()
    }

    pub(super) fn request_addresses(
        &mut self,
        cx: &mut ClientContext<'_>,
        server: ServerId,
        tenant: u32,
    ) {
        if let Some(dialling) = self.each.get_mut(server.0) {
            dialling.handle_attempt(cx.now);
        }
        let request = Request::ResolveServer { server, tenant };
        if self.control.send(request).is_err() {
            let busy = Err("too many look-ups are waiting".to_owned());
            cx.engine.handle_resolved(cx.now, server, tenant, &busy);
        }
    }

    pub(super) fn log_choice(&self, server: ServerId, before: Option<ServerId>, why: ChoiceReason) {
        if self.servers.is_new_choice(server) {
            let before = before.map(|before| self.servers.name(before));
            let (server, why) = (self.servers.name(server), why.text());
            info!(target: "quictun", server, before, why, "new flows go to this server");
        }
    }

    pub(super) fn log_transfers(
        &self,
        server: ServerId,
        over_tls: Option<TransfersOverTls>,
        why: TransferReason,
    ) {
        let (server, why) = (self.servers.name(server), why.text());
        if let Some(TransfersOverTls { quic, tls, .. }) = over_tls {
            let [quic_mbit, tls_mbit] = [quic, tls].map(|bytes_per_s| bytes_per_s / 125_000);
            info!(target: "quictun", server, why, quic_mbit, tls_mbit, "transfers use TLS over TCP");
        } else {
            info!(target: "quictun", server, why, "transfers use QUIC again");
        }
    }

    pub(super) fn handle_welcome(
        &mut self,
        now: Instant,
        server: ServerId,
        remote: SocketAddr,
        (protocol, carrier, proxy): (Protocol, CarrierKind, Option<&OpenProxy>),
        bonded: bool,
    ) {
        self.set(server, DialState::default());
        let Some(status) = self.servers.get(server) else {
            return;
        };
        self.servers.handle_answer();
        if let Some(OutageSummary { failures, lasts }) = status.outages.connected(now) {
            let after_s = lasts.as_secs();
            info!(target: "quictun", { "Server-Endpoint-Addr" = %remote, failures, after_s }, "the server answers again");
        }
        status.carriers.handle_welcome(remote, carrier);
        let protocol = protocol.alpn();
        let carrier = (carrier == CarrierKind::Tls).then_some(carrier.name());
        let proxy = proxy.map(tracing::field::display);
        if status.refused.is_set() {
            // The server may refuse again in a moment: see `crate::refusal`.
            debug!(target: "quictun", { "Server-Endpoint-Addr" = %remote, protocol, carrier, proxy }, "connected to server endpoint");
        } else {
            info!(target: "quictun", { "Server-Endpoint-Addr" = %remote, protocol, carrier, proxy }, "connected to server endpoint");
            systemd::notify_connected(remote);
        }
        status.bond_notice.handle_welcome(remote, bonded);
    }

    /// Handles an answer on a connection that was silent: the outage has ended, unless the server itself refuses other
    /// connections.
    pub(super) fn handle_answer(&mut self, now: Instant, server: ServerId, remote: SocketAddr) {
        self.set(server, DialState::default());
        let Some(status) = self.servers.get(server) else {
            return;
        };
        let ended = status.outages.answered(now);
        if status.outages.cause().is_none() {
            self.servers.handle_answer();
        }
        if let Some(OutageSummary { failures, lasts }) = ended {
            let (failures, after_s) = ((failures > 0).then_some(failures), lasts.as_secs());
            info!(target: "quictun", { "Server-Endpoint-Addr" = %remote, failures, after_s }, "the server answers again");
        }
    }

    pub(super) fn handle_failed(
        &mut self,
        now: Instant,
        server: ServerId,
        remote: Option<SocketAddr>,
        reason: &LossReason,
    ) {
        let (cause, check) = outage_log::explain(reason);
        let silent = *reason == LossReason::TimedOut;
        let state = DialState {
            silent_at: None,
            unreachable: (!silent).then(|| Untrusted(&cause).to_string()),
        };
        self.set(server, state);
        let Some(status) = self.servers.get(server) else {
            return;
        };
        if let Some(OutageSummary { failures, lasts }) =
            status.outages.failed(now, &cause, Origin::of(reason))
        {
            let name = || self.servers.name(server);
            let at = remote.map_or_else(name, |remote| remote.to_string());
            let reason = Untrusted(cause);
            let failures = (failures > 1).then_some(failures);
            let since_s = failures.map(|_| lasts.as_secs());
            warn!(target: "quictun", { "Server-Endpoint-Addr" = at, %reason, failures, since_s, check }, "cannot connect to server endpoint; dialling continues");
        }
        self.log_if_all_failed();
    }

    /// Asks the control plane to send a probe to servers that have been silent for long.
    ///
    /// Later failures have their own log lines. The user of a command sees such a line as soon as one of the command's
    /// connections waits, so nothing is sent if `no_flow_waits`.
    pub(super) fn probe_silent_servers(&mut self, now: Instant, no_flow_waits: bool) {
        for (index, dialling) in self.each.iter_mut().enumerate() {
            if dialling.silent_at.is_none_or(|at| now < at) {
                continue;
            }
            dialling.silent_at = no_flow_waits.then(|| now + outage_log::SILENCE_LIMIT);
            let server = ServerId(index);
            let status = self.servers.get(server);
            if !no_flow_waits && status.is_some_and(|it| it.outages.unanswered(now)) {
                // If the control plane is too busy, the failure of the attempt is logged instead.
                self.control.send(Request::Unanswered(server)).ok();
                self.log_if_all_failed();
                return self.probe_silent_servers(now, no_flow_waits);
            }
        }
    }

    fn log_if_all_failed(&self) {
        if let Some(tried) = self.servers.all_failed() {
            let tried = Untrusted(tried);
            warn!(target: "quictun", %tried, "none of the servers can be reached: flows wait, and dialling continues");
        }
    }

    /// Returns the cause that keeps flows from every server, if known.
    pub(super) fn unreachable(&self) -> Option<String> {
        let each = self.each.iter().enumerate();
        let causes = each.filter_map(|(index, it)| Some((index, it.unreachable.as_deref()?)));
        let descriptions = causes.map(|(index, cause)| match self.each.len() {
            1 => cause.to_owned(),
            _ => format!("{}: {cause}", self.servers.name(ServerId(index))),
        });
        let descriptions: Vec<String> = descriptions.collect();
        (!descriptions.is_empty()).then(|| descriptions.join("; "))
    }

    pub(super) fn handle_disconnected(
        &mut self,
        server: Option<ServerId>,
        remote: SocketAddr,
        reason: &LossReason,
        (flows, waiting): (usize, usize),
    ) {
        let dialling = server.and_then(|server| self.each.get_mut(server.0));
        if let Some(dialling) = dialling {
            dialling.handle_disconnected(reason);
        }
        let closed_here = [LossReason::ClosedLocally, LossReason::HandedOver];
        let shown = Untrusted(reason);
        if waiting > 0 {
            info!(target: "quictun", { "Server-Endpoint-Addr" = %remote, reason = %shown, flows = waiting }, "connection to server endpoint lost: its flows wait for another one");
            if flows == 0 {
                return;
            }
        }
        let status = server.and_then(|server| self.servers.get(server));
        let refused = status.map(|status| &status.refused);
        match refusal::cause(reason) {
            None if closed_here.contains(reason) && flows == 0 => {
                info!(target: "quictun", { "Server-Endpoint-Addr" = %remote }, "connection to server endpoint closed");
            }
            None => {
                warn!(target: "quictun", { "Server-Endpoint-Addr" = %remote, reason = %shown, flows }, "connection to server endpoint lost");
            }
            Some(cause) if refused.is_some_and(refusal::RefusalFlag::set) => {
                warn!(target: "quictun", { "Server-Endpoint-Addr" = %remote, cause, reason = %shown, flows }, "the server refuses this client; the client dials again, and further refusals are not logged");
            }
            Some(cause) => {
                debug!(target: "quictun", { "Server-Endpoint-Addr" = %remote, cause, reason = %shown, flows }, "the server still refuses this client");
            }
        }
    }

    /// Applies a reload: sets the servers, with the trust and the proofs of connections made from now on.
    pub(super) fn apply(&mut self, cx: &mut ClientContext<'_>, dialled: &[DialledServer]) {
        for (index, server) in dialled.iter().enumerate() {
            let Some(rules) = &server.rules else {
                continue;
            };
            let (crypto, fallback) = (&rules.crypto, rules.fallback.as_ref());
            let prover = rules.prover.clone();
            let applied = if index < self.each.len() {
                cx.engine
                    .set_client_identity(ServerId(index), crypto, fallback, prover)
            } else {
                self.each.push(DialState::default());
                // `set_places` puts it to use.
                let unused = ServerPlace {
                    wanted: false,
                    ..ServerPlace::default()
                };
                cx.engine
                    .add_server(&rules.to_dial(&server.address, unused))
            };
            if let Err(cause) = applied {
                error!(target: "quictun", %cause, "cannot apply the new certificate and secret: new connections use the old ones");
            }
        }
        self.set_places(cx);
    }

    /// Applies the current records of a service to the engine's servers; they may have changed.
    pub(super) fn set_places(&mut self, cx: &mut ClientContext<'_>) {
        for index in 0..self.each.len() {
            let server = ServerId(index);
            let Some(place) = self.servers.place(server) else {
                continue;
            };
            if !place.wanted {
                self.each[index] = DialState::default();
            }
            cx.engine.set_place(cx.now, server, place);
        }
    }
}

#[cfg(test)]
mod tests;
