//! Confidence intervals for shares: the distance of a counted share from the true one.

/// Number of standard deviations that cover 99 % of a normal distribution.
pub(crate) const Z_99: f64 = 2.575_829;

/// Number of standard deviations for 99.99 %: a correct link lies outside in one of ten thousand runs.
pub(crate) const Z_9999: f64 = 3.890_592;

/// Returns Wilson's score interval (1927) for `hits` of `trials`, or the whole range if there were no trials.
pub(crate) fn wilson(hits: u64, trials: u64, z: f64) -> [f64; 2] {
    if trials == 0 {
        return [0.0, 1.0];
    }
    let [none, all] = [hits == 0, hits == trials];
    let [hits, trials] = [hits, trials].map(to_f64);
    let share = hits / trials;
    let squared = z * z;
    let middle = share + squared / (2.0 * trials);
    let half = z * (share * (1.0 - share) / trials + squared / (4.0 * trials * trials)).sqrt();
    let scale = 1.0 + squared / trials;
    // Without this, rounding could exclude 0 and 1 from the intervals for no hits and for all hits.
    [
        if none { 0.0 } else { (middle - half) / scale },
        if all { 1.0 } else { (middle + half) / scale },
    ]
}

/// Converts a count; exact up to 2^53.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
pub(crate) fn to_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_agrees_with_a_published_example() {
        // Source: Newcombe 1998, table I: 81 of 263 and 0 of 20, 95 %.
        let said = |hits, trials| wilson(hits, trials, 1.96).map(|share| format!("{share:.4}"));
        assert_eq!(said(81, 263), ["0.2553", "0.3662"]);
        assert_eq!(said(0, 20), ["0.0000", "0.1611"]);
    }

    #[test]
    fn an_interval_includes_zero_for_no_hits_and_one_for_all() {
        for trials in 1..10_000 {
            assert!(wilson(0, trials, Z_9999)[0] <= 0.0, "of {trials}");
            assert!(wilson(trials, trials, Z_9999)[1] >= 1.0, "of {trials}");
        }
    }

    #[test]
    fn an_empty_count_gives_the_widest_interval() {
        let [low, high] = wilson(0, 0, Z_99);
        assert!(low <= 0.0 && high >= 1.0);
    }
}
