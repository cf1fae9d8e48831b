//! Rate limit for the moves of a bond's flows.

use std::time::{Duration, Instant};

/// Burst of moves, as the time in which their rate permits them: all flows may move eight times at once. Honest flows
/// move when a path has been dead for half a second, or when a person or a script makes the client reconnect.
const BURST: Duration = Duration::from_secs(8);

/// Minimum rate in moves per second, for bonds with fewer flows.
const RATE_MIN: usize = 32;

/// Limits moves to one per second and flow, with a burst of [`BURST`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MoveLimiter {
    /// Time at which all moves so far would have happened at that rate.
    at: Option<Instant>,
}

impl MoveLimiter {
    /// Records the move of one of `flows` flows. Returns false if too many flows have moved.
    pub(super) fn permit(&mut self, now: Instant, flows: usize) -> bool {
        let rate = u32::try_from(flows.max(RATE_MIN)).unwrap_or(u32::MAX);
        let at = self.at.map_or(now, |at| at.max(now));
        let within = at < now + BURST;
        if within {
            self.at = Some(at + Duration::from_secs(1) / rate);
        }
        within
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many of 10 000 moves are permitted at once, and how many a second later.
    fn permitted(flows: usize) -> [usize; 2] {
        let (mut limiter, now) = (MoveLimiter::default(), Instant::now());
        [0, 1].map(|second| {
            let now = now + Duration::from_secs(second);
            (0..10_000).filter(|_| limiter.permit(now, flows)).count()
        })
    }

    #[test]
    fn all_flows_may_move_eight_times_at_once_and_once_a_second() {
        assert_eq!(permitted(1), [256, 32]);
        assert_eq!(permitted(RATE_MIN), [256, 32]);
        assert_eq!(permitted(1000), [8000, 1000]);
    }
}
