//! What few runs can tell: medians, the intervals around them, and whether one thing differs from another.
//!
//! Below ten runs an interval is made of the runs themselves, exact whatever their distribution is
//! ([`order_statistic`]). From ten on it is a bootstrap's ([`bootstrap`]), which is narrower and approximate. Verdicts
//! ([`compare`]) always rest on the exact one.

mod bootstrap;
mod order;
mod pairs;

pub use bootstrap::bootstrap;
pub use order::order_statistic;
pub use pairs::{Paired, Verdict, compare};

/// Runs from which a bootstrap is used.
pub const BOOTSTRAP_RUNS: usize = 10;

/// How sure intervals are meant to be.
pub const LEVEL: f64 = 0.95;

/// A range that holds the true median, with this probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// How probably it does. With fewer than six runs that is below [`LEVEL`].
    pub level: f64,
}

/// The middle one, or the mean of the two in the middle; `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// The interval around the median, by the method that so many runs permit; `None` of nothing.
pub fn interval(values: &[f64]) -> Option<Interval> {
    if values.len() < BOOTSTRAP_RUNS {
        order_statistic(values)
    } else {
        bootstrap(values)
    }
}

/// Values further from the quartiles than one and a half times their distance (Tukey 1977): worth a look, and kept.
pub fn outliers(values: &[f64]) -> Vec<f64> {
    let sorted = sorted(values);
    if sorted.len() < 5 {
        return Vec::new();
    }
    let (low, high) = (quantile(&sorted, 0.25), quantile(&sorted, 0.75));
    let reach = 1.5 * (high - low);
    sorted
        .into_iter()
        .filter(|value| *value < low - reach || *value > high + reach)
        .collect()
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Between the two nearest, of sorted values that are not none.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positions in short lists"
)]
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let at = q.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let below = at.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (sorted[above] - sorted[below]) * at.fract()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rand_chacha::ChaCha8Rng;
    use rand_core::{RngCore as _, SeedableRng as _};

    /// Numbers around 1 with this standard deviation, always the same for a seed.
    pub(crate) fn noise(seed: u64, deviation: f64) -> impl FnMut() -> f64 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        move || {
            // Twelve uniform ones make a normal one, near enough.
            let sum: f64 = (0..12)
                .map(|_| f64::from(random.next_u32()) / f64::from(u32::MAX))
                .sum();
            1.0 + deviation * (sum - 6.0)
        }
    }

    #[test]
    fn the_median_is_the_middle_or_between_the_two_in_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn outliers_are_named_and_nothing_else_is() {
        assert_eq!(outliers(&[10.0, 11.0, 12.0, 11.0, 10.0, 30.0]), [30.0]);
        assert!(outliers(&[10.0, 11.0, 12.0, 11.0, 10.0, 13.0]).is_empty());
        assert!(outliers(&[1.0, 100.0]).is_empty(), "two say nothing");
    }

    #[test]
    fn the_intervals_hold_the_true_median_as_often_as_they_say() {
        // A bootstrap takes ten thousand draws each time.
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
