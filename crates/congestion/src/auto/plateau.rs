//! Detection of the end of growth.

use super::epoch::RateSample;

/// The best measurement, and the number of measurements that did not exceed it by much.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Plateau {
    /// Highest measured rate in bytes per second.
    best: f64,
    flat: u32,
}

impl Plateau {
    /// Starts with `best`, so that no rate up to it counts as growth.
    pub(super) fn above(best: f64) -> Self {
        Self { best, flat: 0 }
    }

    pub(super) fn best(&self) -> f64 {
        self.best
    }

    /// Adds a measurement, and returns whether growth has ended.
    pub(super) fn reached(&mut self, outcome: RateSample) -> bool {
        if outcome.limited && outcome.rate > GROWTH_LEAST * self.best {
            *self = Self::above(outcome.rate);
        } else if outcome.limited {
            self.flat += 1;
        }
        self.flat >= FLAT_ROUNDS
    }
}

/// Growth per round below which the path counts as full, and the number of such rounds that end growth (BBR's
/// values).
const GROWTH_LEAST: f64 = 1.25;
const FLAT_ROUNDS: u32 = 3;
