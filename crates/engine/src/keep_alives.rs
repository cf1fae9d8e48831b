//! Schedule of the keep-alives to idle peers.
//!
//! A keep-alive may be sent a little early. When one is due, those that are due soon are sent in the same call, so that
//! one wake-up serves many peers.

use std::time::{Duration, Instant};

use quictun_flow::Deadlines;

#[derive(Debug)]
pub(crate) struct KeepAlives<K> {
    deadlines: Deadlines<K>,
    /// Time by which a keep-alive may be sent early.
    early: Duration,
    /// Time of the latest call in which a keep-alive was due.
    due: Option<Instant>,
}

impl<K: Ord + Copy> KeepAlives<K> {
    pub(crate) fn new(early: Duration) -> Self {
        Self {
            deadlines: Deadlines::default(),
            early,
            due: None,
        }
    }

    /// Moves the keep-alive to `key` from `old` to `new`. The caller keeps the value that it has set last.
    pub(crate) fn set(&mut self, key: K, old: &mut Option<Instant>, new: Option<Instant>) {
        self.deadlines.set(key, old, new);
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    /// Removes and returns a peer whose keep-alive is due now. The caller must clear its copy of the time.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<K> {
        if self.next().is_some_and(|at| at <= now) {
            self.due = Some(now);
        }
        let early = if self.due == Some(now) {
            self.early
        } else {
            Duration::ZERO
        };
        self.deadlines.pop_due(now + early)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keep_alives_that_are_due_soon_are_sent_with_the_first() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let mut keep_alives = KeepAlives::new(ms(250));
        for (key, at) in [(1, ms(2000)), (2, ms(2100)), (3, ms(2250)), (4, ms(2251))] {
            keep_alives.set(key, &mut None, Some(start + at));
        }
        assert_eq!(keep_alives.pop_due(start + ms(1999)), None, "none is due");
        let now = start + ms(2000);
        let asked: Vec<_> = std::iter::from_fn(|| keep_alives.pop_due(now)).collect();
        assert_eq!(asked, [1, 2, 3]);
        assert_eq!(keep_alives.pop_due(start + ms(2100)), None);
        assert_eq!(keep_alives.next(), Some(start + ms(2251)));
    }
}
