//! Statistics for few runs: medians, the intervals around them, and tests for a difference.
//!
//! Below ten runs an interval consists of two of the runs and is exact for every distribution (`order_statistic`).
//! From ten runs on it is a bootstrap interval, which is narrower and approximate. Verdicts
//! ([`compare`]) always use the exact interval.

mod bootstrap;
mod middle;
mod order;
mod pairs;

use bootstrap::bootstrap;
pub(crate) use middle::outliers;
pub use middle::{median, median_count, quantile, spread};
use order::order_statistic;
pub use order::{Interval, LEVEL};
pub(crate) use pairs::Verdict;
pub use pairs::{PairedComparison, compare};

/// Minimum number of runs for the bootstrap interval.
const BOOTSTRAP_RUNS: usize = 10;

/// Returns the interval around the median, by the method for this number of runs. `None` without values.
pub(crate) fn interval(values: &[f64]) -> Option<Interval> {
    if values.len() < BOOTSTRAP_RUNS {
        order_statistic(values)
    } else {
        bootstrap(values)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rand_chacha::ChaCha8Rng;
    use rand_core::{RngCore as _, SeedableRng as _};

    /// Returns a generator of numbers around 1 with this standard deviation. A seed always gives the same numbers.
    pub(crate) fn noise(seed: u64, deviation: f64) -> impl FnMut() -> f64 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        move || {
            // The sum of twelve uniform numbers is approximately normal.
            let sum: f64 = (0..12)
                .map(|_| f64::from(random.next_u32()) / f64::from(u32::MAX))
                .sum();
            1.0 + deviation * (sum - 6.0)
        }
    }

    #[test]
    fn the_intervals_hold_the_true_median_as_often_as_they_say() {
        // Fewer rounds for the bootstrap, which takes ten thousand draws each time.
        for (runs, times, least) in [
            (6, 400, 380),
            (7, 400, 386),
            (9, 400, 375),
            (10, 20, 17),
            (20, 20, 17),
        ] {
            let held = (0..times)
                .filter(|seed| {
                    let mut draw = noise(seed * 100 + runs, 0.1);
                    let values: Vec<f64> = (0..runs).map(|_| draw()).collect();
                    let interval = interval(&values).expect("values");
                    (interval.low..=interval.high).contains(&1.0)
                })
                .count();
            assert!(held >= least, "{runs} runs: {held} of {times}");
        }
    }
}
