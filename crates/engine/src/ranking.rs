//! Counts by holder, and the holder with the most, without a search over all holders.

use std::collections::{BTreeMap, BTreeSet};

/// A count for each holder. Holders with a count of zero are not stored.
#[derive(Debug)]
pub(crate) struct Ranking<K> {
    counts: BTreeMap<K, usize>,
    by_count: BTreeSet<(usize, K)>,
    total: usize,
}

impl<K> Default for Ranking<K> {
    fn default() -> Self {
        Self {
            counts: BTreeMap::new(),
            by_count: BTreeSet::new(),
            total: 0,
        }
    }
}

impl<K: Clone + Ord> Ranking<K> {
    /// Returns the sum of all counts.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    pub(crate) fn of(&self, holder: &K) -> usize {
        self.counts.get(holder).copied().unwrap_or(0)
    }

    /// Returns the holder with the highest count, and its count.
    pub(crate) fn largest(&self) -> Option<(&K, usize)> {
        self.by_count.last().map(|(count, holder)| (holder, *count))
    }

    pub(crate) fn add(&mut self, holder: &K) {
        let before = self.of(holder);
        self.set(holder, before, before + 1);
        self.total += 1;
    }

    /// Takes one from the holder's count. Does nothing if it is zero.
    pub(crate) fn subtract(&mut self, holder: &K) {
        let before = self.of(holder);
        if before > 0 {
            self.set(holder, before, before - 1);
            self.total -= 1;
        }
    }

    fn set(&mut self, holder: &K, before: usize, after: usize) {
        let found = self.by_count.take(&(before, holder.clone()));
        let holder = found.map_or_else(|| holder.clone(), |(_, holder)| holder);
        if after == 0 {
            self.counts.remove(&holder);
            return;
        }
        match self.counts.get_mut(&holder) {
            Some(count) => *count = after,
            None => {
                self.counts.insert(holder.clone(), after);
            }
        }
        self.by_count.insert((after, holder));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_holder_is_known_after_every_change() {
        let mut ranking = Ranking::default();
        assert_eq!(ranking.largest(), None);
        for holder in ["a", "b", "b"] {
            ranking.add(&holder);
        }
        assert_eq!((ranking.largest(), ranking.total()), (Some((&"b", 2)), 3));
        ranking.subtract(&"b");
        ranking.add(&"a");
        assert_eq!(ranking.largest(), Some((&"a", 2)));
        for holder in ["a", "a", "a", "b", "c"] {
            ranking.subtract(&holder);
        }
        assert_eq!((ranking.largest(), ranking.total()), (None, 0));
        assert!(ranking.counts.is_empty());
    }
}
