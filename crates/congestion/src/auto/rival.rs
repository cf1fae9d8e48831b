//! Other flows on the path: giving way while packets wait, and what to do about flows that do not.

mod share;

use std::time::{Duration, Instant};

use crate::curve::Curve;

/// A flow that fills the queue until it overflows, met with a window as CUBIC would have it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rival {
    pub(super) window: f64,
    curve: Curve,
    /// The latest overflow, and the latest time that packets waited long.
    overflowed: Instant,
    waited: Option<Instant>,
    /// When to look whether it was jitter.
    check: Option<Instant>,
    /// Rests in a row that saw no queue.
    rests: u32,
    /// The bandwidth before it was met.
    before: f64,
}

impl Rival {
    /// Whether it is time to look once whether it was jitter.
    pub(super) fn unchecked(&mut self, now: Instant) -> bool {
        self.check.take_if(|at| now >= *at).is_some()
    }
}

/// How long packets have waited although less is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pressure {
    /// Seconds, weighted by how much less is sent.
    seconds: f64,
    /// Bytes in flight and the bandwidth when the wait began.
    pub(super) in_flight: f64,
    pub(super) bandwidth: f64,
    watched: Instant,
    /// Part of the time lately that packets have waited.
    share: f64,
    /// When delays were last asked about it, and how long not to ask again.
    asked: Instant,
    patience: Duration,
    /// When they answered that it is a queue.
    answered: Option<Instant>,
}

impl Pressure {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            seconds: 0.0,
            in_flight: 0.0,
            bandwidth: 0.0,
            watched: now,
            share: 0.0,
            asked: now,
            patience: PATIENCE,
            answered: None,
        }
    }

    pub(super) fn ask(&mut self, now: Instant) {
        self.share = 0.0;
        self.asked = now;
        self.patience = (PATIENCE_GROWTH * self.patience).min(PATIENCE_MOST);
    }

    /// Whether packets wait more often than not, and it was not asked why for a while.
    fn due(&self, now: Instant) -> bool {
        self.share > WAITS && now.saturating_duration_since(self.asked) > self.patience
    }

    /// Learns that it is jitter, which may change again.
    pub(super) fn relent(&mut self) {
        self.patience = PATIENCE;
    }

    /// Learns that it is a queue.
    pub(super) fn answer(&mut self, now: Instant) {
        self.answered = Some(now);
    }

    /// Whether delays have answered not long ago that it is a queue.
    fn knows(&self, now: Instant) -> bool {
        let recent = |at| now.saturating_duration_since(at) < KNOWN;
        self.answered.is_some_and(recent)
    }

    /// Forgets a wait that is over.
    fn forget(&mut self) {
        self.seconds = 0.0;
        self.in_flight = 0.0;
        self.bandwidth = 0.0;
    }
}

/// How long delays are not asked again; so many times as long each time, up to the latter.
const PATIENCE: Duration = Duration::from_millis(250);
const PATIENCE_GROWTH: u32 = 3;
const PATIENCE_MOST: Duration = Duration::from_secs(8);

/// Part of the time: probes, ours and others', make packets wait for less.
const WAITS: f64 = 0.5;

/// So long a queue is taken for one.
const KNOWN: Duration = Duration::from_secs(4);
