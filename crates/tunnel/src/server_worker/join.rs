//! Clients that join by an invitation (PROTOCOL section 5.7).

use std::net::SocketAddr;
use std::sync::Arc;

use quictun_engine::ConnectionId;
use quictun_wire::code::CloseCode;
use quictun_wire::join::{Grant, Join};
use tracing::{info, warn};

use super::ServerWorker;
use crate::reload::join_messages::{JoinOutcome, JoinReply, PendingJoin};
use crate::role::ServerContext;
use quictun_control::log::Untrusted;
use quictun_trust::access::{Client, Peer};
use quictun_trust::enrolment::{JoinAttempt, JoinRefusal};
use quictun_trust::identity::pin_of;
use quictun_trust::shares::Holder;

impl ServerWorker {
    /// Handles a client that shows an invitation's code. If its key is known by another name, it only gets a grant for
    /// that name. If its key is known by this name, it may have been revoked and invited again since the rules were
    /// read (PROTOCOL JOIN-5).
    pub(super) fn handle_join(
        &mut self,
        cx: &mut ServerContext<'_>,
        connection: ConnectionId,
        remote: SocketAddr,
        join: &Join,
    ) {
        if !cx.engine.awaits_identity(connection) {
            let client = match self.peer(connection) {
                Peer::Named(client) => Some(client),
                Peer::Anyone | Peer::Unknown => None,
            };
            let is_same = |client: &Arc<Client>| client.name() == join.name;
            if self.clients.is_none() || !client.as_ref().is_some_and(is_same) {
                let grant = client.map(|client| self.grant(&client));
                return cx.engine.answer_join(cx.now, connection, grant);
            }
        }
        let Some(clients) = self.clients.clone() else {
            return self.refuse_join(cx, connection, remote, &join.name, &JoinRefusal::Unknown);
        };
        let Some(attempt) = attempt(cx, connection, join) else {
            return self.refuse_join(cx, connection, remote, &join.name, &JoinRefusal::NoKey);
        };
        let joining = PendingJoin {
            worker: self.index,
            connection,
            remote,
            clients,
            attempt,
        };
        if self.joins.try_send(joining).is_err() {
            // Too many clients try to join at once. The code stays valid, and the client tries again.
            cx.engine
                .close_connection(cx.now, connection, CloseCode::TooManyConnections);
        }
    }

    /// Handles the decision on an attempt. After a success the client is already among this worker's rules.
    pub(super) fn handle_joined(&mut self, cx: &mut ServerContext<'_>, joined: JoinReply) {
        let JoinReply {
            connection,
            remote,
            attempt,
            outcome,
        } = joined;
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(refused) => {
                return self.refuse_join(cx, connection, remote, &attempt.join.name, &refused);
            }
        };
        let Some(client) = self.policy.by_pin(&attempt.pin) else {
            // The client was revoked in the same moment.
            return self.refuse_join(
                cx,
                connection,
                remote,
                &attempt.join.name,
                &JoinRefusal::Unknown,
            );
        };
        let (name, pin) = (client.name(), attempt.pin);
        if outcome == JoinOutcome::Enrolled {
            info!(target: "quictun", { "Client-Endpoint-Addr" = %remote, client = name, %pin }, "a client has joined by its invitation");
        }
        // The connection may have gone meanwhile. The client then connects again and is known.
        let is_new = cx.engine.awaits_identity(connection);
        cx.engine
            .answer_join(cx.now, connection, Some(self.grant(&client)));
        if is_new {
            self.welcome(cx, connection, remote, Peer::Named(client));
        }
    }

    fn grant(&self, client: &Client) -> Grant {
        let name = client.name();
        Grant::new(name, self.policy.rules_of(name))
    }

    fn refuse_join(
        &self,
        cx: &mut ServerContext<'_>,
        connection: ConnectionId,
        remote: SocketAddr,
        name: &str,
        refused: &JoinRefusal,
    ) {
        if let Some(line) = self.lines.take(&Holder::at(remote.ip()), cx.now) {
            let (client, cause) = (Untrusted(name), quictun_trust::error_chain(refused));
            warn!(target: "quictun", { "Client-Endpoint-Addr" = %remote, %client, cause, lines_left_out = line.left_out() }, "an attempt to join was refused");
        }
        // If its key could not be stored, the code stays valid, and the client tries again.
        let code = match refused {
            JoinRefusal::Store(_) => CloseCode::NotStored,
            _ => CloseCode::NotAuthorized,
        };
        cx.engine.close_connection(cx.now, connection, code);
    }
}

/// Returns `None` if the client shows no key.
fn attempt(cx: &ServerContext<'_>, connection: ConnectionId, join: &Join) -> Option<JoinAttempt> {
    let shown = cx.engine.credentials(connection)?;
    Some(JoinAttempt {
        exporter: shown.exporter?,
        pin: pin_of(shown.certificates?.first()?).ok()?,
        join: join.clone(),
    })
}
