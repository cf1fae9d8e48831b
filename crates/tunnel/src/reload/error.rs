//! How a configuration is read again, and why it cannot be.

use std::sync::Arc;

use thiserror::Error;

use crate::settings::ServerSettings;
use quictun_trust::access::AccessError;
use quictun_trust::identity::IdentityError;
use quictun_trust::psk::PskError;
use quictun_trust::tls::TlsError;

/// Why a configuration cannot be read again, as its reader says it.
pub type Unreadable = Box<dyn std::error::Error + Send + Sync>;

/// Reads the configuration: what the process would run with if it were started now.
pub type Read<S> = Arc<dyn Fn() -> Result<S, Unreadable> + Send + Sync>;

/// A server's configuration, read while it runs.
#[derive(Clone, Debug)]
pub struct ServerAgain {
    /// The settings as they would be if the process were started now.
    pub settings: ServerSettings,
    /// Keys whose values differ from those at the start, and that a running server does not change.
    pub restart: Vec<&'static str>,
    /// For a person to know, one line each.
    pub warnings: Vec<String>,
}

#[derive(Debug, Error)]
pub(crate) enum ReloadError {
    /// The configuration file, or a flag or variable beside it, cannot be read.
    #[error(transparent)]
    Configuration(#[from] Unreadable),
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error(transparent)]
    Secret(#[from] PskError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A server that lets everyone in has no rules to read.
    #[error("this configuration lets every client in: it cannot be changed without a restart")]
    Open,
    /// The process that reads files for this one does not answer.
    #[error("the files cannot be read")]
    Keeper(#[source] std::io::Error),
    /// The thread that reads has panicked.
    #[error("reading the configuration has failed: this is a bug")]
    Panicked,
}

impl ReloadError {
    pub(crate) fn one_line(&self) -> String {
        let text = match self {
            // These are transparent: their own chain is the whole of it.
            Self::Configuration(error) => quictun_trust::error_chain(error.as_ref()),
            other => quictun_trust::error_chain(other),
        };
        one_line(&text)
    }
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
