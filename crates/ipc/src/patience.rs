//! Limits how long the peer may owe answers or room without making progress.

use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Owed {
    /// True if the peer owes anything.
    pub(crate) some: bool,
    /// Total number of items that the peer has provided so far.
    pub(crate) given: u64,
}

/// Measures how long the peer has owed something. The time runs from the last item that the peer provided. If nothing
/// was owed after that, it runs from the first item that became owed. Sleeping and waking up do not affect it.
#[derive(Debug)]
pub(crate) struct Patience {
    pub(crate) limit: Duration,
    answers: Debt,
    room: Debt,
}

#[derive(Debug, Default)]
struct Debt {
    since: Option<Instant>,
    given: u64,
}

impl Patience {
    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            limit,
            answers: Debt::default(),
            room: Debt::default(),
        }
    }

    /// Returns for how long the peer may still be silent at `now`, or `None` if it owes nothing.
    pub(crate) fn left(&mut self, answers: Owed, room: Owed, now: Instant) -> Option<Duration> {
        let since = [self.answers.since(answers, now), self.room.since(room, now)];
        let first = since.into_iter().flatten().min()?;
        Some(
            self.limit
                .saturating_sub(now.saturating_duration_since(first)),
        )
    }
}

impl Debt {
    fn since(&mut self, owed: Owed, now: Instant) -> Option<Instant> {
        let gave = std::mem::replace(&mut self.given, owed.given) != owed.given;
        self.since = match self.since {
            _ if !owed.some => None,
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
    fn the_time_runs_from_the_last_that_was_given() {
        let start = Instant::now();
        let mut patience = Patience::new(Duration::from_secs(10));
        let mut left = |at: u64, answers: Option<u64>, room: Option<u64>| {
            let owed = |given: Option<u64>| Owed {
                some: given.is_some(),
                given: given.unwrap_or(7),
            };
            let now = start + Duration::from_secs(at);
            let left = patience.left(owed(answers), owed(room), now);
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
