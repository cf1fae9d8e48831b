//! Other flows on the path: giving way while packets wait, and what to do about flows that do not.
//!
//! A flow that fills the queue until it overflows is a [`Rival`]. Where it yields to loss, the window is CUBIC's. BBR does
//! not; a [`Lull`](lull::Lull) every ten seconds gives it away, and [`Hold`] keeps a part of the path.

mod hold;
mod lull;
mod overflow;
mod share;
mod unresponsive;
mod wait;

use std::time::{Duration, Instant};

use hold::Hold;
use lull::Lulls;
use unresponsive::Unresponsive;

use super::lately::Lately;
use crate::curve::Curve;

/// A flow that fills the queue until it overflows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rival {
    /// As CUBIC would have it.
    pub(super) window: f64,
    curve: Curve,
    rise: Rise,
    /// Bytes per second that all flows carry, as the latest two rests have shown it; and where we had more than half of it.
    carried: (Option<f64>, Option<f64>),
    capacity: Option<f64>,
    /// The latest overflow, and the latest time that packets waited long.
    overflowed: Instant,
    waited: Option<Instant>,
    /// The longest mean of a round trip lately, in seconds.
    longest: Lately,
    /// When to look whether it is one, and how much of the path we have; and how often that was looked at.
    check: Option<Instant>,
    checks: u32,
    /// Rests in a row that saw no queue.
    rests: u32,
    /// The bandwidth before it was met.
    before: f64,
    lulls: Lulls,
    unresponsive: Unresponsive,
    pub(super) hold: Option<Hold>,
    /// When it may be tried to hold again.
    hold_from: Option<Instant>,
}

/// Growth as at a start, until the window is large enough or the queue has overflowed so often.
#[derive(Clone, Copy, Debug)]
struct Rise {
    goal: f64,
    overflows: u32,
}

impl Rise {
    fn goes_on(self, window: f64) -> bool {
        window < self.goal && self.overflows > 0
    }
}

impl Rival {
    /// Whether it is time to look whether it is one.
    pub(super) fn is_unchecked(&mut self, now: Instant) -> bool {
        self.check.take_if(|at| now >= *at).is_some()
    }

    /// Spares a check: a sibling's tells the same.
    pub(super) fn skip_check(&mut self) {
        self.check = None;
    }

    /// Whether a part is held against it.
    pub(super) fn holds(&self) -> bool {
        self.hold.is_some()
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
    /// When they answered that it is a queue, and when a rival had gone.
    answered: Option<Instant>,
    parted: Option<Instant>,
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
            parted: None,
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

    /// Whether delays have answered not long ago that it is a queue, or may be a rival's that is back.
    fn knows(&self, now: Instant) -> bool {
        let recent = |at| now.saturating_duration_since(at) < KNOWN;
        self.answered.is_some_and(recent) || self.suspects(now)
    }

    /// Whether a rival has gone not long ago, or seemed to.
    pub(super) fn suspects(&self, now: Instant) -> bool {
        let recent = |at| now.saturating_duration_since(at) < SUSPECTED;
        self.parted.is_some_and(recent)
    }

    /// Learns that what was taken for a rival was none.
    pub(super) fn trust(&mut self) {
        self.parted = None;
    }

    /// Forgets a wait that is over.
    pub(super) fn forget(&mut self) {
        self.seconds = 0.0;
        self.in_flight = 0.0;
        self.bandwidth = 0.0;
    }
}

/// Packets, the least that keeps acknowledgements coming.
const WINDOW_LEAST: f64 = 4.0;

/// How long delays are not asked again; so many times as long each time, up to the latter.
const PATIENCE: Duration = Duration::from_millis(250);
const PATIENCE_GROWTH: u32 = 3;
const PATIENCE_MOST: Duration = Duration::from_secs(8);

/// Part of the time: probes, ours and others', make packets wait for less.
const WAITS: f64 = 0.5;

/// So long a queue is taken for one, and a rival may be back.
const KNOWN: Duration = Duration::from_secs(4);
const SUSPECTED: Duration = Duration::from_secs(30);
