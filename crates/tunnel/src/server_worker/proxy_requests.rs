//! Requests of programs that use the server as an HTTPS proxy: their logins, and the delays after wrong ones.
//!
//! ```text
//!  request ─► no delay of its source ─► right login, or none ─► judged as any client's request
//!                │            ▲   └──► wrong login ─► held ─► 407
//!                └─► held ────┘
//! ```
//!
//! A held request keeps its place among strangers. The places of one source are limited, and so is the time.
//!
//! By HTTP/2, a connection has many requests. A connection that its first right login has admitted belongs to that client,
//! and each further request needs the same login.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Instant;

use quictun_control::log::Untrusted;
use quictun_engine::{ConnectionId, FlowId, OpenRequest};
use quictun_trust::access::Peer;
use quictun_trust::shares::Holder;
use tracing::{debug, warn};

use super::ServerWorker;
use crate::app_socket::AppSocket;
use crate::carrier_sockets::prepare_tunnel;
use crate::login_delays::{LoginDelays, LoginVerdict};
use crate::role::ServerContext;

/// The requests of a worker that wait.
#[derive(Debug)]
pub(crate) struct HeldRequests {
    delays: LoginDelays,
    by_time: BTreeMap<(Instant, FlowId), HeldRequest>,
    times: HashMap<FlowId, Instant>,
    /// Connections that a login has admitted.
    by_login: HashSet<ConnectionId>,
}

#[derive(Debug)]
struct HeldRequest {
    opened: OpenRequest,
    /// The login is wrong, and the answer is due.
    wrong: bool,
}

impl HeldRequests {
    pub(crate) fn new(delays: LoginDelays) -> Self {
        Self {
            delays,
            by_time: BTreeMap::new(),
            times: HashMap::new(),
            by_login: HashSet::new(),
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.by_time.keys().next().map(|&(at, _)| at)
    }

    /// Forgets the request of a flow that has ended.
    pub(super) fn forget(&mut self, flow: FlowId) {
        if let Some(at) = self.times.remove(&flow) {
            self.by_time.remove(&(at, flow));
        }
    }

    pub(super) fn forget_connection(&mut self, connection: ConnectionId) {
        self.by_login.remove(&connection);
    }

    fn hold(&mut self, at: Instant, opened: OpenRequest, wrong: bool) {
        let flow = opened.flow;
        self.times.insert(flow, at);
        let held = HeldRequest { opened, wrong };
        self.by_time.insert((at, flow), held);
    }

    fn take_due(&mut self, now: Instant) -> Option<HeldRequest> {
        let first = self.by_time.first_entry()?;
        if first.key().0 > now {
            return None;
        }
        let held = first.remove();
        self.times.remove(&held.opened.flow);
        Some(held)
    }
}

impl ServerWorker {
    /// Handles a request by HTTP. A client that its certificate has identified needs no login.
    pub(super) fn handle_proxy_request(&mut self, cx: &mut ServerContext<'_>, opened: OpenRequest) {
        let awaits = cx.engine.awaits_identity(opened.connection);
        let needs_login = awaits || self.held.by_login.contains(&opened.connection);
        if needs_login && opened.user.is_none() {
            return self.decide(cx, &opened, Peer::Unknown);
        }
        if needs_login {
            let source = Holder::at(opened.remote.ip());
            let is_right = || self.is_login(cx, &opened);
            match self.held.delays.judge(cx.now, source, is_right) {
                LoginVerdict::Right => {}
                LoginVerdict::Wait(at) => return self.held.hold(at, opened, false),
                LoginVerdict::Wrong(at) => {
                    self.log_wrong_login(cx.now, &opened);
                    return self.held.hold(at, opened, true);
                }
            }
        }
        self.handle_open(cx, &opened);
        if awaits && self.peers.contains_key(&opened.connection) {
            self.held.by_login.insert(opened.connection);
        }
        self.prepare_tunnel(cx, &opened);
    }

    pub(super) fn handle_held_requests(&mut self, cx: &mut ServerContext<'_>) {
        while let Some(held) = self.held.take_due(cx.now) {
            if held.wrong {
                self.decide(cx, &held.opened, Peer::Unknown);
            } else {
                self.handle_proxy_request(cx, held.opened);
            }
        }
    }

    /// Returns whether the user of a login is a client of the configuration, and the password the client's secret. A
    /// connection that has a client needs a login of that client.
    fn is_login(&self, cx: &ServerContext<'_>, opened: &OpenRequest) -> bool {
        let known = opened
            .proof
            .and_then(|proof| self.peer_by_proof(cx, opened.connection, proof));
        let of_connection = match self.peer(opened.connection) {
            Peer::Named(client) => Some(client),
            Peer::Anyone | Peer::Unknown => None,
        };
        matches!(known, Some(Peer::Named(client)) if Some(client.name()) == opened.user.as_deref()
            && of_connection.is_none_or(|it| it.name() == client.name()))
    }

    /// Logs the user if it is a client's name. Some programs have a secret in its place.
    fn log_wrong_login(&self, now: Instant, opened: &OpenRequest) {
        let remote = opened.remote;
        if let Some(line) = self.lines.take(&Holder::at(remote.ip()), now) {
            let user = opened.user.as_deref();
            let known = user.filter(|user| self.policy.names().any(|name| name == *user));
            let user = known.map(|name| tracing::field::display(Untrusted(name)));
            warn!(target: "quictun", { "Client-Endpoint-Addr" = %remote, user, lines_left_out = line.left_out() }, "a login at the HTTPS proxy is wrong: no client has this name and this secret");
        }
    }

    /// Sets the options of the socket of a client that is admitted. Its flow ends with its connection.
    fn prepare_tunnel(&self, cx: &ServerContext<'_>, opened: &OpenRequest) {
        if !self.peers.contains_key(&opened.connection) {
            return;
        }
        if let Some(AppSocket::Tcp(socket)) = cx.engine.carrier_socket(opened.connection)
            && let Err(cause) = prepare_tunnel(socket.stream())
        {
            debug!(target: "quictun", %cause, "the TCP connection of a proxy's client has failed");
        }
    }
}
