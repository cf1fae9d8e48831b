//! Latencies of transactions, and their summary.

use std::time::Duration;

use quictun_link::LogHistogram;
use serde::Serialize;

/// Buckets for each doubling, as a power of two: no bucket is wider than a 256th of its value.
const STEP_BITS: u32 = 8;

/// Smallest number of latencies for which the 99.9th percentile is reported. Ten of them are then above it.
const ENOUGH: u64 = 10_000;

#[derive(Clone, Debug)]
pub(crate) struct LatencyRecorder {
    histogram: LogHistogram<STEP_BITS>,
    min: Duration,
    /// Sum of the times, in microseconds; `squares` is the sum of their squares.
    sum: f64,
    squares: f64,
}

/// Summary of many latencies, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Latency {
    /// Number of recorded times.
    pub count: u64,
    /// The shortest of all times.
    pub min: f64,
    /// The mean of all times.
    pub mean: f64,
    /// Median: half of the times are not longer.
    pub p50: f64,
    /// 90th percentile: nine of ten times are not longer.
    pub p90: f64,
    /// 99th percentile: 99 of a hundred times are not longer.
    pub p99: f64,
    /// 99.9th percentile: 999 of a thousand times are not longer. `None` below 10 000 times, where it would rest on a
    /// handful of cases.
    pub p99_9: Option<f64>,
    /// The longest of all times.
    pub max: f64,
    /// Variance of the times, in square microseconds.
    pub variance: f64,
}

impl Default for LatencyRecorder {
    fn default() -> Self {
        Self {
            histogram: LogHistogram::default(),
            min: Duration::MAX,
            sum: 0.0,
            squares: 0.0,
        }
    }
}

impl LatencyRecorder {
    pub(crate) fn record(&mut self, time: Duration) {
        self.histogram.record(time);
        self.min = self.min.min(time);
        self.sum += micros(time);
        self.squares += micros(time).powi(2);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.histogram.merge(&other.histogram);
        self.min = self.min.min(other.min);
        self.sum += other.sum;
        self.squares += other.squares;
    }

    pub(crate) fn summary(&self) -> Option<Latency> {
        let count = self.histogram.count();
        if count == 0 {
            return None;
        }
        let quantile = |share| micros(self.histogram.quantile(share));
        #[expect(clippy::cast_precision_loss, reason = "a mean")]
        let [mean, square] = [self.sum, self.squares].map(|sum| sum / count as f64);
        Some(Latency {
            count,
            min: micros(self.min),
            mean,
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p99_9: (count >= ENOUGH).then(|| quantile(0.999)),
            max: micros(self.histogram.max()),
            variance: (square - mean * mean).max(0.0),
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "a time that is shown")]
fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn quantiles_are_exact_within_a_256th(
            times in prop::collection::vec(0..10_000_000_000_u64, 1..300),
        ) {
            let mut recorded = LatencyRecorder::default();
            for &time in &times {
                recorded.record(Duration::from_nanos(time));
            }
            let mut sorted = times;
            sorted.sort_unstable();
            let summary = recorded.summary().expect("times exist");
            let nth = |index: usize| micros(Duration::from_nanos(sorted[index]));
            let exact = |share: usize| nth((sorted.len() * share).div_ceil(1000).max(1) - 1);
            for (told, share) in [(summary.p50, 500), (summary.p90, 900), (summary.p99, 990)] {
                let exact = exact(share);
                prop_assert!(told >= exact && told <= exact * (1.0 + 1.0 / 256.0), "{told} {exact}");
            }
            prop_assert!((summary.min - nth(0)).abs() < 1e-9);
            prop_assert!((summary.max - nth(sorted.len() - 1)).abs() < 1e-9);
        }
    }

    #[test]
    fn mean_and_variance_are_exact() {
        let mut halves = [LatencyRecorder::default(), LatencyRecorder::default()];
        for (index, time) in [2, 4, 4, 4, 5, 5, 7, 9].into_iter().enumerate() {
            halves[index % 2].record(Duration::from_micros(time));
        }
        let [mut all, other] = halves;
        all.merge(&other);
        let summary = all.summary().expect("times exist");
        assert!((summary.mean - 5.0).abs() < 1e-9, "{summary:?}");
        assert!((summary.variance - 4.0).abs() < 1e-9, "{summary:?}");
        assert_eq!((summary.count, summary.p99_9), (8, None));
    }

    #[test]
    fn the_p999_is_reported_from_ten_thousand_samples() {
        let mut recorded = LatencyRecorder::default();
        assert_eq!(recorded.summary(), None);
        for _ in 0..ENOUGH - 1 {
            recorded.record(Duration::from_micros(10));
        }
        assert_eq!(recorded.summary().and_then(|summary| summary.p99_9), None);
        recorded.record(Duration::from_micros(10));
        assert_eq!(
            recorded.summary().and_then(|summary| summary.p99_9),
            Some(10.0)
        );
    }
}
