//! A histogram of times with a fixed number of buckets, whose width grows with the time.

use std::fmt;
use std::time::Duration;

use crate::nanos;
use crate::units::Delay;

/// Counts times up to 73 minutes in `2^STEP_BITS` buckets for each doubling. No bucket is wider than `1/2^STEP_BITS` of
/// its first value; by default that is 1/32.
///
/// [`quantile`](Self::quantile) treats longer times as 73 minutes; the mean and the maximum use their exact value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogHistogram<const STEP_BITS: u32 = 5> {
    buckets: Vec<u64>,
    count: u64,
    sum: u128,
    max: u64,
}

impl<const STEP_BITS: u32> Default for LogHistogram<STEP_BITS> {
    fn default() -> Self {
        Self {
            buckets: vec![0; buckets(STEP_BITS)],
            count: 0,
            sum: 0,
            max: 0,
        }
    }
}

impl<const STEP_BITS: u32> LogHistogram<STEP_BITS> {
    /// Adds one time to the histogram.
    pub fn record(&mut self, time: Duration) {
        self.record_nanos(nanos(time));
    }

    pub(crate) fn record_nanos(&mut self, time: u64) {
        if let Some(bucket) = self.buckets.get_mut(bucket(time, STEP_BITS)) {
            *bucket += 1;
        }
        self.count += 1;
        self.sum += u128::from(time);
        self.max = self.max.max(time);
    }

    /// Adds all times that `other` has counted.
    pub fn merge(&mut self, other: &Self) {
        for (bucket, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *bucket += more;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    /// Returns the number of times recorded.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the time that a share `q` (0 to 1) of all recorded times does not exceed. The result is not below the
    /// true quantile and at most one bucket width above it. Returns zero if no time was recorded.
    pub fn quantile(&self, q: f64) -> Duration {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            clippy::cast_sign_loss,
            reason = "a float that is too large or not a number saturates to the nearest count"
        )]
        let rank = ((self.count as f64 * q * ALMOST_ONE).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (index, bucket) in self.buckets.iter().enumerate() {
            seen += bucket;
            if seen >= rank {
                return Duration::from_nanos(last_of(index, STEP_BITS).min(self.max));
            }
        }
        Duration::ZERO
    }

    /// Returns the share of recorded times longer than `limit`, accurate to the times in the bucket of `limit`.
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
    pub fn share_beyond(&self, limit: Duration) -> f64 {
        let within = bucket(nanos(limit), STEP_BITS);
        let beyond: u64 = self.buckets.iter().skip(within + 1).sum();
        beyond as f64 / self.count.max(1) as f64
    }

    /// Returns the mean, or zero if no time was recorded.
    pub fn mean(&self) -> Duration {
        let mean = self.sum / u128::from(self.count.max(1));
        Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX))
    }

    /// Returns the longest recorded time.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max)
    }
}

/// Writes the mean, three quantiles and the maximum in one line.
impl<const STEP_BITS: u32> fmt::Display for LogHistogram<STEP_BITS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "mean {:.1}  p50 {:.1}  p90 {:.1}  p99 {:.1}  max {:.1}",
            Delay(self.mean()),
            Delay(self.quantile(0.5)),
            Delay(self.quantile(0.9)),
            Delay(self.quantile(0.99)),
            Delay(self.max()),
        )
    }
}

/// Bits of the largest time with a bucket of its own: 2^42 ns are 73 minutes, longer than any useful queue.
const TIME_BITS: u32 = 42;

/// Corrects the rounding of `q`: a decimal fraction is slightly inexact, so that 0.99 of 100 could round up to rank
/// 100.
const ALMOST_ONE: f64 = 1.0 - 1e-12;

const fn buckets(step_bits: u32) -> usize {
    ((TIME_BITS - step_bits + 1) << step_bits) as usize
}

fn bucket(time: u64, step_bits: u32) -> usize {
    let time = time.min((1 << TIME_BITS) - 1);
    let shift = (u64::BITS - time.leading_zeros()).saturating_sub(step_bits + 1);
    let index = (u64::from(shift) << step_bits) + (time >> shift);
    usize::try_from(index).unwrap_or(usize::MAX)
}

/// Returns the longest time that belongs to bucket `index`.
fn last_of(index: usize, step_bits: u32) -> u64 {
    let index = index as u64;
    let shift = (index >> step_bits).saturating_sub(1);
    ((index - (shift << step_bits) + 1) << shift) - 1
}
