//! Figures of several runs.

use quictun_lab::stats;
use serde_json::{Value, json};

/// The median, the least and the most of some runs; zeros of none.
pub(crate) fn of(runs: &[f64]) -> [f64; 3] {
    stats::spread(runs).unwrap_or_default()
}

pub(crate) fn json([median, least, most]: [f64; 3]) -> Value {
    json!({"median": median, "min": least, "max": most})
}
