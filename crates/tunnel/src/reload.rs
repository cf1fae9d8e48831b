//! Reloading the configuration while the process runs: SIGHUP, `systemctl reload`.
//!
//! ```text
//! signal ─► RELOADING=1 ─► read: file, secrets, keys, certificates ─┬─► bad: one line says why, nothing has changed ─┐
//!                          (a thread that may wait)                 └─► good: Message::Rules to every worker         ├─► READY=1
//!                                                                       each judges all it has again, and answers ───┘
//! ```
//!
//! `run` returns and logs the result only after every worker has answered. From then on, no worker applies the old
//! rules. A `ReloadSource` defines what a process can read again; `ReloadSource::read` reads all files.

pub(crate) mod change;
pub(crate) mod client;
pub(crate) mod dial_rules;
pub(crate) mod dialled;
mod error;
pub(crate) mod forwards;
pub(crate) mod join_messages;
pub(crate) mod joining;
pub(crate) mod pairing;
pub(crate) mod running_client;
mod send_rules;
pub(crate) mod server;
pub(crate) mod source;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tracing::{info, warn};

use crate::disk_queue::RULES;
use crate::mailbox::Mailbox;
use quictun_control::reload::{BoxFuture, Changes, ReloadOutcome, ReloadState, Reloadable};
use quictun_control::systemd;
use quictun_trust::keeper::{self, LoadPurpose};

use change::Rules;
use error::ReloadError;
use running_client::RunningClient;
use send_rules::send_rules;
use source::{PreparedReload, ReloadSource};

pub use error::{ConfigReadError, ReadConfig, RereadClient, RereadServer};

/// Time limit of a preview, whose reader waits. A reload has none: it happens as soon as the disk answers.
const PREVIEW: Duration = Duration::from_secs(10);

/// Maximum number of changes that are logged one per line. Further changes are only counted.
const LINES_MAX: usize = 64;

#[derive(Clone)]
pub(crate) struct Reload {
    source: Arc<ReloadSource>,
    state: ReloadState,
    /// The client whose forwards and servers a reload changes. `None` on a server.
    client: Option<RunningClient>,
}

impl std::fmt::Debug for Reload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reload")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl Reload {
    /// Creates the reload of a process. `client` is the client whose forwards and servers it changes.
    pub(crate) fn new(source: ReloadSource, client: Option<RunningClient>) -> Self {
        Self {
            source: Arc::new(source),
            state: ReloadState::default(),
            client,
        }
    }

    /// Returns the time for open flows to finish, as the latest configuration has it.
    pub(crate) fn drain(&self) -> Duration {
        self.source.transport().drain
    }

    /// Reads the configuration on a thread that may block, for as long as the disk needs.
    pub(crate) async fn read(&self, purpose: LoadPurpose) -> Result<PreparedReload, ReloadError> {
        let source = self.source.clone();
        // The keeper provides the files, if there is one.
        let read = RULES.run(move || keeper::reload(purpose, || source.read()));
        match read.await {
            Ok(Ok(read)) => read,
            Ok(Err(error)) => Err(ReloadError::Keeper(error)),
            Err(_) => Err(ReloadError::Panicked),
        }
    }
}

impl Reloadable for Reload {
    fn would_change(&self) -> BoxFuture<'_, Result<Changes, String>> {
        Box::pin(async {
            match tokio::time::timeout(PREVIEW, self.read(LoadPurpose::Preview)).await {
                Ok(read) => read
                    .map(|prepared| prepared.changes)
                    .map_err(|error| error.one_line()),
                Err(_) => Err(format!(
                    "the files were not read within {} s: does a disk hang?",
                    PREVIEW.as_secs()
                )),
            }
        })
    }

    fn state(&self) -> &ReloadState {
        &self.state
    }
}

/// Reloads the configuration and applies it. Reports the result to the log and to the service manager.
///
/// # Cancel safety
///
/// If it is dropped, only some workers may have the new rules. Drop it only at the end of the process.
pub(crate) async fn run(reload: Reload, mailboxes: Vec<Mailbox>) {
    systemd::notify_reloading();
    let outcome = match reload.read(LoadPurpose::Apply).await {
        Ok(prepared) => Ok(apply_reload(&reload, prepared, &mailboxes).await),
        Err(error) => {
            let cause = error.one_line();
            warn!(target: "quictun", cause, "configuration not reloaded: nothing was changed");
            Err(cause)
        }
    };
    reload.state.set(Some(ReloadOutcome {
        at: SystemTime::now(),
        result: outcome,
    }));
    systemd::notify_ready();
}

async fn apply_reload(reload: &Reload, prepared: PreparedReload, mailboxes: &[Mailbox]) -> Changes {
    let Changes { mut lines, restart } = prepared.changes;
    let (ended, in_force) = match (&prepared.rules, &reload.client) {
        (Rules::Client(rules), Some(client)) => {
            let transport = &prepared.transport;
            let (ended, rules, failed) = client.apply(rules, transport, mailboxes).await;
            lines.extend(failed);
            (ended, Rules::Client(rules))
        }
        (rules, _) => {
            let transport = Some(&prepared.transport);
            let ended = send_rules(rules, None, transport, mailboxes).await;
            (ended, rules.clone())
        }
    };
    reload.source.commit(&in_force);
    reload.source.commit_transport(&prepared.transport);
    for warning in prepared.warnings.iter().take(LINES_MAX) {
        warn!(target: "quictun", warning, "the configuration needs attention");
    }
    for change in lines.iter().take(LINES_MAX) {
        info!(target: "quictun", change, "configuration changed");
    }
    if !restart.is_empty() {
        warn!(target: "quictun", keys = restart.join(", "), "these settings were changed and need a restart");
    }
    info!(
        target: "quictun",
        changes = lines.len(),
        connections_ended = ended.connections,
        flows_ended = ended.flows,
        "configuration reloaded"
    );
    Changes { lines, restart }
}

#[cfg(test)]
mod tests;
