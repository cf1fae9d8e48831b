//! The results of the runs of one combination.

use serde_json::{Value, json};

use super::setup::Setup;
use crate::machine::{float, micros};

pub(crate) struct ConnectionRow {
    pub(crate) setup: Setup,
    /// Messages or calls per second: median, minimum, maximum.
    pub(crate) rate: [f64; 3],
    pub(crate) latency: Option<Latency>,
    /// Per cent of a core: the stack's process, and the application's threads.
    pub(crate) cpu: [f64; 2],
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Latency {
    pub(crate) mean_us: f64,
    /// Variance in square microseconds.
    pub(crate) variance: f64,
    /// The percentiles 50, 99 and 99.9.
    pub(crate) percentiles_us: [f64; 3],
}

impl Latency {
    pub(crate) fn of(mut times: Vec<u64>) -> Option<Self> {
        times.sort_unstable();
        let count = times.len();
        let last = count.checked_sub(1)?;
        let micros = |time: &u64| micros(*time);
        let mean_us = times.iter().map(micros).sum::<f64>() / float(count as u64);
        let squares = times.iter().map(|time| (micros(time) - mean_us).powi(2));
        Some(Self {
            mean_us,
            variance: squares.sum::<f64>() / float(count as u64),
            percentiles_us: [500, 990, 999].map(|share| micros(&times[last * share / 1000])),
        })
    }

    pub(crate) fn to_json(self) -> Value {
        let [p50, p99, p999] = self.percentiles_us;
        json!({
            "mean_us": self.mean_us,
            "variance_us2": self.variance,
            "p50_us": p50,
            "p99_us": p99,
            "p99.9_us": p999,
        })
    }

    pub(crate) fn from_json(said: &Value) -> Option<Self> {
        let number = |name: &str| said[name].as_f64();
        Some(Self {
            mean_us: number("mean_us")?,
            variance: number("variance_us2")?,
            percentiles_us: [number("p50_us")?, number("p99_us")?, number("p99.9_us")?],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variance_covers_all_times() {
        let latency = Latency::of(vec![1000, 3000, 5000, 7000]).expect("some");
        let expected = json!({
            "mean_us": 4.0,
            "variance_us2": 5.0,
            "p50_us": 3.0,
            "p99_us": 5.0,
            "p99.9_us": 5.0,
        });
        assert_eq!(latency.to_json(), expected);
        let again = Latency::from_json(&expected).expect("all of it");
        assert_eq!(again.to_json(), expected);
        assert!(Latency::of(Vec::new()).is_none());
    }
}
