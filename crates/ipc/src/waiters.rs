//! The tasks that wait for the same event, all of which are woken when it occurs.

use crate::schedule::{Schedule, Wakes};

/// A list of waiting tasks. A task is listed once, however often it asks, and is removed when it stops waiting: whether
/// this process may sleep depends on the list.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    /// The listed wakers. Waiters that have left are marked [`Wakes::Nobody`].
    waiting: Vec<Wakes>,
    /// Places of waiters that have left.
    free: Vec<usize>,
    /// Number of times that all waiters were woken.
    round: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    round: u64,
    place: usize,
}

impl Waiters {
    /// Adds a waiter, or updates it if `own` is still valid.
    #[cold]
    pub(crate) fn enter(&mut self, own: Option<Ticket>, wakes: Wakes) -> Ticket {
        let own = own.filter(|ticket| ticket.round == self.round);
        let place = own.map(|ticket| ticket.place).or_else(|| self.free.pop());
        let place = place.unwrap_or(self.waiting.len());
        match self.waiting.get_mut(place) {
            Some(entry) => *entry = wakes,
            None => self.waiting.push(wakes),
        }
        Ticket {
            round: self.round,
            place,
        }
    }

    #[cold]
    pub(crate) fn leave(&mut self, ticket: Ticket) {
        if ticket.round != self.round {
            return;
        }
        if let Some(entry) = self.waiting.get_mut(ticket.place) {
            *entry = Wakes::Nobody;
            self.free.push(ticket.place);
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.len() == self.free.len()
    }

    pub(crate) fn wake_all(&mut self, schedule: &Schedule) {
        self.round += 1;
        self.free.clear();
        for wakes in self.waiting.drain(..) {
            schedule.wake(wakes);
        }
    }
}
