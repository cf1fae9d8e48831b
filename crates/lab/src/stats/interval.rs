//! Intervals, and how sure they are meant to be.

/// How sure intervals are meant to be.
pub const LEVEL: f64 = 0.95;

/// A range that holds the true median, with this probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// How probably it does. With fewer than six runs that is below [`LEVEL`].
    pub level: f64,
}
