//! Medians, quantiles, and outliers.

/// Returns the middle value, or the mean of the two in the middle. `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// Returns the middle count, or the larger of the two in the middle, because a mean might not be a whole number. `None`
/// without counts.
pub fn median_count(counts: &[u64]) -> Option<u64> {
    let mut sorted = counts.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied()
}

/// Returns the median, the smallest and the largest value. `None` without values.
pub fn spread(values: &[f64]) -> Option<[f64; 3]> {
    let least = values.iter().copied().reduce(f64::min)?;
    let most = values.iter().copied().reduce(f64::max)?;
    Some([median(values)?, least, most])
}

/// Returns the values that are further from the quartiles than one and a half times the distance between these (Tukey
/// 1977). Outliers deserve a look, but they stay in the figures.
pub(crate) fn outliers(values: &[f64]) -> Vec<f64> {
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

pub(crate) fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Returns the value below which this share of sorted values lies, interpolated between the two nearest values. NaN
/// without values.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positions in short lists"
)]
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return f64::NAN;
    };
    let at = q.clamp(0.0, 1.0) * last as f64;
    let below = at.floor() as usize;
    let above = (below + 1).min(last);
    sorted[below] + (sorted[above] - sorted[below]) * at.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_of_runs_is_the_mean_of_the_middle_two() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median_count(&[4, 1, 2, 3]), Some(3));
        assert_eq!(spread(&[4.0, 1.0, 2.0]), Some([2.0, 1.0, 4.0]));
    }

    #[test]
    fn quantiles_lie_at_their_share_of_the_values() {
        let sorted: Vec<f64> = (0..=100).map(f64::from).collect();
        for (share, value) in [(0.0, 0.0), (0.5, 50.0), (0.99, 99.0), (1.0, 100.0)] {
            assert!((quantile(&sorted, share) - value).abs() < 1e-9, "{share}");
        }
        assert!((quantile(&[1.0, 2.0], 0.25) - 1.25).abs() < 1e-9);
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn only_outliers_are_listed() {
        assert_eq!(outliers(&[10.0, 11.0, 12.0, 11.0, 10.0, 30.0]), [30.0]);
        assert!(outliers(&[10.0, 11.0, 12.0, 11.0, 10.0, 13.0]).is_empty());
        assert!(outliers(&[1.0, 100.0]).is_empty(), "two are too few");
    }
}
