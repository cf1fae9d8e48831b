//! Round-trip times, as the answers to pings show them.

use std::time::Duration;

/// The round-trip time that counts before the first answer (RFC 9002 section 6.2.2).
const INITIAL: Duration = Duration::from_millis(333);

/// The measured round-trip times.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rtt {
    /// The smoothed and the lowest one.
    measured: Option<(Duration, Duration)>,
}

impl Rtt {
    /// Adds a sample (RFC 9002 section 5.3).
    pub(super) fn note(&mut self, sample: Duration) {
        let (smoothed, min) = self.measured.unwrap_or((sample, sample));
        self.measured = Some(((smoothed * 7 + sample) / 8, min.min(sample)));
    }

    pub(super) fn smoothed(self) -> Duration {
        self.measured.map_or(INITIAL, |(smoothed, _)| smoothed)
    }

    pub(super) fn min(self) -> Duration {
        self.measured.map_or(INITIAL, |(_, min)| min)
    }

    pub(super) fn is_known(self) -> bool {
        self.measured.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_smoothed_and_the_lowest_is_kept() {
        let mut rtt = Rtt::default();
        assert!(!rtt.is_known());
        for ms in [40, 20, 100] {
            rtt.note(Duration::from_millis(ms));
        }
        assert_eq!(rtt.min(), Duration::from_millis(20));
        let smoothed = rtt.smoothed().as_micros();
        assert!((45_000..46_000).contains(&smoothed), "{smoothed}");
    }
}
