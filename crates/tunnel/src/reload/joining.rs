//! Joining: a client that is added by an invitation while the server runs.
//!
//! ```text
//! worker: JOIN ─► attempt ─► keeper: the client's key is stored ─► rules in force, and this client ─► every worker
//!           ▲                                                                                            │
//!           └─────────────────────────── ServerMessage::Joined ◄─────────────────────────────────────────┘
//! ```
//!
//! Only this client is added, or gets the rules of its new invitation. Other changes of the configuration wait for a
//! reload. Attempts and reloads run one at a time, so that neither puts rules into force that lack a client which the
//! other has added.

use std::io;

use tracing::error;

use super::Reload;
use super::join_messages::{JoinOutcome, JoinReply, PendingJoin};
use super::send_rules::send_rules;
use super::source::KeyStatus;
use crate::disk_queue::STORE;
use crate::mailbox::{Mailbox, ServerMessage};
use quictun_trust::enrolment::{Directory, Enrolment, JoinAttempt, JoinRefusal};
use quictun_trust::keeper;
use quictun_trust::settings::{ClientProof, NamedClient, TargetRule};

/// Decides on an attempt, and puts the client's rules into force.
///
/// # Cancel safety
///
/// Dropping the future may leave the client known to some workers only. That happens only at the end of the process.
pub(crate) async fn run(reload: Reload, mailboxes: Vec<Mailbox>, joining: PendingJoin) {
    let outcome = enrol(&reload, &mailboxes, &joining).await;
    let joined = JoinReply {
        connection: joining.connection,
        remote: joining.remote,
        attempt: joining.attempt,
        outcome,
    };
    mailboxes[joining.worker].send(ServerMessage::Joined(Box::new(joined)));
}

async fn enrol(
    reload: &Reload,
    mailboxes: &[Mailbox],
    joining: &PendingJoin,
) -> Result<JoinOutcome, JoinRefusal> {
    let attempt = &joining.attempt;
    let key_status = reload.source.key_status(attempt);
    match key_status {
        KeyStatus::New | KeyStatus::Same => {}
        // Another connection of the same client may have been quicker.
        KeyStatus::OtherName => return Ok(JoinOutcome::Known),
        KeyStatus::OtherKey => return Err(JoinRefusal::Used),
    }
    let Enrolment {
        allow,
        limits,
        already_stored,
    } = match store(joining.clients.clone(), attempt.clone()).await {
        // The key is known and the invitation is gone: the answer to an earlier attempt was lost, or the configuration
        // names the client.
        Err(JoinRefusal::Used | JoinRefusal::Unknown) if key_status == KeyStatus::Same => {
            return Ok(JoinOutcome::Known);
        }
        stored => stored?,
    };
    if already_stored && key_status == KeyStatus::Same {
        return Ok(JoinOutcome::Known);
    }
    let allow: Result<Vec<TargetRule>, _> = allow.iter().map(|rule| rule.parse()).collect();
    let client = NamedClient {
        name: attempt.join.name.clone(),
        proofs: vec![ClientProof::Pin(attempt.pin)],
        allow: allow.map_err(|_| JoinRefusal::NotInForce)?,
        listen: Vec::new(),
        limits,
        names_sources: false,
    };
    let rules = match reload.source.with_client(&client) {
        Ok(rules) => rules,
        // The configuration has further proofs of this client, which take precedence over this key alone.
        Err(_) if key_status == KeyStatus::Same => return Ok(JoinOutcome::Enrolled),
        Err(error) => {
            let cause = quictun_trust::error_chain(&error);
            error!(target: "quictun", client = client.name, cause, "cannot add a client that has joined to the known clients");
            return Err(JoinRefusal::NotInForce);
        }
    };
    // One more client revokes nothing. A client that was invited again may reach less than before.
    send_rules(&rules, None, None, mailboxes).await;
    reload.source.commit(&rules);
    Ok(JoinOutcome::Enrolled)
}

/// Makes the keeper store the client's key, on a thread that may block.
async fn store(clients: Directory, attempt: JoinAttempt) -> Result<Enrolment, JoinRefusal> {
    let stored = STORE.run(move || keeper::enrol(&clients, &attempt)).await;
    stored.unwrap_or_else(|_| {
        let failed = "storing it has failed: this is a bug";
        Err(JoinRefusal::Store(io::Error::other(failed)))
    })
}
