//! Watches how the data of a program advances, and notes the times in which it does not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::load::measured::pause;

/// The interval between two looks at a counter: the resolution of all times.
const PERIOD: Duration = Duration::from_millis(5);

/// The shortest time without progress that is noted.
const NOTED: Duration = Duration::from_millis(50);

/// Returns how far the data of one direction has come; `None` at its end.
pub(super) type ProgressCounter = Box<dyn FnMut() -> Result<Option<u64>> + Send>;

/// A running watch of all directions of a program.
pub(super) struct ProgressWatch {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<Vec<Standstill>>>>,
}

/// A time without progress in one direction.
#[derive(Clone, Copy, Debug)]
struct Standstill {
    from: Instant,
    until: Instant,
}

/// The times without progress of a program.
#[derive(Clone, Debug)]
pub(super) struct Standstills(Vec<Standstill>);

impl ProgressWatch {
    pub(super) fn start(counters: Vec<ProgressCounter>) -> Self {
        let over = Arc::<AtomicBool>::default();
        let begin = |mut counter: ProgressCounter| {
            let over = over.clone();
            std::thread::spawn(move || watch(&mut *counter, &over))
        };
        let threads = counters.into_iter().map(begin).collect();
        Self { over, threads }
    }

    /// Ends the watch. A direction that stands still at that moment does so until that moment.
    pub(super) fn end(self) -> Result<Standstills> {
        self.over.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for thread in self.threads {
            let found = thread.join();
            all.extend(found.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok(Standstills(all))
    }
}

fn watch(
    counter: &mut dyn FnMut() -> Result<Option<u64>>,
    over: &AtomicBool,
) -> Result<Vec<Standstill>> {
    let mut noted = Vec::new();
    let mut note = |from: Instant, until: Instant| {
        if until - from >= NOTED {
            noted.push(Standstill { from, until });
        }
    };
    let mut last = (counter()?, Instant::now());
    while !over.load(Ordering::Relaxed) {
        pause(PERIOD);
        let (found, now) = (counter().context("looking for progress")?, Instant::now());
        if found != last.0 {
            note(last.1, now);
            last = (found, now);
        }
        if found.is_none() {
            return Ok(noted);
        }
    }
    note(last.1, Instant::now());
    Ok(noted)
}

impl Standstills {
    /// Returns the longest time without progress that lasted beyond `since`.
    pub(super) fn longest_after(&self, since: Instant) -> Duration {
        let after = self.0.iter().filter(|it| it.until > since);
        after.map(|it| it.until - it.from).max().unwrap_or_default()
    }

    /// Returns the longest time without progress that lasted beyond `since` and began before `until`.
    pub(super) fn longest_within(&self, since: Instant, until: Instant) -> Duration {
        let begun = self.0.iter().filter(|it| it.from < until).copied();
        Self(begun.collect()).longest_after(since)
    }

    /// Returns the longest time without progress that began after `since`.
    pub(super) fn longest_begun_after(&self, since: Instant) -> Duration {
        let begun = self.0.iter().filter(|it| it.from > since);
        begun.map(|it| it.until - it.from).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_time_without_progress_counts_from_the_last_advance() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let still = |from, until| Standstill {
            from: at(from),
            until: at(until),
        };
        let all = Standstills(vec![still(0, 900), still(1000, 1700), still(5000, 5400)]);
        let ms = Duration::from_millis;
        assert_eq!(all.longest_after(at(900)), ms(700), "the first one is over");
        assert_eq!(all.longest_after(at(1500)), ms(700), "it has begun before");
        assert_eq!(all.longest_begun_after(at(1500)), ms(400));
        assert_eq!(all.longest_within(at(1500), at(2000)), ms(700));
        assert_eq!(all.longest_within(at(1800), at(5000)), Duration::ZERO);
        assert_eq!(all.longest_after(at(6000)), Duration::ZERO);
    }

    #[test]
    fn a_direction_that_stands_still_is_noted_until_it_ends() -> Result<()> {
        let start = Instant::now();
        let counter = move || {
            let elapsed = start.elapsed();
            Ok((elapsed < Duration::from_millis(400)).then_some(0))
        };
        let found = watch(&mut { counter }, &AtomicBool::new(false))?;
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].until - found[0].from >= Duration::from_millis(390));
        Ok(())
    }
}
