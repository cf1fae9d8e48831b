//! Sources of datagrams, or targets of an association, whose flows have not ended well (PROTOCOL UDP-2).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Number of sources that are remembered: as many as have flows.
const MAX: usize = 1024;

/// Time for which datagrams of a source are dropped whose flow was refused, or has failed. A program that sends on and on
/// would otherwise open a flow in each round trip.
const REFUSED: Duration = Duration::from_secs(1);

/// The sources, each with the time at which it may have another flow.
#[derive(Debug)]
pub(crate) struct RefusedSources<K>(BTreeMap<K, Instant>);

impl<K> Default for RefusedSources<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord> RefusedSources<K> {
    pub(crate) fn insert(&mut self, now: Instant, source: K) {
        if self.0.len() >= MAX {
            self.0.retain(|_, until| *until > now);
        }
        if self.0.len() < MAX {
            self.0.insert(source, now + REFUSED);
        }
    }

    /// Returns whether the source may not have a flow now.
    pub(crate) fn contains(&mut self, now: Instant, source: &K) -> bool {
        let until = self.0.get(source);
        let contains = until.is_some_and(|until| *until > now);
        if until.is_some() && !contains {
            self.0.remove(source);
        }
        contains
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_source_waits_for_a_second() {
        let now = Instant::now();
        let mut refused = RefusedSources::default();
        refused.insert(now, 1);
        assert!(refused.contains(now + REFUSED / 2, &1));
        assert!(!refused.contains(now + REFUSED / 2, &2));
        assert!(!refused.contains(now + REFUSED, &1));
        for source in 0..3000 {
            refused.insert(now, source);
        }
        assert_eq!(refused.0.len(), MAX);
        refused.insert(now + REFUSED, 1);
        assert_eq!(refused.0.len(), 1);
    }
}
