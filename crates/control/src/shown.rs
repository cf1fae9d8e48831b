//! A value that the process replaces and the HTTP interface shows.

use std::sync::{Arc, Mutex, PoisonError};

/// The value. All clones share it.
#[derive(Clone, Debug, Default)]
pub struct ShownValue<T>(Arc<Mutex<T>>);

impl<T: Clone> ShownValue<T> {
    /// Replaces the value, for all clones.
    pub fn set(&self, value: T) {
        // The value is replaced as a whole. If a thread panicked with the lock held, it is either the old or the new
        // one.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = value;
    }

    /// Returns the present value.
    pub fn get(&self) -> T {
        let value = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        value.clone()
    }
}

impl<T> From<T> for ShownValue<T> {
    fn from(value: T) -> Self {
        Self(Arc::new(Mutex::new(value)))
    }
}
