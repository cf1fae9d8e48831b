//! Tests whether one arm differs from another, with pairs that were measured next to each other.

use serde::Serialize;

use super::middle::median;
use super::order::{Interval, LEVEL, order_statistic};

/// The result of a paired comparison.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PairedComparison {
    pub(crate) pairs: usize,
    /// The median of the ratios, first over second.
    pub ratio: f64,
    /// The exact interval around the ratio.
    pub interval: Interval,
    #[serde(skip)]
    pub(crate) verdict: Verdict,
    /// The smallest relative difference that this number of pairs with this noise would have shown. `None` if there are
    /// too few pairs to show any.
    pub(crate) detectable: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Higher,
    Lower,
    /// The interval contains 1.
    NoDifference,
    /// Too few pairs for an interval at [`LEVEL`].
    TooFew,
}

/// Compares pairs by their ratios. Ignores pairs in which a value is not above 0, and returns `None` if no pair is
/// left.
pub fn compare(pairs: &[(f64, f64)]) -> Option<PairedComparison> {
    let ratios: Vec<f64> = pairs
        .iter()
        .filter(|(first, second)| *first > 0.0 && *second > 0.0)
        .map(|(first, second)| first / second)
        .collect();
    let ratio = median(&ratios)?;
    let interval = order_statistic(&ratios)?;
    let verdict = if interval.level < LEVEL {
        Verdict::TooFew
    } else if interval.low > 1.0 {
        Verdict::Higher
    } else if interval.high < 1.0 {
        Verdict::Lower
    } else {
        Verdict::NoDifference
    };
    Some(PairedComparison {
        pairs: ratios.len(),
        ratio,
        interval,
        verdict,
        detectable: (verdict != Verdict::TooFew)
            .then(|| (interval.high / ratio - 1.0).max(1.0 - interval.low / ratio)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::tests::noise;

    fn verdicts(hunts: u64, runs: usize, deviation: f64, factor: f64) -> Vec<Verdict> {
        (0..hunts)
            .map(|hunt| {
                let (mut first, mut second) =
                    (noise(2 * hunt, deviation), noise(2 * hunt + 1, deviation));
                let pairs: Vec<_> = (0..runs).map(|_| (factor * first(), second())).collect();
                compare(&pairs).expect("pairs").verdict
            })
            .collect()
    }

    #[test]
    fn equal_arms_differ_significantly_at_most_once_in_twenty() {
        for runs in [7, 10, 20] {
            for deviation in [0.01, 0.2] {
                let false_ones = verdicts(20, runs, deviation, 1.0)
                    .into_iter()
                    .filter(|verdict| *verdict != Verdict::NoDifference)
                    .count();
                assert!(
                    false_ones <= 1,
                    "{runs} runs, noise {deviation}: {false_ones}"
                );
            }
        }
    }

    #[test]
    fn five_percent_less_is_found_where_noise_is_low() {
        let found = verdicts(20, 7, 0.01, 0.95);
        assert_eq!(found, [Verdict::Lower; 20]);
    }

    #[test]
    fn an_insignificant_comparison_states_the_detectable_difference() {
        let paired = compare(&[
            (1.0, 1.0),
            (1.1, 1.0),
            (0.9, 1.0),
            (1.0, 1.0),
            (1.2, 1.0),
            (1.0, 1.0),
        ]);
        let paired = paired.expect("pairs");
        assert_eq!(paired.verdict, Verdict::NoDifference);
        let detectable = paired.detectable.expect("six pairs are enough");
        assert!((detectable - 0.2).abs() < 1e-9, "{paired:?}");
    }

    #[test]
    fn few_pairs_give_no_verdict_even_if_they_agree() {
        let of = |pairs: usize| {
            let paired = compare(&vec![(2.0, 1.0); pairs]).expect("pairs");
            (paired.verdict, paired.detectable)
        };
        assert_eq!(of(5), (Verdict::TooFew, None));
        assert_eq!(of(6), (Verdict::Higher, Some(0.0)));
        assert_eq!(compare(&[]), None);
        assert_eq!(compare(&[(1.0, 0.0)]), None, "no ratio");
    }
}
