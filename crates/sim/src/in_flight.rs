//! Packets in flight on the links, ordered by arrival time.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use crate::packet::IpPacket;

/// The packets in flight. A link delivers nearly all its packets in order, so each link has one queue, and only the
/// heads of the queues compete to be next. The few packets that arrive out of order are in `out_of_order`.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    queues: Vec<VecDeque<(ArrivalOrder, Arrival)>>,
    heads: BinaryHeap<Reverse<(ArrivalOrder, usize)>>,
    out_of_order: BTreeMap<ArrivalOrder, Arrival>,
    sequence: u64,
}

#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) node: usize,
    /// The packet's destination host.
    pub(crate) host: usize,
    pub(crate) packet: IpPacket,
}

/// The order of arrivals. Packets with the same arrival time keep the order in which they left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ArrivalOrder {
    /// Nanoseconds since the network was created.
    at: u64,
    sequence: u64,
}

impl InFlight {
    /// Schedules the arrival of a packet at time `at` over link number `link`.
    pub(crate) fn push(&mut self, link: usize, at: u64, arrival: Arrival) {
        let key = self.next_key(at);
        if self.queues.len() <= link {
            self.queues.resize_with(link + 1, VecDeque::new);
        }
        let queue = &mut self.queues[link];
        match queue.back() {
            Some((last, _)) if *last > key => {
                self.out_of_order.insert(key, arrival);
                return;
            }
            Some(_) => {}
            None => self.heads.push(Reverse((key, link))),
        }
        queue.push_back((key, arrival));
    }

    /// Schedules the arrival at time `at` of a packet that did not use a link.
    pub(crate) fn push_unlinked(&mut self, at: u64, arrival: Arrival) {
        let key = self.next_key(at);
        self.out_of_order.insert(key, arrival);
    }

    fn next_key(&mut self, at: u64) -> ArrivalOrder {
        self.sequence += 1;
        ArrivalOrder {
            at,
            sequence: self.sequence,
        }
    }

    pub(crate) fn next(&self) -> Option<u64> {
        let head = self.heads.peek().map(|Reverse((key, _))| *key);
        let out_of_order = self.out_of_order.keys().next().copied();
        [head, out_of_order]
            .into_iter()
            .flatten()
            .min()
            .map(|key| key.at)
    }

    /// Returns the next packet whose arrival time is `now` or earlier.
    pub(crate) fn pop_due(&mut self, now: u64) -> Option<Arrival> {
        let head = self.heads.peek_mut();
        if let Some(first) = self.out_of_order.first_entry()
            && head.as_ref().is_none_or(|head| first.key() < &head.0.0)
        {
            return (first.key().at <= now).then(|| first.remove());
        }
        let mut head = head.filter(|head| head.0.0.at <= now)?;
        let queue = &mut self.queues[head.0.1];
        let (_, arrival) = queue.pop_front()?;
        match queue.front() {
            Some((next, _)) => head.0.0 = *next,
            None => drop(PeekMut::pop(head)),
        }
        Some(arrival)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.heads.is_empty() && self.out_of_order.is_empty()
    }
}
