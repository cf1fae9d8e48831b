//! Converts the monotonic instants of reports to wall-clock times.

use std::time::{Duration, Instant};

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

/// Links the monotonic clock to the wall clock at one moment, near the start of the process.
///
/// Later jumps of the wall clock do not change reported times, so that ages stay correct.
#[derive(Clone, Debug)]
pub(crate) struct ProcessClock {
    started: Instant,
    started_wall: Timestamp,
    zone: TimeZone,
}

impl ProcessClock {
    pub(crate) fn start() -> Self {
        Self {
            started: Instant::now(),
            started_wall: Timestamp::now(),
            zone: crate::log::local_zone(),
        }
    }

    #[cfg(test)]
    pub(crate) fn fixed(started: Instant, started_wall: Timestamp, zone: TimeZone) -> Self {
        Self {
            started,
            started_wall,
            zone,
        }
    }

    pub(crate) fn started(&self) -> Timestamp {
        self.started_wall
    }

    /// Returns the time from the start to `instant`, or zero if `instant` is earlier.
    pub(crate) fn since_start(&self, instant: Instant) -> Duration {
        instant.saturating_duration_since(self.started)
    }

    pub(crate) fn wall(&self, instant: Instant) -> Timestamp {
        self.started_wall
            .checked_add(self.since_start(instant))
            .unwrap_or(Timestamp::MAX)
    }

    pub(crate) fn local(&self, instant: Instant) -> Zoned {
        self.wall(instant).to_zoned(self.zone.clone())
    }
}

/// Rounds down to milliseconds and returns seconds. Answers are not more precise than that, and people read them too.
pub(super) fn seconds(time: Duration) -> f64 {
    Duration::from_millis(time.as_millis().try_into().unwrap_or(u64::MAX)).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_end_with_the_millisecond() {
        let age = Duration::new(59, 71_402_419);
        assert_eq!(seconds(age).to_string(), "59.071");
        assert_eq!(seconds(Duration::ZERO).to_string(), "0");
    }

    #[test]
    fn wall_clock_times_keep_their_distance() {
        let started = Instant::now();
        let wall = Timestamp::new(1_785_585_600, 0).expect("in range");
        let clock = ProcessClock::fixed(started, wall, TimeZone::UTC);
        let later = started + Duration::from_millis(1500);
        assert_eq!(clock.wall(later).to_string(), "2026-08-01T12:00:01.5Z");
        assert_eq!(clock.since_start(later), Duration::from_millis(1500));
        assert_eq!(
            clock.local(started).to_string(),
            "2026-08-01T12:00:00+00:00[UTC]"
        );
    }

    #[test]
    fn a_started_clock_shows_the_time_of_now() {
        let clock = ProcessClock::start();
        let off = clock.wall(Instant::now()).duration_since(Timestamp::now());
        assert!(off.abs() < jiff::SignedDuration::from_secs(60), "{off:?}");
    }
}
