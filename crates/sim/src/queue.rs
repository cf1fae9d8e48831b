//! Waiting times in a queue.

use std::fmt;
use std::time::Duration;

/// Waiting times, of which any quantile can be asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueDelays {
    delays: Vec<Duration>,
}

impl QueueDelays {
    pub(crate) fn add(&mut self, delay: Duration) {
        self.delays.push(delay);
    }

    /// The time that a `share` of the waiting times does not exceed; zero where there are none.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index of the list: between nothing and its length, which is far below 2^53"
    )]
    pub fn quantile(&self, share: f64) -> Duration {
        let mut sorted = self.delays.clone();
        sorted.sort_unstable();
        let rank = (share.clamp(0.0, 1.0) * sorted.len() as f64).ceil() as usize;
        sorted
            .get(rank.saturating_sub(1))
            .copied()
            .unwrap_or_default()
    }

    /// The mean; zero where there are none.
    pub fn mean(&self) -> Duration {
        let count = u32::try_from(self.delays.len().max(1)).unwrap_or(u32::MAX);
        self.delays.iter().sum::<Duration>() / count
    }

    /// The longest; zero where there are none.
    pub fn max(&self) -> Duration {
        self.delays.iter().max().copied().unwrap_or_default()
    }
}

impl fmt::Display for QueueDelays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = |delay: Duration| delay.as_secs_f64() * 1e3;
        write!(
            f,
            "mean {:.1} ms, p50 {:.1} ms, p95 {:.1} ms, p99 {:.1} ms, max {:.1} ms",
            millis(self.mean()),
            millis(self.quantile(0.5)),
            millis(self.quantile(0.95)),
            millis(self.quantile(0.99)),
            millis(self.max())
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_of_the_list() {
        let mut delays = QueueDelays::default();
        assert_eq!(delays.quantile(0.5), Duration::ZERO);
        for number in (1..=100).rev() {
            delays.add(Duration::from_millis(number));
        }
        for (share, expected) in [(0.0, 1), (0.01, 1), (0.5, 50), (0.99, 99), (1.0, 100)] {
            assert_eq!(delays.quantile(share), Duration::from_millis(expected));
        }
        let (text, expected) = (delays.to_string(), "mean 50.5 ms, p50 50.0 ms");
        assert!(text.starts_with(expected), "{text}");
    }
}
