//! Types for reloading a configuration, and the reasons why it fails.

use std::sync::Arc;

use thiserror::Error;

use crate::settings::{ClientSettings, ServerSettings};
use quictun_trust::access::AccessError;
use quictun_trust::identity::IdentityError;
use quictun_trust::logins::LoginsError;
use quictun_trust::psk::PskError;
use quictun_trust::tls::TlsError;

/// The reason why the configuration cannot be read again, as its reader reports it.
pub type ConfigReadError = Box<dyn std::error::Error + Send + Sync>;

/// Reads the configuration and returns the settings with which the process would start now.
pub type ReadConfig<S> = Arc<dyn Fn() -> Result<S, ConfigReadError> + Send + Sync>;

/// A server's configuration, read while the server runs.
#[derive(Clone, Debug)]
pub struct RereadServer {
    /// The settings with which the process would start now.
    pub settings: ServerSettings,
    /// Keys whose values differ from those at the start, and need a restart.
    pub restart: Vec<&'static str>,
    /// Warnings for a person, one line each.
    pub warnings: Vec<String>,
}

/// A client's configuration, read while the client runs.
#[derive(Clone, Debug)]
pub struct RereadClient {
    /// The settings with which the process would start now.
    pub settings: ClientSettings,
    /// Keys whose values differ from those at the start, and need a restart.
    pub restart: Vec<&'static str>,
}

#[derive(Debug, Error)]
pub(crate) enum ReloadError {
    /// The configuration file, or a flag or variable besides it, cannot be read.
    #[error(transparent)]
    Configuration(#[from] ConfigReadError),
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error(transparent)]
    Secret(#[from] PskError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Logins(#[from] LoginsError),
    /// systemd has made the listener of a proxy without users.
    #[error(
        "the proxy on {0} would serve everyone who reaches that address: give users and their passwords with proxy_users"
    )]
    OpenProxy(String),
    /// A server that accepts every client has no rules to read.
    #[error("this configuration accepts every client: changing it needs a restart")]
    Open,
    /// The process that reads files for this one does not answer.
    #[error("the keeper process cannot read the files")]
    Keeper(#[source] std::io::Error),
    /// The thread that reads has panicked.
    #[error("the thread that reads the configuration panicked: this is a bug")]
    Panicked,
}

impl ReloadError {
    pub(crate) fn one_line(&self) -> String {
        let text = match self {
            // These variants are transparent, so their own error chain is complete.
            Self::Configuration(error) => quictun_trust::error_chain(error.as_ref()),
            other => quictun_trust::error_chain(other),
        };
        one_line(&text)
    }
}

/// Joins several lines into one. Leaves out the TOML library's excerpt of the file, because the text has the line
/// number.
fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| {
        let drawn = line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
        !line.is_empty() && !drawn.starts_with('|')
    });
    lines.collect::<Vec<_>>().join(": ")
}
