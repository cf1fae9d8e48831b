//! Two clocks: the wall clock with which the kernel stamps frames, and the monotonic clock.

use std::time::{Duration, Instant, SystemTime};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    now: Instant,
    /// Wall-clock time since 1970, read together with `now`.
    wall: Duration,
}

impl Clocks {
    /// Reads both clocks, as close together as the machine allows.
    pub(crate) fn read() -> Self {
        let mut tries = 0;
        loop {
            let before = Instant::now();
            let wall = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
            let now = Instant::now();
            tries += 1;
            // Use the later reading: the gap makes a frame late, which an audit may show, but never early, which a link
            // cannot be.
            if now - before <= TOGETHER || tries == TRIES {
                return Self { now, wall };
            }
        }
    }

    /// Converts a frame's stamp, taken before or after the clocks were read, to the frame's time of arrival. The result
    /// is never later than `read`, the time at which the frame had been read.
    pub(crate) fn arrival(self, stamp: Option<Duration>, read: Instant) -> Instant {
        let Some(stamp) = stamp else { return read };
        // If the wall clock was set in between, the error is limited to `AGE_MAX`.
        let arrived = if let Some(later) = stamp.checked_sub(self.wall) {
            self.now + later.min(AGE_MAX)
        } else {
            let age = self.wall.saturating_sub(stamp).min(AGE_MAX);
            self.now.checked_sub(age).unwrap_or(self.now)
        };
        arrived.min(read)
    }
}

/// Readings that are this close to each other count as simultaneous.
const TOGETHER: Duration = Duration::from_micros(2);

const TRIES: u32 = 4;

/// Longest time that a frame may have waited for the emulator. A longer real wait shows up as lateness.
const AGE_MAX: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn clocks() -> Clocks {
        let (now, wall) = (Instant::now() + 1000 * MS, 5000 * MS);
        Clocks { now, wall }
    }

    #[test]
    fn a_frame_that_waited_has_an_earlier_arrival_time() {
        let clocks = clocks();
        let arrived = clocks.arrival(Some(4998 * MS), clocks.now);
        assert_eq!(clocks.now - arrived, 2 * MS);
    }

    #[test]
    fn a_frame_stamped_after_the_clocks_were_read_keeps_its_stamp() {
        let clocks = clocks();
        let arrived = clocks.arrival(Some(5003 * MS), clocks.now + 4 * MS);
        assert_eq!(arrived - clocks.now, 3 * MS);
    }

    #[test]
    fn a_frame_without_a_stamp_arrives_when_it_is_read() {
        let clocks = clocks();
        let read = clocks.now + MS;
        assert_eq!(clocks.arrival(None, read), read);
    }

    #[test]
    fn a_wall_clock_that_was_set_is_noticed_soon() {
        let clocks = clocks();
        let read = clocks.now + MS;
        assert_eq!(clocks.arrival(Some(9000 * MS), read), read);
        let before = clocks.arrival(Some(Duration::ZERO), read);
        assert_eq!(clocks.now - before, AGE_MAX);
    }
}
