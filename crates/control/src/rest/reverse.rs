//! The reverse forwards of a client, as `/v1/status` shows them.

use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

/// A list that the process changes and the interface shows. All clones share it.
#[derive(Clone, Debug, Default)]
pub struct ReverseForwards(Arc<Mutex<Vec<ReverseForward>>>);

/// The state of one reverse forward.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReverseForward {
    /// The address on which the server is asked to listen.
    pub listen: String,
    /// The target to which its connections lead.
    pub target: String,
    /// The address on which the server listens, or `None` if it does not listen.
    pub bound: Option<String>,
    /// The label of the code with which the server has refused or ended the forward.
    pub refused: Option<&'static str>,
}

impl ReverseForwards {
    /// Replaces the list of reverse forwards.
    pub fn set(&self, forwards: Vec<ReverseForward>) {
        // The list is replaced as a whole. If a thread panicked with the lock held, the list is either the old or the
        // new one.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = forwards;
    }

    pub(super) fn get(&self) -> Vec<ReverseForward> {
        let list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.clone()
    }
}
