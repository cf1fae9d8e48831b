//! Measures how many bytes arrive together, as BBR does (draft-cardwell-iccrg-bbr-congestion-control-02 section 4.5.5).
//!
//! Hosts, radio links and receivers hold packets and acknowledgements back, and then deliver them together. A sender
//! whose window does not cover them sends nothing meanwhile.

use std::time::{Duration, Instant};

use crate::auto::recent_extreme::RecentExtreme;

/// The bytes that recently arrived in addition to what the bandwidth explains.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aggregation {
    /// Start of the current period, and the bytes that have arrived in it.
    begun: Instant,
    arrived: f64,
    extra: RecentExtreme,
}

impl Aggregation {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            begun: now,
            arrived: 0.0,
            extra: RecentExtreme::default(),
        }
    }

    /// Records that `bytes` have arrived. `bandwidth` is in bytes per second, `rtt_s` in seconds.
    pub(super) fn on_arrived(&mut self, now: Instant, bytes: f64, bandwidth: f64, rtt_s: f64) {
        let elapsed = now.saturating_duration_since(self.begun);
        let mut expected = bandwidth * elapsed.as_secs_f64();
        if self.arrived <= expected {
            self.begun = now;
            self.arrived = 0.0;
            expected = 0.0;
        }
        self.arrived += bytes;
        let age = Duration::from_secs_f64(AGE_ROUNDS * rtt_s);
        self.extra.add(now, self.arrived - expected, age, f64::max);
    }

    /// Returns the most bytes that recently arrived in addition, but at most what the `bandwidth` carries in 100 ms.
    pub(super) fn bytes(&self, bandwidth: f64) -> f64 {
        let extra = self.extra.get(f64::max).unwrap_or(0.0);
        extra.min(MOST_S * bandwidth)
    }
}

/// A value is remembered for this number of round trips, and for as many more.
const AGE_ROUNDS: f64 = 5.0;

/// A longer interruption is not aggregation.
const MOST_S: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const BANDWIDTH: f64 = 1e6;

    /// Lets what the bandwidth carries in `every_ms` arrive together, for 200 ms.
    fn arrivals(every_ms: u32) -> (Aggregation, Instant) {
        let start = Instant::now();
        let mut aggregation = Aggregation::new(start);
        let mut now = start;
        for _ in 0..200 / every_ms {
            now += every_ms * MS;
            let bytes = BANDWIDTH * f64::from(every_ms) / 1e3;
            aggregation.on_arrived(now, bytes, BANDWIDTH, 0.01);
        }
        (aggregation, now)
    }

    #[test]
    fn the_bytes_that_arrive_together_count() {
        for every_ms in [1, 10, 50] {
            let (aggregation, _) = arrivals(every_ms);
            let bytes = BANDWIDTH * f64::from(every_ms) / 1e3;
            let shown = aggregation.bytes(BANDWIDTH);
            assert!((bytes..2.1 * bytes).contains(&shown), "{every_ms}: {shown}");
        }
    }

    #[test]
    fn a_long_interruption_counts_little_and_is_forgotten() {
        let (mut aggregation, mut now) = arrivals(1);
        now += 5000 * MS;
        aggregation.on_arrived(now, 5.0 * BANDWIDTH, BANDWIDTH, 0.01);
        let most = 0.1 * BANDWIDTH;
        assert!((aggregation.bytes(BANDWIDTH) - most).abs() < 1.0);
        now += 6000 * MS;
        for _ in 0..110 {
            now += MS;
            aggregation.on_arrived(now, BANDWIDTH / 1e3, BANDWIDTH, 0.01);
        }
        assert!(aggregation.bytes(BANDWIDTH) < 3e3);
    }
}
