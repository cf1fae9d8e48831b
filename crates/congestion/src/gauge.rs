//! What the controller says and the engine obeys.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::{Limits, Reordering, Resume, View};

/// The state one connection's controller and engine share.
///
/// Both live on one thread; the atomics and the lock only satisfy the library's `Send + Sync`, so relaxed
/// order is enough everywhere.
#[derive(Clone, Debug, Default)]
pub struct Gauge(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    window: AtomicU64,
    /// Bits of the rate; 0: not paced.
    rate: AtomicU64,
    quantum: AtomicU64,
    in_flight: AtomicU64,
    /// Bytes of the latest batch of data that were not acknowledged yet.
    latest: AtomicU64,
    acked: AtomicU64,
    lost: AtomicU64,
    events: AtomicU64,
    counting: AtomicBool,
    limited: AtomicBool,
    /// Nanoseconds that the engine's caller sleeps between turns.
    sleeps: AtomicU64,
    shown: Mutex<Shown>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Shown {
    view: View,
    resume: Option<Resume>,
    reordering: Option<Reordering>,
}

impl Gauge {
    /// A gauge that shows nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// What may be sent.
    pub fn limits(&self) -> Limits {
        let rate = f64::from_bits(self.0.rate.load(Relaxed));
        Limits {
            window: self.window(),
            rate: (rate > 0.0).then_some(rate),
            quantum: self.0.quantum.load(Relaxed),
        }
    }

    /// Congestion window, bytes.
    pub fn window(&self) -> u64 {
        self.0.window.load(Relaxed)
    }

    /// How the controller stands, as of the latest acknowledgement or loss.
    pub fn view(&self) -> View {
        self.shown().view
    }

    /// What to remember of the path; `None` before it has been filled.
    pub fn resume_point(&self) -> Option<Resume> {
        self.shown().resume
    }

    /// How far packets are overtaken; `None` before enough have arrived.
    pub fn reordering(&self) -> Option<Reordering> {
        self.shown().reordering
    }

    fn shown(&self) -> Shown {
        *self.0.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ack-eliciting bytes sent and neither acknowledged nor lost.
    pub fn in_flight(&self) -> u64 {
        self.0.in_flight.load(Relaxed)
    }

    /// Whether all of the latest batch of data was acknowledged.
    pub fn latest_arrived(&self) -> bool {
        self.0.latest.load(Relaxed) == 0
    }

    /// Packets acknowledged since the connection began.
    pub fn acked(&self) -> u64 {
        self.0.acked.load(Relaxed)
    }

    /// Bytes declared lost since the connection began.
    pub fn lost(&self) -> u64 {
        self.0.lost.load(Relaxed)
    }

    /// Times that loss or a mark was reported since the connection began.
    pub fn events(&self) -> u64 {
        self.0.events.load(Relaxed)
    }

    /// Whether the next batch carries data. The library reports the bytes of pure acknowledgements
    /// too, which are not in flight.
    pub fn set_counting(&self, counting: bool) {
        self.0.counting.store(counting, Relaxed);
    }

    /// Whether more data waits. The library cannot know: it sees only what the engine gives it.
    pub fn set_limited(&self, limited: bool) {
        self.0.limited.store(limited, Relaxed);
    }

    /// How long the engine's caller sleeps between two turns, whatever happens: packets and acknowledgements gather.
    pub fn set_sleeps(&self, sleeps: Duration) {
        let nanos = u64::try_from(sleeps.as_nanos()).unwrap_or(u64::MAX);
        self.0.sleeps.store(nanos, Relaxed);
    }

    pub(crate) fn sleeps(&self) -> Duration {
        Duration::from_nanos(self.0.sleeps.load(Relaxed))
    }

    pub(crate) fn counting(&self) -> bool {
        self.0.counting.load(Relaxed)
    }

    pub(crate) fn limited(&self) -> bool {
        self.0.limited.load(Relaxed)
    }

    pub(crate) fn on_sent(&self, bytes: u64) {
        self.0.in_flight.fetch_add(bytes, Relaxed);
        self.0.latest.store(bytes, Relaxed);
    }

    pub(crate) fn on_latest_acked(&self, bytes: u64) {
        let left = self.0.latest.load(Relaxed).saturating_sub(bytes);
        self.0.latest.store(left, Relaxed);
    }

    pub(crate) fn on_acked(&self, bytes: u64) {
        self.on_settled(bytes);
        self.0.acked.fetch_add(1, Relaxed);
    }

    fn on_settled(&self, bytes: u64) {
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

    pub(crate) fn publish(
        &self,
        limits: Limits,
        view: View,
        resume: Option<Resume>,
        reordering: Option<Reordering>,
    ) {
        self.0.window.store(limits.window, Relaxed);
        let rate = limits.rate.unwrap_or(0.0);
        self.0.rate.store(rate.to_bits(), Relaxed);
        self.0.quantum.store(limits.quantum, Relaxed);
        let shown = Shown {
            view,
            resume,
            reordering,
        };
        *self.0.shown.lock().unwrap_or_else(PoisonError::into_inner) = shown;
    }
}
