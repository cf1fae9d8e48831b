//! Batches of received datagrams that stay in memory because flows keep slices of them.
//!
//! A slice costs no copy, but it keeps a batch of up to 64 KiB in memory. The peer decides how small the slice is, so
//! the number of bytes that flows hold says little about the memory. The engine calls [`PinnedBatches::note`] whenever
//! a flow's data has moved. While the flows together keep too many batches, [`PinnedBatches::excess`] names the flow
//! that has kept some for the longest time, and the engine copies that flow's data ([`Inlet::detach`]). Data of an
//! application that keeps reading is rarely copied.
//!
//! [`Inlet::detach`]: crate::Inlet::detach

use std::collections::BTreeMap;

/// Memory of one batch, in bytes.
const BATCH: u64 = 64 * 1024;

/// The batches of one engine may take 1/`PART` of the budget, and at most `MAX` bytes.
const PART: u64 = 64;
const MAX: u64 = 4 << 20;

/// Number of batches that one flow keeps, as counted in [`PinnedBatches`].
#[derive(Clone, Copy, Debug, Default)]
pub struct PinnedByFlow {
    batches: usize,
    /// Key of the flow in `PinnedBatches::flows`. A smaller key means that the flow has kept batches for longer.
    turn: u64,
}

/// The batches of all flows of an engine. Flows are named by keys of type `K`.
#[derive(Debug)]
pub struct PinnedBatches<K> {
    batches: usize,
    most: usize,
    next: u64,
    /// The flows that keep batches, ordered by how long they have kept some, longest first.
    flows: BTreeMap<u64, K>,
}

impl<K: Copy> PinnedBatches<K> {
    /// Makes the count for a process that may hold `budget` bytes.
    pub fn new(budget: u64) -> Self {
        Self {
            batches: 0,
            most: usize::try_from((budget / PART).min(MAX) / BATCH).unwrap_or(usize::MAX),
            next: 0,
            flows: BTreeMap::new(),
        }
    }

    /// Notes that the flow `key`, whose count was `kept`, now keeps `batches`. Updates `kept`.
    pub fn note(&mut self, key: K, kept: &mut PinnedByFlow, batches: usize) {
        self.batches = self.batches - kept.batches + batches;
        if kept.batches == 0 && batches > 0 {
            kept.turn = self.next;
            self.next += 1;
            self.flows.insert(kept.turn, key);
        } else if kept.batches > 0 && batches == 0 {
            self.flows.remove(&kept.turn);
        }
        kept.batches = batches;
    }

    /// Returns the flow whose data should be copied next, if the flows keep too many batches.
    pub fn excess(&self) -> Option<K> {
        let (_, &key) = self.flows.first_key_value()?;
        (self.batches > self.most).then_some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_are_copied_longest_standing_first_until_few_batches_are_left() {
        let mut pinned = PinnedBatches::new(64 * 16 * BATCH);
        let mut kept = [PinnedByFlow::default(); 4];
        for (key, batches) in [(1, 9), (2, 7), (3, 5), (1, 8)] {
            pinned.note(key, &mut kept[key], batches);
        }
        assert_eq!(pinned.excess(), Some(1), "20 batches of at most 16");
        pinned.note(1, &mut kept[1], 0);
        assert_eq!(pinned.excess(), None, "12 batches");
        pinned.note(1, &mut kept[1], 5);
        assert_eq!(pinned.excess(), Some(2), "flow 1 is the latest now");
    }

    #[test]
    fn removed_flows_are_not_named() {
        let mut pinned = PinnedBatches::new(0);
        let mut kept = PinnedByFlow::default();
        pinned.note(7, &mut kept, 1);
        assert_eq!(pinned.excess(), Some(7));
        pinned.note(7, &mut kept, 0);
        assert_eq!((pinned.excess(), pinned.batches), (None, 0));
    }
}
