//! Clients that join by an invitation (PROTOCOL section 5.7).

use std::net::SocketAddr;
use std::sync::Arc;

use quictun_engine::ConnectionId;
use quictun_wire::code::CloseCode;
use quictun_wire::join::{Grant, Join};
use tracing::{info, warn};

use super::ServerDuty;
use crate::duty::Io;
use crate::reload::joining::{Joined, Joining, Outcome};
use quictun_control::log::Foreign;
use quictun_trust::access::{Client, Peer};
use quictun_trust::enrolment::{Attempt, Refused};
use quictun_trust::identity::pin_of;
use quictun_trust::shares::Holder;

impl ServerDuty {
    /// Handles a client that shows an invitation's code. If its key is known by another name, it only gets a grant for
    /// that name. If its key is known by this name, it may have been revoked and invited again since the rules were
    /// read (PROTOCOL JOIN-5).
    pub(super) fn handle_join(
        &mut self,
        io: &mut Io<'_>,
        connection: ConnectionId,
        remote: SocketAddr,
        join: &Join,
    ) {
        if !io.engine.awaits_identity(connection) {
            let client = match self.known(connection) {
                Peer::Named(client) => Some(client),
                Peer::Anyone | Peer::Unknown => None,
            };
            let is_same = |client: &Arc<Client>| client.name() == join.name;
            if self.clients.is_none() || !client.as_ref().is_some_and(is_same) {
                let grant = client.map(|client| self.grant(&client));
                return io.engine.answer_join(io.now, connection, grant);
            }
        }
        let Some(clients) = self.clients.clone() else {
            return self.refuse_join(io, connection, remote, &join.name, &Refused::Unknown);
        };
        let Some(attempt) = attempt(io, connection, join) else {
            return self.refuse_join(io, connection, remote, &join.name, &Refused::NoKey);
        };
        let joining = Joining {
            worker: self.index,
            connection,
            remote,
            clients,
            attempt,
        };
        if self.joins.try_send(joining).is_err() {
            // Too many clients try to join at once. The code stays valid, and the client tries again.
            io.engine
                .close_connection(io.now, connection, CloseCode::TooManyConnections);
        }
    }

    /// Handles the decision on an attempt. After a success the client is already among this worker's rules.
    pub(super) fn handle_joined(&mut self, io: &mut Io<'_>, joined: Joined) {
        let Joined {
            connection,
            remote,
            attempt,
            outcome,
        } = joined;
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(refused) => {
                return self.refuse_join(io, connection, remote, &attempt.join.name, &refused);
            }
        };
        let Some(client) = self.policy.by_pin(&attempt.pin) else {
            // The client was revoked in the same moment.
            return self.refuse_join(
                io,
                connection,
                remote,
                &attempt.join.name,
                &Refused::Unknown,
            );
        };
        let (name, pin) = (client.name(), attempt.pin);
        if outcome == Outcome::Enrolled {
            info!(target: "quictun", { "Client-Endpoint-Addr" = %remote, client = name, %pin }, "a client has joined by its invitation");
        }
        // The connection may have gone meanwhile. The client then connects again and is known.
        let is_new = io.engine.awaits_identity(connection);
        io.engine
            .answer_join(io.now, connection, Some(self.grant(&client)));
        if is_new {
            self.welcome(io, connection, remote, Peer::Named(client));
        }
    }

    fn grant(&self, client: &Client) -> Grant {
        let name = client.name();
        Grant::new(name, self.policy.rules_of(name))
    }

    fn refuse_join(
        &self,
        io: &mut Io<'_>,
        connection: ConnectionId,
        remote: SocketAddr,
        name: &str,
        refused: &Refused,
    ) {
        if let Some(line) = self.lines.take(&Holder::at(remote.ip()), io.now) {
            let (client, cause) = (Foreign(name), quictun_trust::error_chain(refused));
            warn!(target: "quictun", { "Client-Endpoint-Addr" = %remote, %client, cause, lines_left_out = line.left_out() }, "an attempt to join was refused");
        }
        // If its key could not be stored, the code stays valid, and the client tries again.
        let code = match refused {
            Refused::Store(_) => CloseCode::TooManyConnections,
            _ => CloseCode::NotAuthorized,
        };
        io.engine.close_connection(io.now, connection, code);
    }
}

/// Returns `None` if the client shows no key.
fn attempt(io: &Io<'_>, connection: ConnectionId, join: &Join) -> Option<Attempt> {
    let shown = io.engine.credentials(connection)?;
    Some(Attempt {
        exporter: shown.exporter?,
        pin: pin_of(shown.certificates?.first()?).ok()?,
        join: join.clone(),
    })
}
