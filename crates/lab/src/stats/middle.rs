//! Medians, quantiles, and values that stand apart.

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

/// The median, the least and the most; `None` of nothing.
pub fn spread(values: &[f64]) -> Option<[f64; 3]> {
    let least = values.iter().copied().reduce(f64::min)?;
    let most = values.iter().copied().reduce(f64::max)?;
    Some([median(values)?, least, most])
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

/// The values in order.
pub(crate) fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Where this share of sorted values lies below, between the two nearest values.
///
/// # Panics
///
/// Without values.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positions in short lists"
)]
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    let at = q.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let below = at.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (sorted[above] - sorted[below]) * at.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_between_the_two_in_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(spread(&[4.0, 1.0, 2.0]), Some([2.0, 1.0, 4.0]));
    }

    #[test]
    fn outliers_are_named_and_nothing_else_is() {
        assert_eq!(outliers(&[10.0, 11.0, 12.0, 11.0, 10.0, 30.0]), [30.0]);
        assert!(outliers(&[10.0, 11.0, 12.0, 11.0, 10.0, 13.0]).is_empty());
        assert!(outliers(&[1.0, 100.0]).is_empty(), "two say nothing");
    }
}
