//! The addresses that a process listens on, as `/v1/status` shows them.

use std::sync::{Arc, Mutex, PoisonError};

/// A list that a reload changes and the interface shows. All clones share it.
#[derive(Clone, Debug, Default)]
pub struct ListenAddresses(Arc<Mutex<Vec<String>>>);

impl ListenAddresses {
    /// Replaces the list by the addresses after a reload.
    pub fn set(&self, addresses: Vec<String>) {
        // The list is replaced as a whole.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = addresses;
    }

    pub(super) fn get(&self) -> Vec<String> {
        let list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.clone()
    }
}

impl From<Vec<String>> for ListenAddresses {
    fn from(addresses: Vec<String>) -> Self {
        Self(Arc::new(Mutex::new(addresses)))
    }
}
