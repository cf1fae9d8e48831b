//! The congestion window, in segments.

use std::time::{Duration, Instant};

use super::cubic::Cubic;
use super::hystart::HyStart;

/// Initial window, RFC 6928.
const INITIAL: f64 = 10.0;

/// Minimum window after a loss, RFC 5681 section 3.1, equation 4.
const MIN: f64 = 2.0;

#[derive(Debug)]
pub(crate) struct CongestionWindow {
    segments: f64,
    slow_start_until: f64,
    /// `None` once slow start has ended.
    hystart: Option<HyStart>,
    cubic: Cubic,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct AckProgress {
    /// Number of newly delivered segments.
    pub(crate) delivered: f64,
    /// Everything below this segment number has arrived.
    pub(crate) acked: u64,
    /// Everything below this segment number was sent.
    pub(crate) sent: u64,
    pub(crate) sample: Option<Duration>,
    pub(crate) smoothed: Duration,
}

impl Default for CongestionWindow {
    fn default() -> Self {
        Self {
            segments: INITIAL,
            slow_start_until: f64::INFINITY,
            hystart: Some(HyStart::default()),
            cubic: Cubic::default(),
        }
    }
}

impl CongestionWindow {
    /// Returns the number of segments that may be in flight.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "far below 2^53, and never negative"
    )]
    pub(crate) fn segments(&self) -> u64 {
        self.segments as u64
    }

    pub(crate) fn is_slow_start(&self) -> bool {
        self.segments < self.slow_start_until
    }

    /// Grows the window after an acknowledgement, outside of recovery, if the window was in use.
    pub(crate) fn grow(&mut self, now: Instant, progress: AckProgress) {
        if self.is_slow_start() {
            let growth = match &mut self.hystart {
                Some(hystart) => hystart.growth(progress.acked, progress.sent, progress.sample),
                None => Some(1.0),
            };
            match growth {
                Some(growth) => self.segments += growth * progress.delivered,
                None => self.slow_start_until = self.segments,
            }
            return;
        }
        let AckProgress {
            delivered,
            smoothed,
            ..
        } = progress;
        self.segments = self.cubic.grown(now, self.segments, delivered, smoothed);
    }

    /// Reduces the window after a loss, at most once per round trip.
    pub(crate) fn reduce(&mut self) {
        self.segments = self.cubic.reduced(self.segments).max(MIN);
        self.slow_start_until = self.segments;
        self.hystart = None;
    }

    pub(crate) fn restart(&mut self) {
        self.reduce();
        self.segments = 1.0;
    }
}
