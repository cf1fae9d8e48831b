//! An exact token bucket: it counts in billionths of a byte.

use crate::config::Policer;

/// The token bucket of one link. It starts full.
#[derive(Clone, Debug)]
pub(crate) struct PolicerBucket {
    rate: u64,
    /// Largest number of tokens. Like all tokens, these are billionths of a byte.
    capacity: u64,
    tokens: u64,
    filled_at: u64,
}

impl PolicerBucket {
    pub(crate) fn new(policer: Policer, now: u64) -> Self {
        let capacity = policer.burst.saturating_mul(PARTS_PER_BYTE);
        Self {
            rate: policer.rate,
            capacity,
            tokens: capacity,
            filled_at: now,
        }
    }

    /// Returns whether `bytes` pass at `now`, and takes their tokens if they do.
    pub(crate) fn admits(&mut self, now: u64, bytes: u64) -> bool {
        let earned = u128::from(self.rate) * u128::from(now.saturating_sub(self.filled_at));
        let earned = u64::try_from(earned).unwrap_or(u64::MAX);
        self.tokens = self.tokens.saturating_add(earned).min(self.capacity);
        self.filled_at = now;
        let Some(rest) = self.tokens.checked_sub(bytes * PARTS_PER_BYTE) else {
            return false;
        };
        self.tokens = rest;
        true
    }
}

/// Tokens per byte. With this unit, a rate of *n* bytes per second earns *n* tokens per nanosecond.
pub(crate) const PARTS_PER_BYTE: u64 = 1_000_000_000;
