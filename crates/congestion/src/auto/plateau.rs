//! Growth that has come to an end.

use super::epoch::Outcome;

/// Measurements that did not beat the best one by much.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Plateau {
    /// Bytes per second.
    best: f64,
    flat: u32,
}

impl Plateau {
    /// Nothing up to `best` counts as growth.
    pub(super) fn above(best: f64) -> Self {
        Self { best, flat: 0 }
    }

    /// Adds a measurement; whether there is no growth any more.
    pub(super) fn reached(&mut self, outcome: Outcome) -> bool {
        if outcome.limited && outcome.rate > GROWTH_LEAST * self.best {
            *self = Self::above(outcome.rate);
        } else if outcome.limited {
            self.flat += 1;
        }
        self.flat >= FLAT_ROUNDS
    }
}

/// Growth of a round below which the path is taken to be full, and so many rounds of it (BBR's).
const GROWTH_LEAST: f64 = 1.25;
const FLAT_ROUNDS: u32 = 3;
