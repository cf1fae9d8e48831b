//! What the program says of itself.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the program listens, and whether it drains. Each flag stands alone, so no memory order hangs on them.
#[derive(Debug, Default)]
pub struct Readiness {
    listening: AtomicBool,
    draining: AtomicBool,
}

impl Readiness {
    /// All listeners are bound.
    pub fn set_listening(&self) {
        self.listening.store(true, Ordering::Relaxed);
    }

    /// Nothing new is taken any more.
    pub fn set_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    pub(super) fn missing(&self) -> Option<&'static str> {
        if self.draining.load(Ordering::Relaxed) {
            Some("draining: open flows are being finished")
        } else if self.listening.load(Ordering::Relaxed) {
            None
        } else {
            Some("not listening yet")
        }
    }
}
