//! Limits how often changes of the network make a client dial at once.

use std::time::{Duration, Instant};

/// Minimum time between two immediate dials as long as no connection results. An interface that goes up and down
/// reports several changes a second, and each dial costs the server a handshake.
const PAUSE: Duration = Duration::from_secs(2);

/// Decides when to dial after changes of the network. The first change counts at once, and the last of several changes
/// counts, too.
#[derive(Debug, Default)]
pub(super) struct RedialLimiter {
    /// True if the network has changed since the last dial.
    wanted: bool,
    not_before: Option<Instant>,
}

impl RedialLimiter {
    /// Records a change of the network. [`RedialLimiter::is_due`] tells when to dial.
    pub(super) fn handle_change(&mut self, now: Instant) {
        self.wanted = true;
        self.not_before.get_or_insert(now);
    }

    /// Resets the state after a connection has come up, which proves that the current network works.
    pub(super) fn handle_success(&mut self) {
        *self = Self::default();
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.not_before.filter(|_| self.wanted)
    }

    /// Returns whether to dial now. Each change counts once.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let due = self.wanted && self.not_before.is_none_or(|at| at <= now);
        if due {
            self.wanted = false;
            self.not_before = Some(now + PAUSE);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Reports a change every 200 ms for ten seconds. Returns how many of them cause a dial.
    fn count_dials(limiter: &mut RedialLimiter, from: Instant) -> usize {
        let changes = (0..50).map(|number| from + number * 200 * MS);
        let due = changes.filter(|&now| {
            limiter.handle_change(now);
            limiter.is_due(now)
        });
        due.count()
    }

    #[test]
    fn the_first_change_counts_at_once_and_then_one_in_two_seconds_the_last_one_too() {
        let (mut limiter, now) = (RedialLimiter::default(), Instant::now());
        assert!(!limiter.is_due(now), "nothing has changed");
        assert_eq!(count_dials(&mut limiter, now), 5);
        let last = limiter.next_timeout().expect("the last change waits");
        let before = last.checked_sub(MS).expect("later than the first one");
        assert!(!limiter.is_due(before));
        assert!(limiter.is_due(last));
        assert_eq!(limiter.next_timeout(), None);
        assert!(!limiter.is_due(last + 10 * PAUSE), "no change since");
    }

    #[test]
    fn after_a_connection_has_come_up_the_next_change_counts_at_once() {
        let (mut limiter, now) = (RedialLimiter::default(), Instant::now());
        limiter.handle_change(now);
        assert!(limiter.is_due(now));
        limiter.handle_success();
        limiter.handle_change(now + MS);
        assert!(limiter.is_due(now + MS));
    }
}
