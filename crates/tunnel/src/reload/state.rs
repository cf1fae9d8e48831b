//! How the latest reload went, for those who ask.

use std::sync::Mutex;
use std::time::SystemTime;

use super::{Changes, lock};

/// How the latest reload went.
#[derive(Debug, Default)]
pub struct State(Mutex<Option<Outcome>>);

/// One reload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// When it was over.
    pub at: SystemTime,
    /// What it changed, or why it changed nothing.
    pub result: Result<Changes, String>,
}

impl State {
    /// The latest reload; `None` where there was none since the start.
    pub fn latest(&self) -> Option<Outcome> {
        lock(&self.0).clone()
    }

    pub(super) fn set(&self, outcome: Outcome) {
        *lock(&self.0) = Some(outcome);
    }
}
