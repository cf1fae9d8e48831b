//! The startup phase: sends up to 2.5 times as much in every round trip, until a queue, loss or a lack of growth
//! shows the limit.

mod round;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::plateau::Plateau;

#[derive(Clone, Debug)]
pub(super) struct Startup {
    window: f64,
    /// True if the latest batch that arrived was sent as fast as the limits allowed.
    pub(super) pressing: bool,
    /// True if a queue may have begun. The window does not grow until that sign has gone.
    held: bool,
    /// True if growth has been held in this phase by delays that were not a queue.
    doubted: bool,
    /// Time since which there has been a queue that may be the path's limit.
    full: Option<Instant>,
    plateau: Plateau,
    /// The longest recent round-trip time with the start of its window, and by how much a later one was shorter.
    /// Since the sender does not send less, a drained queue does not explain the difference.
    peak: Option<(Instant, Duration)>,
    fall: Duration,
    /// Time at which growth was last held.
    held_at: Option<Instant>,
    /// Times and total bytes delivered by then, from which the current rate is measured.
    trail: VecDeque<(Instant, u64)>,
}

impl Startup {
    pub(super) fn first(mtu: f64) -> Self {
        Self::from(FIRST_FLIGHT * mtu, 0.0)
    }

    fn from(window: f64, best: f64) -> Self {
        Self {
            window,
            pressing: false,
            held: false,
            doubted: false,
            full: None,
            plateau: Plateau::above(best),
            peak: None,
            fall: Duration::ZERO,
            held_at: None,
            trail: VecDeque::new(),
        }
    }

    /// Raises the window to at least that of a path of which nothing is known.
    pub(super) fn begin_with(&mut self, mtu: f64) {
        self.window = self.window.max(FIRST_FLIGHT * mtu);
    }

    pub(super) fn on_settled(&mut self, bytes: f64) {
        if !self.held {
            self.window += (GROWTH - 1.0) * bytes;
        }
    }

    /// Measures by how much round-trip times fall although the sender does not send less: they vary by that much by
    /// themselves.
    fn watch_falls(&mut self, now: Instant, sample: Duration, round: Duration) -> Duration {
        if self.held {
            self.held_at = Some(now);
        }
        let recent = |at: Instant| now.saturating_duration_since(at) <= 2 * round;
        let (since, peak) = self
            .peak
            .filter(|(at, _)| recent(*at))
            .unwrap_or((now, sample));
        self.peak = Some((since, peak.max(sample)));
        if !self.held_at.is_some_and(recent) {
            self.fall = self.fall.max(peak.saturating_sub(sample));
        }
        self.fall.saturating_sub(FALL_LEAST.max(round / FALL_SHARE))
    }

    fn note(&mut self, now: Instant, delivered: u64, span: Duration) {
        self.trail.push_back((now, delivered));
        while self.trail.len() > 2 && now.saturating_duration_since(self.trail[1].0) >= span {
            self.trail.pop_front();
        }
    }

    /// Returns the rate, in bytes per second, over the last part of a round trip.
    fn rate(&self) -> Option<f64> {
        let (start, first) = *self.trail.front()?;
        let (end, last) = *self.trail.back()?;
        let elapsed = end.saturating_duration_since(start).as_secs_f64();
        (elapsed > 0.0005).then(|| crate::bytes::to_f64(last - first) / elapsed)
    }

    /// Returns the window and the rate, on a `long` path or a short one.
    pub(super) fn limits(&self, floor_s: f64, long: bool) -> (f64, f64) {
        let rate = self.window / floor_s;
        if self.held {
            (self.window, HELD * self.rate().unwrap_or(rate))
        } else {
            let pacing = if long { PACING_LONG } else { PACING };
            (self.window, pacing * rate)
        }
    }
}

/// Number of packets in the first flight, paced over one round trip. The RFC allows ten packets at once.
const FIRST_FLIGHT: f64 = 32.0;

/// Window growth for every window that arrives. It is the highest that leaves half a buffer of one round-trip time
/// for what is sent before the queue is seen.
const GROWTH: f64 = 2.5;

/// Pacing rate over window per round trip. A growth of 2.5 needs 1.53. On short paths the lower value limits growth
/// to 2.2, because with more the queue would overflow before it is seen.
const PACING: f64 = 1.15;
const PACING_LONG: f64 = 1.6;

/// Rate over the delivered rate while a queue may have begun. The queue then drains, and shows whether it was one.
const HELD: f64 = 0.75;

/// Acknowledgements may be late by this time, or by a round trip divided by `FALL_SHARE`.
const FALL_LEAST: Duration = Duration::from_millis(3);
const FALL_SHARE: u32 = 32;
