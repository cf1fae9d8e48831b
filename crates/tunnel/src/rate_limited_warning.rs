//! Warnings that an application can cause again and again.

use std::time::{Duration, Instant};

/// Minimum time between two warnings of the same kind.
const WARN_EVERY: Duration = Duration::from_secs(10);

/// Rate-limits a warning and counts its occurrences.
#[derive(Debug, Default)]
pub(crate) struct RateLimitedWarning {
    sent: Option<Instant>,
    since: u64,
}

impl RateLimitedWarning {
    /// Counts an occurrence. If a warning is due, returns the number of occurrences since the last one.
    pub(crate) fn count(&mut self, now: Instant) -> Option<u64> {
        self.since += 1;
        if self.sent.is_some_and(|sent| now < sent + WARN_EVERY) {
            return None;
        }
        self.sent = Some(now);
        Some(std::mem::take(&mut self.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frequent_warning_is_logged_rarely_with_its_count() {
        let mut occasional = RateLimitedWarning::default();
        let start = Instant::now();
        assert_eq!(occasional.count(start), Some(1));
        assert_eq!(occasional.count(start), None);
        assert_eq!(occasional.count(start + WARN_EVERY / 2), None);
        assert_eq!(occasional.count(start + WARN_EVERY), Some(3));
        assert_eq!(occasional.count(start + WARN_EVERY), None);
    }
}
