//! Reading the configuration again while the process runs: SIGHUP, `systemctl reload`.
//!
//! ```text
//! signal ─► RELOADING=1 ─► read: file, secrets, keys, certificates ─┬─► bad: one line says why, nothing has changed ─┐
//!                          (a thread that may wait)                 └─► good: Message::Rules to every worker         ├─► READY=1
//!                                                                       each judges all it has again, and answers ───┘
//! ```
//!
//! [`run`] returns, and says so, only when every worker has answered: from then on nothing is accepted by the old
//! rules. What a process can read again is a [`Source`]; [`Source::read`] does all the reading of files.

mod client;
mod server;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use thiserror::Error;
use tokio::sync::mpsc::{Sender, channel};
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::mailbox::{Mailbox, Message};
use quictun_control::reload::{Changes, Later, Outcome, Reloadable, State};
use quictun_control::systemd;
use quictun_trust::access::AccessError;
use quictun_trust::identity::IdentityError;
use quictun_trust::keeper;
use quictun_trust::psk::PskError;
use quictun_trust::tls::TlsError;

pub(crate) use client::{ClientRules, ClientSource, reads_of_client};
pub(crate) use server::{ServerRules, ServerSource, reads_of_server};

/// A worker that has not taken the new rules after this is stuck, which is worth a line.
const SLOW: Duration = Duration::from_secs(10);

/// Changes that get a line of their own; the rest is counted.
const LINES_MAX: usize = 64;

/// Why a configuration cannot be read again, as its reader says it.
pub type Unreadable = Box<dyn std::error::Error + Send + Sync>;

/// Reads the configuration: what the process would run with if it were started now.
pub type Read<S> = Arc<dyn Fn() -> Result<S, Unreadable> + Send + Sync>;

/// Why nothing was changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// The configuration file, or a flag or variable beside it, cannot be read.
    #[error(transparent)]
    Configuration(#[from] Unreadable),
    /// Rules, clients or secrets.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// A client's secret.
    #[error(transparent)]
    Secret(#[from] PskError),
    /// The own certificate or key.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The TLS library.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A server that lets everyone in has no rules to read.
    #[error("this configuration lets every client in: it cannot be changed without a restart")]
    Open,
    /// The process that reads files for this one.
    #[error("the files cannot be read")]
    Keeper(#[source] std::io::Error),
    /// The thread that reads has panicked.
    #[error("reading the configuration has failed: this is a bug")]
    Panicked,
}

impl ReloadError {
    /// The error and its causes in one line.
    pub fn one_line(&self) -> String {
        let text = match self {
            // These are transparent: their own chain is the whole of it.
            Self::Configuration(error) => quictun_trust::error_chain(error.as_ref()),
            other => quictun_trust::error_chain(other),
        };
        one_line(&text)
    }
}

/// What a process can read again.
pub(crate) trait Source: Send + Sync {
    /// Reads everything and says what would change. It opens files and may wait: not for a thread that must not.
    fn read(&self) -> Result<Prepared, ReloadError>;
    /// These rules are in force.
    fn commit(&self, rules: &Rules);
}

/// What was read, ready to be put into force.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    pub(crate) changes: Changes,
    pub(crate) rules: Rules,
}

/// New rules, for all workers.
#[derive(Clone, Debug)]
pub(crate) enum Rules {
    Server(Arc<ServerRules>),
    Client(Arc<ClientRules>),
}

/// New rules on their way to one worker.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) rules: Rules,
    done: Sender<Ended>,
}

/// What ended because it is no longer allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) connections: usize,
    pub(crate) flows: usize,
}

impl Change {
    /// The worker judges by the new rules from now on.
    pub(crate) fn done(self, ended: Ended) {
        // There is room for every worker's answer. At the end of the process it may find no reader.
        if self.done.try_send(ended).is_err() {}
    }
}

/// What SIGHUP works with.
#[derive(Clone)]
pub(crate) struct Reload {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) state: Arc<State>,
}

impl std::fmt::Debug for Reload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reload")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl Reload {
    pub(crate) fn new(source: Arc<dyn Source>) -> Self {
        Self {
            source,
            state: Arc::default(),
        }
    }

    /// Reads the configuration on a thread that may wait.
    pub(crate) async fn read(&self) -> Result<Prepared, ReloadError> {
        let source = self.source.clone();
        let mut reader = JoinSet::new();
        // The files come from the keeper, where there is one.
        reader.spawn_blocking(move || keeper::again(|| source.read()));
        match reader.join_next().await {
            Some(Ok(Ok(read))) => read,
            Some(Ok(Err(error))) => Err(ReloadError::Keeper(error)),
            Some(Err(_)) | None => Err(ReloadError::Panicked),
        }
    }
}

impl Reloadable for Reload {
    fn would_change(&self) -> Later<'_, Result<Changes, String>> {
        Box::pin(async {
            let read = self.read().await;
            read.map(|prepared| prepared.changes)
                .map_err(|error| error.one_line())
        })
    }

    fn state(&self) -> &State {
        &self.state
    }
}

/// Reads the configuration again and puts it into force; says how that went, in the log and to the service manager.
///
/// # Cancel safety
///
/// Dropping it may leave new rules with some workers: only at the end of the process.
pub(crate) async fn run(reload: Reload, mailboxes: Vec<Mailbox>) {
    systemd::notify_reloading();
    let outcome = match reload.read().await {
        Ok(prepared) => Ok(put_into_force(&reload, prepared, &mailboxes).await),
        Err(error) => {
            let cause = error.one_line();
            warn!(target: "quictun", cause, "configuration not reloaded: nothing was changed");
            Err(cause)
        }
    };
    reload.state.set(Outcome {
        at: SystemTime::now(),
        result: outcome,
    });
    systemd::notify_ready();
}

async fn put_into_force(reload: &Reload, prepared: Prepared, mailboxes: &[Mailbox]) -> Changes {
    let (done, mut answers) = channel(mailboxes.len().max(1));
    for mailbox in mailboxes {
        let change = Change {
            rules: prepared.rules.clone(),
            done: done.clone(),
        };
        mailbox.send(Message::Rules(change));
    }
    drop(done);
    let mut ended = Ended::default();
    // `None`: all have answered, or have ended.
    loop {
        match tokio::time::timeout(SLOW, answers.recv()).await {
            Ok(Some(answer)) => {
                ended.connections += answer.connections;
                ended.flows += answer.flows;
            }
            Ok(None) => break,
            Err(_) => {
                warn!(target: "quictun", "a worker has not taken the new configuration yet: is it stuck?");
            }
        }
    }
    reload.source.commit(&prepared.rules);
    let Changes { lines, restart } = prepared.changes;
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

/// Several lines as one. The picture that the TOML library draws of the place is left out: its number is in the text.
fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| {
        let drawn = line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
        !line.is_empty() && !drawn.starts_with('|')
    });
    lines.collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests;
