//! How much later than they should frames left.

use std::time::Duration;

/// A histogram of delays, in buckets an eighth wide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lateness {
    buckets: Vec<u64>,
    count: u64,
    max: Duration,
}

impl Default for Lateness {
    fn default() -> Self {
        Self {
            buckets: vec![0; BUCKETS],
            count: 0,
            max: Duration::ZERO,
        }
    }
}

impl Lateness {
    pub(crate) fn record(&mut self, late: Duration) {
        let nanos = u64::try_from(late.as_nanos()).unwrap_or(u64::MAX);
        if let Some(bucket) = self.buckets.get_mut(bucket(nanos)) {
            *bucket += 1;
        }
        self.count += 1;
        self.max = self.max.max(late);
    }

    /// Frames that left.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// What a share `q`, 0 to 1, of the frames does not exceed: at most an eighth too much.
    pub fn quantile(&self, q: f64) -> Duration {
        let mut seen = 0;
        for (index, bucket) in self.buckets.iter().enumerate() {
            seen += bucket;
            if seen > 0 && crate::interval::to_f64(seen) >= crate::interval::to_f64(self.count) * q
            {
                return Duration::from_nanos(end(index)).min(self.max);
            }
        }
        self.max
    }

    /// Share of the frames that were later than `limit`, give or take those of the bucket that it falls into.
    pub fn share_beyond(&self, limit: Duration) -> f64 {
        let nanos = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let beyond: u64 = self.buckets.iter().skip(bucket(nanos) + 1).sum();
        crate::interval::to_f64(beyond) / crate::interval::to_f64(self.count.max(1))
    }

    /// The most.
    pub fn max(&self) -> Duration {
        self.max
    }
}

/// Buckets for each doubling, as a power of two.
const STEP_BITS: u32 = 3;

/// Enough for 64 bits of nanoseconds.
const BUCKETS: usize = ((u64::BITS - STEP_BITS + 1) << STEP_BITS) as usize;

fn bucket(nanos: u64) -> usize {
    let shift = (u64::BITS - nanos.leading_zeros()).saturating_sub(STEP_BITS + 1);
    let index = (u64::from(shift) << STEP_BITS) + (nanos >> shift);
    usize::try_from(index).unwrap_or(usize::MAX)
}

/// The last time in a bucket.
fn end(index: usize) -> u64 {
    let index = index as u64;
    let shift = (index >> STEP_BITS).saturating_sub(1);
    let past = u128::from(index - (shift << STEP_BITS) + 1) << shift;
    u64::try_from(past - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_an_eighth_too_much_at_most() {
        let mut lateness = Lateness::default();
        for micros in 1..=1000 {
            lateness.record(Duration::from_micros(micros));
        }
        for (q, exact) in [(0.5, 500), (0.99, 990), (1.0, 1000)] {
            let exact = Duration::from_micros(exact);
            let found = lateness.quantile(q);
            assert!(exact <= found && found <= exact * 9 / 8, "{q}: {found:?}");
        }
        assert_eq!(lateness.max(), Duration::from_millis(1));
        let half = lateness.share_beyond(Duration::from_micros(500));
        assert!((0.43..=0.5).contains(&half), "{half}");
        assert!(lateness.share_beyond(Duration::from_millis(2)).abs() < f64::EPSILON);
        assert!(Lateness::default().share_beyond(Duration::ZERO).abs() < f64::EPSILON);
    }

    #[test]
    fn every_time_has_a_bucket_that_ends_at_or_after_it() {
        for bits in 0..u64::BITS {
            for nanos in [1u64 << bits, (1u64 << bits) - 1, u64::MAX >> bits] {
                assert!(
                    bucket(nanos) < BUCKETS && end(bucket(nanos)) >= nanos,
                    "{nanos}"
                );
            }
        }
    }
}
