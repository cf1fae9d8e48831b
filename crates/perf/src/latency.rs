//! Times of transactions: a histogram whose buckets are as wide as a 256th of their value.

use std::time::Duration;

use serde::Serialize;

/// Times in nanoseconds up to 73 minutes; longer ones count as that in quantiles.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    sum: u128,
    /// Of squares, in microseconds.
    squares: f64,
    min: u64,
    max: u64,
}

/// What is told of many times, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Latency {
    /// How many there were.
    pub count: u64,
    /// The shortest.
    pub min: f64,
    /// The mean.
    pub mean: f64,
    /// Half of them took no longer.
    pub p50: f64,
    /// Nine of ten took no longer.
    pub p90: f64,
    /// Of a hundred, 99.
    pub p99: f64,
    /// Of a thousand, 999; `None` below 10 000, where it would be a handful of single cases.
    pub p99_9: Option<f64>,
    /// The longest.
    pub max: f64,
    /// Variance, square microseconds.
    pub variance: f64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: vec![0; BUCKETS],
            count: 0,
            sum: 0,
            squares: 0.0,
            min: u64::MAX,
            max: 0,
        }
    }
}

impl Histogram {
    pub(crate) fn record(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        if let Some(bucket) = self.buckets.get_mut(bucket(nanos)) {
            *bucket += 1;
        }
        self.count += 1;
        self.sum += u128::from(nanos);
        self.squares += micros(nanos).powi(2);
        self.min = self.min.min(nanos);
        self.max = self.max.max(nanos);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (bucket, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *bucket += more;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.squares += other.squares;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// `None` where nothing was recorded.
    pub(crate) fn summary(&self) -> Option<Latency> {
        if self.count == 0 {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "a mean")]
        let (count, sum) = (self.count as f64, self.sum as f64 / 1000.0);
        let mean = sum / count;
        Some(Latency {
            count: self.count,
            min: micros(self.min),
            mean,
            p50: self.quantile(500),
            p90: self.quantile(900),
            p99: self.quantile(990),
            p99_9: (self.count >= ENOUGH).then(|| self.quantile(999)),
            max: micros(self.max),
            variance: (self.squares / count - mean * mean).max(0.0),
        })
    }

    /// The time that so many of a thousand do not exceed, at most 1/256 too long.
    fn quantile(&self, of_thousand: u64) -> f64 {
        let rank = (u128::from(self.count) * u128::from(of_thousand)).div_ceil(1000);
        let mut seen = 0;
        for (index, bucket) in self.buckets.iter().enumerate() {
            seen += u128::from(*bucket);
            if seen >= rank.max(1) {
                return micros(last_of(index).clamp(self.min, self.max));
            }
        }
        micros(self.max)
    }
}

/// Times from which on one in a thousand is ten of them.
const ENOUGH: u64 = 10_000;

/// Buckets for each doubling: 256.
const STEP_BITS: u32 = 8;

/// 2^42 ns are 73 minutes.
const TIME_BITS: u32 = 42;

const BUCKETS: usize = ((TIME_BITS - STEP_BITS + 1) << STEP_BITS) as usize;

fn bucket(nanos: u64) -> usize {
    let nanos = nanos.min((1 << TIME_BITS) - 1);
    let shift = (u64::BITS - nanos.leading_zeros()).saturating_sub(STEP_BITS + 1);
    let index = (u64::from(shift) << STEP_BITS) + (nanos >> shift);
    usize::try_from(index).unwrap_or(usize::MAX)
}

/// The last time of bucket `index`.
fn last_of(index: usize) -> u64 {
    let index = index as u64;
    let shift = (index >> STEP_BITS).saturating_sub(1);
    ((index - (shift << STEP_BITS) + 1) << shift) - 1
}

#[expect(clippy::cast_precision_loss, reason = "a time that is shown")]
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn quantiles_are_those_of_the_times_within_a_256th(
            times in prop::collection::vec(0..10_000_000_000_u64, 1..300),
        ) {
            let mut histogram = Histogram::default();
            for &time in &times {
                histogram.record(Duration::from_nanos(time));
            }
            let mut sorted = times;
            sorted.sort_unstable();
            let summary = histogram.summary().expect("some times");
            let exact = |share: usize| sorted[(sorted.len() * share).div_ceil(1000).max(1) - 1];
            for (told, share) in [(summary.p50, 500), (summary.p90, 900), (summary.p99, 990)] {
                let exact = micros(exact(share));
                prop_assert!(told >= exact && told <= exact * (1.0 + 1.0 / 256.0), "{told} {exact}");
            }
            prop_assert!((summary.min - micros(sorted[0])).abs() < 1e-9);
            prop_assert!((summary.max - micros(sorted[sorted.len() - 1])).abs() < 1e-9);
        }
    }

    #[test]
    fn mean_and_variance_are_those_of_the_textbook() {
        let mut halves = [Histogram::default(), Histogram::default()];
        for (index, time) in [2, 4, 4, 4, 5, 5, 7, 9].into_iter().enumerate() {
            halves[index % 2].record(Duration::from_micros(time));
        }
        let [mut all, other] = halves;
        all.merge(&other);
        let summary = all.summary().expect("some times");
        assert!((summary.mean - 5.0).abs() < 1e-9, "{summary:?}");
        assert!((summary.variance - 4.0).abs() < 1e-9, "{summary:?}");
        assert_eq!((summary.count, summary.p99_9), (8, None));
    }

    #[test]
    fn one_in_a_thousand_is_told_from_ten_thousand_on() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.summary(), None);
        for _ in 0..ENOUGH - 1 {
            histogram.record(Duration::from_micros(10));
        }
        assert_eq!(histogram.summary().and_then(|summary| summary.p99_9), None);
        histogram.record(Duration::from_micros(10));
        assert_eq!(
            histogram.summary().and_then(|summary| summary.p99_9),
            Some(10.0)
        );
    }
}
