//! When flows are to be looked at again.
//!
//! A flow has a deadline that moves with every packet, mostly away. The heap is told of those that come
//! nearer only; an entry that comes up too early is put back with the deadline of then.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<Entry>>,
    tickets: u64,
}

/// When which flow comes up: ordered by time, and known by its ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    at: Instant,
    ticket: u64,
    pub(crate) index: usize,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Alarm {
    deadline: Option<Instant>,
    queued: Option<Entry>,
}

impl Timers {
    pub(crate) fn set(&mut self, index: usize, alarm: &mut Alarm, deadline: Option<Instant>) {
        alarm.deadline = deadline;
        if let Some(at) = deadline
            && alarm.queued.is_none_or(|queued| at < queued.at)
        {
            self.tickets += 1;
            let ticket = self.tickets;
            let entry = Entry { at, ticket, index };
            alarm.queued = Some(entry);
            self.heap.push(Reverse(entry));
        }
    }

    /// Whether this entry stands for the flow that `alarm` belongs to, and the flow's deadline has come.
    pub(crate) fn is_due(&mut self, alarm: &mut Alarm, entry: Entry, now: Instant) -> bool {
        if alarm.queued != Some(entry) {
            return false;
        }
        alarm.queued = None;
        match alarm.deadline {
            Some(at) if at <= now => {
                alarm.deadline = None;
                true
            }
            later => {
                self.set(entry.index, alarm, later);
                false
            }
        }
    }

    pub(crate) fn pop(&mut self, now: Instant) -> Option<Entry> {
        let Reverse(entry) = self.heap.peek()?;
        if entry.at > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry)
    }

    /// Not after the nearest deadline.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }

    /// Forgets entries that stand for nobody any more, where they have become many. `alarm` finds a flow's.
    pub(crate) fn tidy(&mut self, flows: usize, alarm: impl Fn(usize) -> Option<Alarm>) {
        if self.heap.len() > 2 * flows + SLACK {
            self.heap.retain(|Reverse(entry)| {
                alarm(entry.index).is_some_and(|alarm| alarm.queued == Some(*entry))
            });
        }
    }

    #[cfg(any(test, feature = "check"))]
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }
}

/// Entries beyond what is needed; chosen arbitrarily, so that looking for them is rare.
const SLACK: usize = 1024;
