//! How long the peer may owe something without giving any of it.

use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Owed {
    /// Whether somebody waits for it.
    pub(crate) some: bool,
    /// What has been given of it so far.
    pub(crate) given: u64,
}

/// See the module documentation. The time runs from when something was given last, or from the first that was owed after all had
/// been given; whoever sleeps or wakes meanwhile.
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

    /// How long the peer may still be silent at `now`; nothing where it owes nothing.
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
            "an answer, and more to come"
        );
        assert_eq!(
            left(12, Some(8), Some(3)),
            Some(7),
            "room is owed since later"
        );
        assert_eq!(left(18, Some(9), Some(3)), Some(4), "and earlier now");
        assert_eq!(left(23, Some(9), Some(3)), Some(0));
        assert_eq!(left(40, Some(9), Some(3)), Some(0), "no less than that");
        assert_eq!(left(41, None, None), None);
        assert_eq!(left(60, Some(7), None), Some(10), "all was given before");
    }
}
