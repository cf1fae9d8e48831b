//! The state that the program reports about itself.

use std::sync::atomic::{AtomicBool, Ordering};

/// Stores whether the program listens, and whether it drains. The flags are independent, so relaxed memory order
/// suffices.
#[derive(Debug, Default)]
pub struct Readiness {
    listening: AtomicBool,
    draining: AtomicBool,
}

impl Readiness {
    /// Notes that all listeners are bound.
    pub fn set_listening(&self) {
        self.listening.store(true, Ordering::Relaxed);
    }

    /// Notes that the program drains: it accepts no new flows.
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
