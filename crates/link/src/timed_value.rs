//! A value that changes at times known in advance.

/// The current value and its future values. Queries must come at times that never go back.
#[derive(Clone, Debug)]
pub(crate) struct TimedValue<T> {
    value: T,
    /// Times and values of the future changes, the next one last.
    later: Vec<(u64, T)>,
}

impl<T: Copy> TimedValue<T> {
    /// Creates a schedule that holds `value` until the first of `changes`, which are ordered by time.
    pub(crate) fn new(value: T, changes: impl Iterator<Item = (u64, T)>) -> Self {
        let mut later: Vec<(u64, T)> = changes.collect();
        // `LinkConfig::check` rejects an unordered list, but not every caller runs it.
        later.sort_by_key(|&(at, _)| at);
        later.reverse();
        Self { value, later }
    }

    pub(crate) fn at(&mut self, time: u64) -> T {
        while let Some(&(at, value)) = self.later.last()
            && at <= time
        {
            self.value = value;
            self.later.pop();
        }
        self.value
    }

    pub(crate) fn next_change(&self) -> Option<u64> {
        self.later.last().map(|&(at, _)| at)
    }
}

/// Returns a schedule that is true within any of `windows`; the start of a window belongs to it, its end does not.
pub(crate) fn in_windows(windows: impl Iterator<Item = (u64, u64)>) -> TimedValue<bool> {
    let mut windows: Vec<(u64, u64)> = windows.filter(|(from, until)| from < until).collect();
    windows.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::with_capacity(windows.len());
    for (from, until) in windows {
        match merged.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(until),
            _ => merged.push((from, until)),
        }
    }
    let edges = merged
        .into_iter()
        .flat_map(|(from, until)| [(from, true), (until, false)]);
    TimedValue::new(false, edges)
}
