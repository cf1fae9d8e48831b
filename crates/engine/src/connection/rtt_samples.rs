//! Sampling of a connection's round-trip time.

use std::time::{Duration, Instant};

/// Minimum time between two samples of one connection, so that a busy connection does not outweigh all others.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct RttSamples {
    next: Option<Instant>,
    /// Number of datagrams that had arrived at the latest sample.
    heard: u64,
}

impl RttSamples {
    /// Returns whether a sample is due: `arrived` has grown since the latest sample, which is at least a second ago.
    pub(super) fn take(&mut self, now: Instant, arrived: u64) -> bool {
        let due = arrived > self.heard && self.next.is_none_or(|next| now >= next);
        if due {
            (self.next, self.heard) = (Some(now + PAUSE), arrived);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_counts_once_a_second_and_only_after_new_datagrams() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut samples = RttSamples::default();
        assert!(!samples.take(at(0), 0), "nothing has arrived");
        assert!(samples.take(at(0), 1));
        assert!(!samples.take(at(999), 2));
        assert!(samples.take(at(1000), 3));
        assert!(!samples.take(at(9000), 3), "silence");
        assert!(samples.take(at(9001), 4));
    }
}
