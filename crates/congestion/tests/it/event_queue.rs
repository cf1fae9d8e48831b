//! A queue of events, in the order in which they happen.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, VecDeque};

/// Time in nanoseconds, and the number of events added before. Events at the same time happen in the order in which
/// they were added.
type EventOrder = (u64, u64);

/// Events to come. The events of one lane mostly happen in the order in which they are added, so only the first event
/// of each lane has to be compared with others.
#[derive(Debug)]
pub(crate) struct EventQueue<E> {
    added: u64,
    /// The first event of each lane that is not empty, and the events that were added out of order.
    firsts: BinaryHeap<Reverse<(EventOrder, EventLocation)>>,
    lanes: Vec<VecDeque<(EventOrder, E)>>,
    unordered: Vec<Option<E>>,
    vacant: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EventLocation {
    Lane(usize),
    Unordered(usize),
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        Self {
            added: 0,
            firsts: BinaryHeap::new(),
            lanes: Vec::new(),
            unordered: Vec::new(),
            vacant: Vec::new(),
        }
    }
}

impl<E: Copy> EventQueue<E> {
    pub(crate) fn push(&mut self, time: u64, lane: usize, event: E) {
        self.added += 1;
        let key = (time, self.added);
        while self.lanes.len() <= lane {
            self.lanes.push(VecDeque::new());
        }
        match self.lanes[lane].back() {
            Some((last, _)) if *last > key => {
                let at = self.vacant.pop().unwrap_or_else(|| {
                    self.unordered.push(None);
                    self.unordered.len() - 1
                });
                self.unordered[at] = Some(event);
                self.firsts
                    .push(Reverse((key, EventLocation::Unordered(at))));
                return;
            }
            Some(_) => {}
            None => self.firsts.push(Reverse((key, EventLocation::Lane(lane)))),
        }
        self.lanes[lane].push_back((key, event));
    }

    /// Removes and returns the next event, if it happens at or before `end`.
    pub(crate) fn pop_until(&mut self, end: u64) -> Option<(u64, E)> {
        let mut first = self.firsts.peek_mut()?;
        let Reverse(((time, _), place)) = *first;
        if time > end {
            return None;
        }
        let event = match place {
            EventLocation::Lane(lane) => {
                let lane_events = &mut self.lanes[lane];
                let (_, event) = lane_events.pop_front()?;
                if let Some((key, _)) = lane_events.front() {
                    *first = Reverse((*key, place));
                } else {
                    PeekMut::pop(first);
                }
                event
            }
            EventLocation::Unordered(at) => {
                PeekMut::pop(first);
                self.vacant.push(at);
                self.unordered[at].take()?
            }
        };
        Some((time, event))
    }
}
