//! The spread of a figure over several runs.

use quictun_lab::stats;
use serde_json::{Value, json};

/// Returns the median, the minimum and the maximum of some runs, or zeros if there are none.
pub(crate) fn of(runs: &[f64]) -> [f64; 3] {
    stats::spread(runs).unwrap_or_default()
}

pub(crate) fn json([median, least, most]: [f64; 3]) -> Value {
    json!({"median": median, "min": least, "max": most})
}
