//! The tasks that wait for the same event, all of which are woken when it occurs.

use crate::schedule::{Scheduler, WakeTarget};

/// A list of waiting tasks. A task is listed once, however often it asks, and is removed when it stops waiting: whether
/// this process may sleep depends on the list.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    /// The listed wakers. Waiters that have left are marked [`WakeTarget::None`].
    waiting: Vec<WakeTarget>,
    /// Places of waiters that have left.
    free: Vec<usize>,
    /// Number of times that all waiters were woken.
    round: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct WaiterKey {
    round: u64,
    place: usize,
}

impl Waiters {
    /// Adds a waiter, or updates it if `own` is still valid.
    #[cold]
    pub(crate) fn enter(&mut self, own: Option<WaiterKey>, wake_target: WakeTarget) -> WaiterKey {
        let own = own.filter(|ticket| ticket.round == self.round);
        let place = own.map(|ticket| ticket.place).or_else(|| self.free.pop());
        let place = place.unwrap_or(self.waiting.len());
        match self.waiting.get_mut(place) {
            Some(entry) => *entry = wake_target,
            None => self.waiting.push(wake_target),
        }
        WaiterKey {
            round: self.round,
            place,
        }
    }

    #[cold]
    pub(crate) fn leave(&mut self, ticket: WaiterKey) {
        if ticket.round != self.round {
            return;
        }
        if let Some(entry) = self.waiting.get_mut(ticket.place) {
            *entry = WakeTarget::None;
            self.free.push(ticket.place);
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.len() == self.free.len()
    }

    pub(crate) fn wake_all(&mut self, schedule: &Scheduler) {
        self.round += 1;
        self.free.clear();
        for wake_target in self.waiting.drain(..) {
            schedule.wake(wake_target);
        }
    }
}
