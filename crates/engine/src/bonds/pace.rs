//! How often the flows of a bond may move.

use std::time::{Duration, Instant};

/// Time whose moves may come at once: all flows may move eight times. Honest ones move when a path has been dead for half a
/// second, or when a person or a script has the client reconnect.
const SAVED: Duration = Duration::from_secs(8);

/// Moves of a second, for bonds with fewer flows.
const RATE_MIN: usize = 32;

/// Moves come at their pace, that of one a second for each flow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// Time at which all moves so far would have come at that pace.
    at: Option<Instant>,
}

impl Pace {
    /// One of `flows` flows moves. `false`: too many have.
    pub(super) fn take(&mut self, now: Instant, flows: usize) -> bool {
        let rate = u32::try_from(flows.max(RATE_MIN)).unwrap_or(u32::MAX);
        let at = self.at.map_or(now, |at| at.max(now));
        let within = at < now + SAVED;
        if within {
            self.at = Some(at + Duration::from_secs(1) / rate);
        }
        within
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of 10 000 moves are taken at once, and how many a second later.
    fn taken(flows: usize) -> [usize; 2] {
        let (mut pace, now) = (Pace::default(), Instant::now());
        [0, 1].map(|second| {
            let now = now + Duration::from_secs(second);
            (0..10_000).filter(|_| pace.take(now, flows)).count()
        })
    }

    #[test]
    fn all_flows_may_move_eight_times_at_once_and_once_a_second() {
        assert_eq!(taken(1), [256, 32]);
        assert_eq!(taken(RATE_MIN), [256, 32]);
        assert_eq!(taken(1000), [8000, 1000]);
    }
}
