//! The middle of some runs.

use crate::stats::{Interval, interval, median, outliers};

/// The middle of some runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Median.
    pub median: f64,
    /// Interval around it.
    pub interval: Interval,
    /// Runs that count.
    pub runs: usize,
    /// Runs that stand apart.
    pub outliers: Vec<f64>,
}

impl Figure {
    /// The figure of these runs; `None` without any.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        Some(Self {
            median: median(values)?,
            interval: interval(values)?,
            runs: values.len(),
            outliers: outliers(values),
        })
    }
}
