//! Other flows on the path: giving way while packets wait, and what to do about flows that do not.

mod share;

use std::time::Instant;

use crate::curve::Curve;

/// A flow that fills the queue until it overflows, met with a window as CUBIC would have it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rival {
    pub(super) window: f64,
    curve: Curve,
    /// The latest overflow, and the latest time that packets waited long.
    overflowed: Instant,
    waited: Option<Instant>,
    /// Rests in a row that saw no queue.
    rests: u32,
    /// The bandwidth before it was met.
    before: f64,
}

/// How long packets have waited although less is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pressure {
    /// Seconds, weighted by how much less is sent.
    seconds: f64,
    /// What was in flight when the wait began.
    in_flight: f64,
    watched: Instant,
}

impl Pressure {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            seconds: 0.0,
            in_flight: 0.0,
            watched: now,
        }
    }
}
