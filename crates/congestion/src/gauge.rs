//! The state through which the controller tells the engine what may be sent.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::{ControllerView, Limits, Reordering, Resume};

/// State that one connection's controller and engine share.
///
/// Both live on one thread. The atomics and the lock only satisfy the library's `Send + Sync` bounds, so relaxed
/// ordering is sufficient everywhere.
#[derive(Clone, Debug, Default)]
pub struct Gauge(Arc<GaugeState>);

#[derive(Debug, Default)]
struct GaugeState {
    window: AtomicU64,
    /// Bits of the pacing rate in bytes per second; 0 means that sending is not paced.
    rate: AtomicU64,
    quantum: AtomicU64,
    in_flight: AtomicU64,
    /// Bytes of the latest batch of data that are not yet acknowledged.
    latest: AtomicU64,
    acked: AtomicU64,
    /// Ages of acknowledged packets in nanoseconds: the limit of those that count, and the greatest of them.
    age_max: AtomicU64,
    oldest: AtomicU64,
    lost: AtomicU64,
    events: AtomicU64,
    counting: AtomicBool,
    limited: AtomicBool,
    /// Time that the engine's caller sleeps between turns, in nanoseconds.
    sleeps: AtomicU64,
    snapshot: Mutex<Snapshot>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Snapshot {
    view: ControllerView,
    resume: Option<Resume>,
    reordering: Option<Reordering>,
}

impl Gauge {
    /// Creates a gauge whose limits are still zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the current limits on sending.
    pub fn limits(&self) -> Limits {
        let rate = f64::from_bits(self.0.rate.load(Relaxed));
        Limits {
            window: self.window(),
            rate: (rate > 0.0).then_some(rate),
            quantum: self.0.quantum.load(Relaxed),
        }
    }

    /// Returns the congestion window in bytes.
    pub fn window(&self) -> u64 {
        self.0.window.load(Relaxed)
    }

    /// Returns the controller's state as of the latest acknowledgement or loss.
    pub fn view(&self) -> ControllerView {
        self.snapshot().view
    }

    /// Returns what to remember about the path, or `None` before the path has been filled.
    pub fn resume_point(&self) -> Option<Resume> {
        self.snapshot().resume
    }

    /// Returns the degree of reordering, or `None` before enough packets have arrived.
    pub fn reordering(&self) -> Option<Reordering> {
        self.snapshot().reordering
    }

    fn snapshot(&self) -> Snapshot {
        *self
            .0
            .snapshot
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of ack-eliciting bytes that were sent and are neither acknowledged nor lost.
    pub fn in_flight(&self) -> u64 {
        self.0.in_flight.load(Relaxed)
    }

    /// Returns whether the whole latest batch of data was acknowledged.
    pub fn latest_arrived(&self) -> bool {
        self.0.latest.load(Relaxed) == 0
    }

    /// Returns the number of packets acknowledged since the connection began.
    pub fn acked(&self) -> u64 {
        self.0.acked.load(Relaxed)
    }

    /// Sets the age of the oldest packets that [`Gauge::oldest_acked`] considers from now on. 0 if none matter.
    pub fn watch_ages(&self, max: Duration) {
        self.0.age_max.store(nanos(max), Relaxed);
        self.0.oldest.store(0, Relaxed);
    }

    /// Returns the greatest age that an acknowledged packet had, of those not older than the limit.
    pub fn oldest_acked(&self) -> Duration {
        Duration::from_nanos(self.0.oldest.load(Relaxed))
    }

    /// Returns the number of bytes declared lost since the connection began.
    pub fn lost(&self) -> u64 {
        self.0.lost.load(Relaxed)
    }

    /// Returns how often a loss or a congestion mark was reported since the connection began.
    pub fn events(&self) -> u64 {
        self.0.events.load(Relaxed)
    }

    /// Sets whether the next batch carries data. The library also reports the bytes of packets that only acknowledge,
    /// which are not in flight.
    pub fn set_counting(&self, counting: bool) {
        self.0.counting.store(counting, Relaxed);
    }

    /// Sets whether more data waits. The library cannot know that, because it sees only what the engine gives it.
    pub fn set_limited(&self, limited: bool) {
        self.0.limited.store(limited, Relaxed);
    }

    /// Sets how long the engine's caller sleeps between two turns, regardless of events. Packets and acknowledgements
    /// accumulate meanwhile.
    pub fn set_sleeps(&self, sleeps: Duration) {
        self.0.sleeps.store(nanos(sleeps), Relaxed);
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

    pub(crate) fn on_acked(&self, bytes: u64, age: Duration) {
        self.on_settled(bytes);
        self.0.acked.fetch_add(1, Relaxed);
        let age_max = self.0.age_max.load(Relaxed);
        if age_max > 0 && nanos(age) <= age_max {
            self.0.oldest.fetch_max(nanos(age), Relaxed);
        }
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
        view: ControllerView,
        resume: Option<Resume>,
        reordering: Option<Reordering>,
    ) {
        self.0.window.store(limits.window, Relaxed);
        let rate = limits.rate.unwrap_or(0.0);
        self.0.rate.store(rate.to_bits(), Relaxed);
        self.0.quantum.store(limits.quantum, Relaxed);
        let snapshot = Snapshot {
            view,
            resume,
            reordering,
        };
        *self
            .0
            .snapshot
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = snapshot;
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
