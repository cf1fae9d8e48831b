//! Deadlines by key, ordered by time.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// A deadline that is handled later than this passed while the process, or its host, slept.
const ASLEEP: Duration = Duration::from_secs(1);

/// Returns whether the process, or its host, was asleep when the deadline `due` passed. Nothing could arrive in that
/// time, so whatever was waited for may still come.
pub fn passed_asleep(due: Instant, now: Instant) -> bool {
    now.saturating_duration_since(due) > ASLEEP
}

/// A set of deadlines by key, with fast access to the earliest.
#[derive(Debug)]
pub struct Deadlines<K> {
    queue: BTreeSet<(Instant, K)>,
}

impl<K> Default for Deadlines<K> {
    fn default() -> Self {
        Self {
            queue: BTreeSet::new(),
        }
    }
}

impl<K: Ord + Copy> Deadlines<K> {
    /// Moves the deadline of `key` from `*old` to `new` and stores `new` in `*old`. The caller keeps `old` between
    /// calls.
    pub fn set(&mut self, key: K, old: &mut Option<Instant>, new: Option<Instant>) {
        if *old == new {
            return;
        }
        if let Some(old) = old.take() {
            self.queue.remove(&(old, key));
        }
        if let Some(new) = new {
            self.queue.insert((new, key));
        }
        *old = new;
    }

    /// Returns how many keys have a deadline.
    pub fn count(&self) -> usize {
        self.queue.len()
    }

    /// Returns the earliest deadline.
    pub fn next(&self) -> Option<Instant> {
        self.queue.first().map(|&(at, _)| at)
    }

    /// Removes one key whose deadline is at or before `now`, and returns it. The caller must clear its copy of the
    /// deadline.
    pub fn pop_due(&mut self, now: Instant) -> Option<K> {
        let &(at, key) = self.queue.first()?;
        if at > now {
            return None;
        }
        self.queue.pop_first();
        Some(key)
    }
}
