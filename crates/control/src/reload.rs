//! The state of reloads for the HTTP interface: the outcome of the latest, and the changes that the next would make.

use std::fmt::Debug;
use std::pin::Pin;
use std::time::SystemTime;

use serde::Serialize;

use crate::shown::ShownValue;

/// The changes that a reload makes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Changes {
    /// The changes, one sentence each.
    #[serde(rename = "changes")]
    pub lines: Vec<String>,
    /// Keys of the configuration whose values differ from those at the start. These changes need a restart.
    pub restart: Vec<&'static str>,
}

/// The outcome of the latest reload, or `None` if there was none since the start.
pub type ReloadState = ShownValue<Option<ReloadOutcome>>;

/// The outcome of one reload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReloadOutcome {
    /// The time at which the reload ended.
    pub at: SystemTime,
    /// The changes that the reload made, or the reason why it made none.
    pub result: Result<Changes, String>,
}

/// A future that may take a while.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A configuration that can be read again.
pub trait Reloadable: Debug + Send + Sync {
    /// Reads the configuration and says what a reload would change, or why it would fail, in one line.
    fn would_change(&self) -> BoxFuture<'_, Result<Changes, String>>;
    /// Returns the outcomes of reloads.
    fn state(&self) -> &ReloadState;
}
