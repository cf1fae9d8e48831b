//! What the controller says and the engine obeys.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The state one connection's controller and engine share.
///
/// Both live on one thread; the atomics only satisfy the library's `Send + Sync`, so relaxed order is
/// enough everywhere.
#[derive(Clone, Debug, Default)]
pub struct Gauge(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    window: AtomicU64,
    slow_start: AtomicBool,
    in_flight: AtomicU64,
    lost: AtomicU64,
    events: AtomicU64,
    counting: AtomicBool,
    window_limited: AtomicBool,
}

impl Gauge {
    /// A gauge that shows nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Congestion window, bytes.
    pub fn window(&self) -> u64 {
        self.0.window.load(Relaxed)
    }

    /// Whether the window is below the slow-start threshold.
    pub fn slow_start(&self) -> bool {
        self.0.slow_start.load(Relaxed)
    }

    /// Ack-eliciting bytes sent and neither acknowledged nor lost.
    pub fn in_flight(&self) -> u64 {
        self.0.in_flight.load(Relaxed)
    }

    /// Bytes declared lost since the connection began.
    pub fn lost(&self) -> u64 {
        self.0.lost.load(Relaxed)
    }

    /// Congestion events since the connection began.
    pub fn events(&self) -> u64 {
        self.0.events.load(Relaxed)
    }

    /// Whether the next batch carries data. The library reports the bytes of pure acknowledgements
    /// too, which are not in flight.
    pub fn set_counting(&self, counting: bool) {
        self.0.counting.store(counting, Relaxed);
    }

    /// Whether data waits for the window. The library cannot know: it sees only what the engine gives it.
    pub fn set_window_limited(&self, limited: bool) {
        self.0.window_limited.store(limited, Relaxed);
    }

    pub(crate) fn window_limited(&self) -> bool {
        self.0.window_limited.load(Relaxed)
    }

    pub(crate) fn on_sent(&self, bytes: u64) {
        if self.0.counting.load(Relaxed) {
            self.0.in_flight.fetch_add(bytes, Relaxed);
        }
    }

    pub(crate) fn on_settled(&self, bytes: u64) {
        let left = self.in_flight().saturating_sub(bytes);
        self.0.in_flight.store(left, Relaxed);
    }

    pub(crate) fn on_lost(&self, bytes: u64) {
        self.on_settled(bytes);
        self.0.lost.fetch_add(bytes, Relaxed);
        self.0.events.fetch_add(1, Relaxed);
    }

    pub(crate) fn set_in_flight(&self, bytes: u64) {
        self.0.in_flight.store(bytes, Relaxed);
    }

    pub(crate) fn publish(&self, window: u64, slow_start: bool) {
        self.0.window.store(window, Relaxed);
        self.0.slow_start.store(slow_start, Relaxed);
    }
}
