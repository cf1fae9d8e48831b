//! Meters of what a peer may do at no cost of its own, but not without end.

use std::time::{Duration, Instant};

/// A number of things that may happen at once, which comes back with the time.
#[derive(Debug)]
pub(crate) struct FloodMeter {
    left: u32,
    burst: u32,
    /// Time in which one comes back.
    every: Duration,
    since: Option<Instant>,
}

impl FloodMeter {
    pub(crate) fn new(burst: u32, every: Duration) -> Self {
        Self {
            left: burst,
            burst,
            every,
            since: None,
        }
    }

    /// Notes one. Returns false if it is too many.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let back = now.saturating_duration_since(since).as_nanos() / self.every.as_nanos();
        let back = u32::try_from(back).unwrap_or(u32::MAX);
        self.left = self.left.saturating_add(back).min(self.burst);
        if back > 0 || self.left == self.burst {
            self.since = Some(now);
        }
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_comes_back_one_by_one() {
        let every = Duration::from_millis(50);
        let (mut meter, mut now) = (FloodMeter::new(3, every), Instant::now());
        let mut all = |now| std::iter::from_fn(|| meter.take(now).then_some(())).count();
        assert_eq!(all(now), 3);
        now += every;
        assert_eq!(all(now), 1);
        now += 2 * every;
        assert_eq!(all(now), 2);
        now += 100 * every;
        assert_eq!(all(now), 3);
    }
}
