//! The approximate interval: medians of resampled runs.
//!
//! Bias-corrected and accelerated (Efron 1987; `DiCiccio` and Efron, "Bootstrap Confidence Intervals", 1996, section
//! 2).

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore as _, SeedableRng as _};

use super::middle::{median, quantile, sorted};
use super::order::{Interval, LEVEL};

/// Number of draws. With this many, the ends of a 95 % interval vary by far less than the width of the interval.
const DRAWS: usize = 10_000;

/// A fixed seed, so that the same runs always have the same interval.
const SEED: u64 = 0x6c61_622f_3100;

/// Returns the interval around the median of the runs. It is meaningful for ten runs or more.
pub(crate) fn bootstrap(values: &[f64]) -> Option<Interval> {
    let middle = median(values)?;
    let draws = sorted(&medians_of_draws(values));
    let bias = bias(&draws, middle);
    let acceleration = acceleration(values);
    let end = |level: f64| {
        let shifted = bias + normal_quantile(level);
        let level = normal(bias + shifted / (1.0 - acceleration * shifted));
        quantile(&draws, level)
    };
    let outside = (1.0 - LEVEL) / 2.0;
    Some(Interval {
        low: end(outside),
        high: end(1.0 - outside),
        level: LEVEL,
    })
}

fn medians_of_draws(values: &[f64]) -> Vec<f64> {
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let runs = values.len() as u64;
    let mut draw = vec![0.0; values.len()];
    (0..DRAWS)
        .map(|_| {
            for slot in &mut draw {
                let at = (u64::from(random.next_u32()) * runs) >> 32;
                *slot = values[usize::try_from(at).unwrap_or(0)];
            }
            median(&draw).unwrap_or(f64::NAN)
        })
        .collect()
}

/// Returns the bias: the distance between the median of the draws and that of the runs, in standard deviations. Draws
/// that equal the median count half.
#[expect(clippy::cast_precision_loss, reason = "ten thousand draws")]
fn bias(draws: &[f64], middle: f64) -> f64 {
    let below = draws.iter().filter(|draw| **draw < middle).count() as f64;
    let equal = draws.iter().filter(|draw| **draw <= middle).count() as f64 - below;
    let share = (below + equal / 2.0) / draws.len() as f64;
    let least = 0.5 / draws.len() as f64;
    normal_quantile(share.clamp(least, 1.0 - least))
}

/// Returns the acceleration, which says how much the spread depends on the value: the skewness of the medians that
/// leave one run out.
#[expect(clippy::cast_precision_loss, reason = "numbers of runs")]
fn acceleration(values: &[f64]) -> f64 {
    let without: Vec<f64> = (0..values.len())
        .filter_map(|left_out| {
            let mut rest = values.to_vec();
            rest.swap_remove(left_out);
            median(&rest)
        })
        .collect();
    let mean = without.iter().sum::<f64>() / without.len().max(1) as f64;
    let moment = |power| -> f64 { without.iter().map(|m| (mean - m).powi(power)).sum() };
    let spread = moment(2).powf(1.5);
    if spread > 0.0 {
        moment(3) / (6.0 * spread)
    } else {
        0.0
    }
}

/// Returns the value of the normal distribution function at `z`, by Abramowitz and Stegun 7.1.26, with an error below
/// 2e-7.
fn normal(z: f64) -> f64 {
    let x = z.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let polynomial = [
        1.061_405_429,
        -1.453_152_027,
        1.421_413_741,
        -0.284_496_736,
        0.254_829_592,
    ];
    let sum = polynomial
        .into_iter()
        .fold(0.0, |sum, factor| sum * t + factor);
    let upper = 0.5 * sum * t * (-x * x).exp();
    if z > 0.0 { 1.0 - upper } else { upper }
}

/// Returns the quantile of the normal distribution for a share, by bisection.
fn normal_quantile(share: f64) -> f64 {
    // Beyond eight standard deviations `f64` cannot distinguish the share from 0 or 1.
    let (mut low, mut high) = (-8.0, 8.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if normal(middle) < share {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_quantiles_agree_with_the_tables() {
        for (z, share) in [(0.0, 0.5), (1.0, 0.841_345), (-1.96, 0.024_998)] {
            assert!((normal(z) - share).abs() < 1e-6, "{z}");
        }
        for (share, z) in [(0.5, 0.0), (0.975, 1.959_964), (0.001, -3.090_232)] {
            assert!((normal_quantile(share) - z).abs() < 1e-4, "{share}");
        }
    }

    #[test]
    fn the_bootstrap_interval_is_reproducible_and_contains_the_median() {
        let values: Vec<f64> = (0..15).map(|value| f64::from(value * value)).collect();
        let interval = bootstrap(&values).expect("values");
        assert_eq!(bootstrap(&values), Some(interval));
        assert!(interval.low < 49.0 && 49.0 < interval.high, "{interval:?}");
        assert!(
            49.0 - interval.low < interval.high - 49.0,
            "the skew shows: {interval:?}"
        );
    }

    #[test]
    fn identical_runs_have_an_interval_of_zero_width() {
        let interval = bootstrap(&[5.0; 12]).expect("values");
        assert!((interval.low - 5.0).abs() < 1e-12 && (interval.high - 5.0).abs() < 1e-12);
    }
}
