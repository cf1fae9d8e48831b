//! Steps of handshakes, which wait until there is time for them.
//!
//! A step takes a hundred times as long as another datagram. In a flood, established connections would wait in the
//! socket's buffer behind all of it. Instead, the packets of a `ClientHello` wait here: the engine takes in everything
//! that has arrived, answers established connections, and makes one step in each turn. Sources take turns. If all places
//! are taken, the source with the most of them loses its latest packet, so that a source with few packets loses none.

use std::collections::{BTreeMap, VecDeque};

use crate::strangers::SourcePrefix;

/// Bounds for the number of packets that may wait.
const MIN: usize = 16;
const MAX: usize = 512;

#[derive(Debug)]
pub(crate) struct HandshakeQueue<T> {
    most: usize,
    sources: BTreeMap<SourcePrefix, VecDeque<T>>,
    /// Sources that have packets, in the order of their turns.
    turns: VecDeque<SourcePrefix>,
    total: usize,
}

impl<T> HandshakeQueue<T> {
    /// Creates an empty queue for a server with this many places for handshakes. More packets would only take places
    /// from each other.
    pub(crate) fn new(places: usize) -> Self {
        Self {
            most: places.clamp(MIN, MAX),
            sources: BTreeMap::new(),
            turns: VecDeque::new(),
            total: 0,
        }
    }

    pub(crate) fn most(&self) -> usize {
        self.most
    }

    pub(crate) fn len(&self) -> usize {
        self.total
    }

    /// Appends a packet. Returns the packet that is dropped for it, if any.
    pub(crate) fn push(&mut self, source: SourcePrefix, step: T) -> Option<T> {
        let places = self.sources.entry(source).or_default();
        if places.is_empty() {
            self.turns.push_back(source);
        }
        places.push_back(step);
        self.total += 1;
        if self.total <= self.most {
            return None;
        }
        let lengths = self.sources.iter();
        let (&largest, _) = lengths.max_by_key(|(_, places)| places.len())?;
        self.take(largest, VecDeque::pop_back)
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        let source = *self.turns.front()?;
        self.turns.rotate_left(1);
        self.take(source, VecDeque::pop_front)
    }

    fn take(
        &mut self,
        source: SourcePrefix,
        take: impl FnOnce(&mut VecDeque<T>) -> Option<T>,
    ) -> Option<T> {
        let places = self.sources.get_mut(&source)?;
        let taken = take(places);
        if places.is_empty() {
            self.sources.remove(&source);
            self.turns.retain(|&other| other != source);
        }
        self.total -= usize::from(taken.is_some());
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(number: u8) -> SourcePrefix {
        SourcePrefix::V4([192, 0, 2, number])
    }

    #[test]
    fn sources_take_turns() {
        let mut steps = HandshakeQueue::new(MIN);
        for (number, step) in [(1, "a"), (1, "b"), (1, "c"), (2, "d"), (3, "e"), (3, "f")] {
            assert_eq!(steps.push(source(number), step), None);
        }
        let order: Vec<_> = std::iter::from_fn(|| steps.pop()).collect();
        assert_eq!(order, ["a", "d", "e", "b", "f", "c"]);
        assert_eq!(steps.len(), 0);
    }

    #[test]
    fn a_flood_from_one_source_loses_its_own_packets() {
        let mut steps = HandshakeQueue::new(MIN);
        assert_eq!(steps.push(source(1), 1), None);
        for number in 10..10 + 2 * MIN {
            let lost = steps.push(source(2), number);
            assert_ne!(lost, Some(1));
            assert!(steps.len() <= MIN);
        }
        assert_eq!(steps.push(source(3), 3), Some(9 + MIN - 1));
        let first: Vec<_> = (0..3).filter_map(|_| steps.pop()).collect();
        assert_eq!(first, [1, 10, 3]);
    }
}
