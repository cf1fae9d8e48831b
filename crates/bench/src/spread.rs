//! Figures of several runs.

use serde_json::{Value, json};

/// The median, the least and the most of some runs; zeros of none.
pub(crate) fn of(mut runs: Vec<f64>) -> [f64; 3] {
    runs.sort_by(f64::total_cmp);
    let at = |index: usize| runs.get(index).copied().unwrap_or_default();
    [at(runs.len() / 2), at(0), at(runs.len().saturating_sub(1))]
}

/// The median of some runs, if there are any.
pub(crate) fn median(mut runs: Vec<f64>) -> Option<f64> {
    runs.sort_by(f64::total_cmp);
    runs.get(runs.len() / 2).copied()
}

/// As an object.
pub(crate) fn json([median, least, most]: [f64; 3]) -> Value {
    json!({"median": median, "min": least, "max": most})
}
