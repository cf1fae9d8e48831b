//! Acknowledgements that come in bunches, and the room in the window that they need.

use std::time::Instant;

/// Round trips for which it is remembered how many came together, twice over.
const ROUNDS: u32 = 5;
/// What they may make up for, in seconds.
const LONGEST_S: f64 = 0.1;

/// How many bytes were acknowledged beyond what the bandwidth explains.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bunches {
    since: Instant,
    acked: f64,
    most: [f64; 2],
    rounds: u32,
}

impl Bunches {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            since: now,
            acked: 0.0,
            most: [0.0; 2],
            rounds: 0,
        }
    }

    /// A round trip has passed.
    pub(super) fn on_round(&mut self) {
        self.rounds += 1;
        if self.rounds >= ROUNDS {
            self.rounds = 0;
            self.most = [0.0, self.most[0]];
        }
    }

    /// More bytes are acknowledged, with so large a window.
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
