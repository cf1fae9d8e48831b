//! Packets under way, in the order of their arrival.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::packet::Packet;

/// Packets under way. The heap orders small keys; the packets stay where they are until they arrive.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    keys: BinaryHeap<Reverse<Key>>,
    places: Vec<Option<Arrival>>,
    free: Vec<u32>,
    /// Departures so far: packets that arrive at one instant do so in the order in which they left.
    sequence: u64,
}

/// A packet that arrives at a node.
#[derive(Debug)]
pub(crate) struct Arrival {
    /// The next node on its way.
    pub(crate) node: usize,
    /// The host it is for.
    pub(crate) host: usize,
    pub(crate) packet: Packet,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    /// Nanoseconds since the network was made.
    at: u64,
    sequence: u64,
    place: u32,
}

impl Agenda {
    /// Notes that a packet arrives at `at`.
    pub(crate) fn push(&mut self, at: u64, arrival: Arrival) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            u32::try_from(self.places.len() - 1).expect("invariant: memory holds fewer packets")
        });
        self.places[place as usize] = Some(arrival);
        self.sequence += 1;
        self.keys.push(Reverse(Key {
            at,
            sequence: self.sequence,
            place,
        }));
    }

    /// When the next packet arrives.
    pub(crate) fn next(&self) -> Option<u64> {
        self.keys.peek().map(|Reverse(key)| key.at)
    }

    /// The next packet that arrives at `now` or before.
    pub(crate) fn pop_due(&mut self, now: u64) -> Option<Arrival> {
        if self.next()? > now {
            return None;
        }
        let Reverse(key) = self.keys.pop()?;
        self.free.push(key.place);
        self.places[key.place as usize].take()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}
