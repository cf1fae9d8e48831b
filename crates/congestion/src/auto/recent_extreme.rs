//! The extreme value of the current time span and of the span before it.

use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecentExtreme {
    now: Option<f64>,
    before: Option<f64>,
    since: Option<Instant>,
}

impl RecentExtreme {
    /// Adds `value` to the extreme that `pick` selects. A span lasts for `age`.
    pub(super) fn add(
        &mut self,
        now: Instant,
        value: f64,
        age: Duration,
        pick: fn(f64, f64) -> f64,
    ) {
        let since = *self.since.get_or_insert(now);
        if now.saturating_duration_since(since) > age {
            self.before = self.now.take();
            self.since = Some(now);
        }
        self.now = Some(self.now.map_or(value, |extreme| pick(extreme, value)));
    }

    pub(super) fn get(&self, pick: fn(f64, f64) -> f64) -> Option<f64> {
        self.now.into_iter().chain(self.before).reduce(pick)
    }

    pub(super) fn forget(&mut self) {
        self.now = None;
        self.before = None;
    }
}
