//! A token bucket: exact, in billionths of a byte.

use crate::config::Policer;

/// The bucket of one link. It starts full.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    rate: u64,
    /// Tokens that it holds at most, in billionths of a byte, as all tokens.
    capacity: u64,
    tokens: u64,
    filled_at: u64,
}

impl Bucket {
    pub(crate) fn new(policer: Policer, now: u64) -> Self {
        let capacity = policer.burst.saturating_mul(PARTS_PER_BYTE);
        Self {
            rate: policer.rate,
            capacity,
            tokens: capacity,
            filled_at: now,
        }
    }

    /// Whether `bytes` pass at `now`; then their tokens are gone.
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

/// A rate in bytes per second is one in these per nanosecond.
pub(crate) const PARTS_PER_BYTE: u64 = 1_000_000_000;
