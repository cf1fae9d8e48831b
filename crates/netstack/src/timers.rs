//! The deadlines of the flows.
//!
//! A flow's deadline moves with every packet, mostly into the future. The heap is updated only when a deadline moves
//! closer. An entry that comes up too early is queued again with the current deadline.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<Entry>>,
    tickets: u64,
}

/// A queued deadline of a flow, ordered by time. The ticket identifies the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    at: Instant,
    ticket: u64,
    pub(crate) index: usize,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FlowAlarm {
    deadline: Option<Instant>,
    queued: Option<Entry>,
}

impl Timers {
    pub(crate) fn set(&mut self, index: usize, alarm: &mut FlowAlarm, deadline: Option<Instant>) {
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

    /// Returns whether the entry is current for the flow that `alarm` belongs to, and the flow's deadline has passed.
    /// If the deadline is later, queues it again.
    pub(crate) fn is_due(&mut self, alarm: &mut FlowAlarm, entry: Entry, now: Instant) -> bool {
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

    /// Returns a time that is not after the nearest deadline.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }

    /// Removes outdated entries once there are many. `alarm` returns the alarm of a flow.
    pub(crate) fn remove_outdated(
        &mut self,
        flows: usize,
        alarm: impl Fn(usize) -> Option<FlowAlarm>,
    ) {
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

/// Number of outdated entries to tolerate; chosen arbitrarily, so that removing them is rare.
const SLACK: usize = 1024;
