//! Acknowledgements that arrive in bunches, and the room in the window that they need.

use std::time::Instant;

/// Number of round trips after which the maximum starts again. The previous maximum counts as well.
const ROUNDS: u32 = 5;
/// Maximum room for bunches, in seconds at the bandwidth.
const LONGEST_S: f64 = 0.1;

/// Measures how many bytes were acknowledged beyond what the bandwidth explains.
#[derive(Clone, Copy, Debug)]
pub(super) struct AckAggregation {
    since: Instant,
    acked: f64,
    most: [f64; 2],
    rounds: u32,
}

impl AckAggregation {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            since: now,
            acked: 0.0,
            most: [0.0; 2],
            rounds: 0,
        }
    }

    /// Records that a round trip has passed.
    pub(super) fn on_round(&mut self) {
        self.rounds += 1;
        if self.rounds >= ROUNDS {
            self.rounds = 0;
            self.most = [0.0, self.most[0]];
        }
    }

    /// Records that `bytes` more were acknowledged, with a window of `window` bytes.
    pub(super) fn on_acked(&mut self, now: Instant, bytes: f64, bandwidth: f64, window: f64) {
        let mut expected = bandwidth * (now - self.since).as_secs_f64();
        if self.acked <= expected {
            self.acked = 0.0;
            self.since = now;
            expected = 0.0;
        }
        self.acked += bytes;
        self.most[0] = self.most[0].max((self.acked - expected).min(window));
    }

    pub(super) fn room(&self, bandwidth: f64) -> f64 {
        self.most[0].max(self.most[1]).min(LONGEST_S * bandwidth)
    }
}
