//! Limits how long the peer may owe answers or room without making progress.

use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Outstanding {
    /// True if the peer owes anything.
    pub(crate) any: bool,
    /// Total number of items that the peer has provided so far.
    pub(crate) provided: u64,
}

/// Measures how long the peer has owed something. The time runs from the last item that the peer provided. If nothing
/// was owed after that, it runs from the first item that became owed. Sleeping and waking up do not affect it.
#[derive(Debug)]
pub(crate) struct SilenceLimit {
    pub(crate) limit: Duration,
    answers: OutstandingTimer,
    room: OutstandingTimer,
}

#[derive(Debug, Default)]
struct OutstandingTimer {
    since: Option<Instant>,
    provided: u64,
}

impl SilenceLimit {
    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            limit,
            answers: OutstandingTimer::default(),
            room: OutstandingTimer::default(),
        }
    }

    /// Returns for how long the peer may still be silent at `now`, or `None` if it owes nothing.
    pub(crate) fn left(
        &mut self,
        answers: Outstanding,
        room: Outstanding,
        now: Instant,
    ) -> Option<Duration> {
        let since = [self.answers.since(answers, now), self.room.since(room, now)];
        let first = since.into_iter().flatten().min()?;
        Some(
            self.limit
                .saturating_sub(now.saturating_duration_since(first)),
        )
    }
}

impl OutstandingTimer {
    fn since(&mut self, owed: Outstanding, now: Instant) -> Option<Instant> {
        let gave = std::mem::replace(&mut self.provided, owed.provided) != owed.provided;
        self.since = match self.since {
            _ if !owed.any => None,
            Some(since) if !gave => Some(since),
            _ => Some(now),
        };
        self.since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_runs_from_the_last_item() {
        let start = Instant::now();
        let mut limit = SilenceLimit::new(Duration::from_secs(10));
        let mut left = |at: u64, answers: Option<u64>, room: Option<u64>| {
            let owed = |provided: Option<u64>| Outstanding {
                any: provided.is_some(),
                provided: provided.unwrap_or(7),
            };
            let now = start + Duration::from_secs(at);
            let left = limit.left(owed(answers), owed(room), now);
            left.map(|left| left.as_secs())
        };
        assert_eq!(left(0, None, None), None);
        assert_eq!(left(5, Some(7), None), Some(10), "the first call");
        assert_eq!(left(8, Some(7), None), Some(7));
        assert_eq!(
            left(9, Some(8), None),
            Some(10),
            "an answer came, another is owed"
        );
        assert_eq!(
            left(12, Some(8), Some(3)),
            Some(7),
            "the older of the debts counts"
        );
        assert_eq!(left(18, Some(9), Some(3)), Some(4), "room is now older");
        assert_eq!(left(23, Some(9), Some(3)), Some(0));
        assert_eq!(left(40, Some(9), Some(3)), Some(0), "never below zero");
        assert_eq!(left(41, None, None), None);
        assert_eq!(left(60, Some(7), None), Some(10), "nothing was owed before");
    }
}
