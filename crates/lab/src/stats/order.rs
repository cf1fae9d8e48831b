//! The exact interval, whose ends are two of the runs.

use serde::Serialize;

use super::middle::sorted;

/// The confidence level that intervals should have.
pub const LEVEL: f64 = 0.95;

/// A range that contains the true median with a given probability.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The lower end of the range.
    pub low: f64,
    /// The upper end of the range.
    pub high: f64,
    /// The probability. Below [`LEVEL`] for fewer than six runs.
    pub level: f64,
}

/// Returns the exact interval. The true median lies between the k-th lowest and the k-th highest run, unless fewer than
/// k runs fell on one side of it. Takes the largest k that reaches [`LEVEL`]. If none does, takes all runs and reports
/// the lower level.
pub(crate) fn order_statistic(values: &[f64]) -> Option<Interval> {
    let sorted = sorted(values);
    let runs = sorted.len();
    if runs == 0 {
        return None;
    }
    let enough = (1..=runs.div_ceil(2)).take_while(|k| coverage(runs, *k) >= LEVEL);
    let k = enough.last().unwrap_or(1);
    Some(Interval {
        low: sorted[k - 1],
        high: sorted[runs - k],
        level: coverage(runs, k),
    })
}

/// Returns the probability that the true median lies between the k-th lowest and the k-th highest run:
/// `1 - 2 P(Bin(n, 1/2) < k)`.
#[expect(clippy::cast_precision_loss, reason = "numbers of runs")]
fn coverage(runs: usize, k: usize) -> f64 {
    let mut term = 0.5_f64.powi(i32::try_from(runs).unwrap_or(i32::MAX));
    let mut below = 0.0;
    for hits in 0..k {
        below += term;
        term *= (runs - hits) as f64 / (hits + 1) as f64;
    }
    1.0 - 2.0 * below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    fn of(runs: usize) -> Interval {
        let values: Vec<f64> = (1..=runs).map(|value| value as f64).collect();
        order_statistic(&values).expect("values")
    }

    #[test]
    fn interval_ends_and_levels_agree_with_the_tables() {
        // Conover, Practical Nonparametric Statistics, table A3.
        for (runs, low, high, percent) in [
            (3, 1.0, 3.0, "75.00"),
            (5, 1.0, 5.0, "93.75"),
            (6, 1.0, 6.0, "96.88"),
            (7, 1.0, 7.0, "98.44"),
            (9, 2.0, 8.0, "96.09"),
            (20, 6.0, 15.0, "95.86"),
        ] {
            let interval = of(runs);
            let found = (
                interval.low,
                interval.high,
                &*format!("{:.2}", interval.level * 100.0),
            );
            assert_eq!(found, (low, high, percent), "{runs} runs");
        }
        assert!(
            of(1).level.abs() < f64::EPSILON,
            "one run has a confidence of zero"
        );
        assert_eq!(order_statistic(&[]), None);
    }
}
