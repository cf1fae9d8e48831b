//! Reverse forwards of a client, as `/v1/status` shows them.

use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

/// A list that the process changes and the interface shows. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct ReverseForwards(Arc<Mutex<Vec<ReverseForward>>>);

/// One reverse forward.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReverseForward {
    /// Where the server is asked to listen.
    pub listen: String,
    /// Where what connects there is carried.
    pub target: String,
    /// Where the server listens; `None`: it does not.
    pub bound: Option<String>,
    /// Label of the code with which it has refused, or ended it.
    pub refused: Option<&'static str>,
}

impl ReverseForwards {
    /// Shows these from now on.
    pub fn set(&self, forwards: Vec<ReverseForward>) {
        // The list is replaced whole: a thread that panicked with the lock left the old or the new one.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = forwards;
    }

    pub(super) fn get(&self) -> Vec<ReverseForward> {
        let list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.clone()
    }
}
