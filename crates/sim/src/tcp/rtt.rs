//! The round-trip time estimate and the retransmission timeout.

use std::time::Duration;

/// Timeout before the first sample, RFC 6298 section 2.
const INITIAL_RTO: Duration = Duration::from_secs(1);

/// Floor of the timeout's variance term, as in Linux. RFC 6298 recommends a floor of one second for the whole timeout.
const RTO_MARGIN_MIN: Duration = Duration::from_millis(200);

/// Ceiling of the timeout, RFC 6298 (2.5).
const RTO_MAX: Duration = Duration::from_mins(1);

#[derive(Clone, Debug, Default)]
pub(crate) struct RttEstimator {
    smoothed: Option<Duration>,
    variance: Duration,
    min: Option<Duration>,
}

impl RttEstimator {
    /// Updates the estimate with a new sample, RFC 6298 section 2.
    pub(crate) fn sample(&mut self, rtt: Duration) {
        self.min = Some(self.min.map_or(rtt, |min| min.min(rtt)));
        let Some(smoothed) = self.smoothed else {
            self.smoothed = Some(rtt);
            self.variance = rtt / 2;
            return;
        };
        self.variance = (self.variance * 3 + smoothed.abs_diff(rtt)) / 4;
        self.smoothed = Some((smoothed * 7 + rtt) / 8);
    }

    /// Returns the smoothed round-trip time, or zero before the first sample.
    pub(crate) fn smoothed(&self) -> Duration {
        self.smoothed.unwrap_or_default()
    }

    /// Returns the smallest sample so far, or zero before the first sample.
    pub(crate) fn min(&self) -> Duration {
        self.min.unwrap_or_default()
    }

    /// Returns the retransmission timeout after `backoff` consecutive timeouts.
    pub(crate) fn timeout(&self, backoff: u32) -> Duration {
        let base = self.smoothed.map_or(INITIAL_RTO, |smoothed| {
            smoothed + (self.variance * 4).max(RTO_MARGIN_MIN)
        });
        (base * (1 << backoff.min(6))).min(RTO_MAX)
    }
}
