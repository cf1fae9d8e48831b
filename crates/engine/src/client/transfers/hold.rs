//! A time in which nothing is tried again, because it has just failed.

use std::time::{Duration, Instant};

pub(super) const HOLD: Duration = Duration::from_secs(30);
pub(super) const HOLD_MAX: Duration = Duration::from_hours(1);

/// [`HOLD`] after the first failure. Each further one doubles it up to [`HOLD_MAX`], unless the hold before it ended
/// longer ago than that.
#[derive(Debug, Default)]
pub(super) struct Hold {
    length: Duration,
    until: Option<Instant>,
}

impl Hold {
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now >= until)
    }

    pub(super) fn begin(&mut self, now: Instant) {
        let lately = self.until.is_some_and(|until| now < until + HOLD_MAX);
        self.length = if lately {
            (self.length * 2).min(HOLD_MAX)
        } else {
            HOLD
        };
        self.until = Some(now + self.length);
    }
}
