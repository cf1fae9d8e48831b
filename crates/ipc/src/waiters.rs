//! Who waits for the same thing, all of whom are woken when it is there.

use crate::schedule::{Schedule, Wakes};

/// See the module documentation. Each is noted once, however often it asks, and not at all once it has gone: who waits says
/// whether this process may sleep.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    /// [`Wakes::Nobody`] where a waiter has gone.
    waiting: Vec<Wakes>,
    /// Places of waiters that have gone.
    free: Vec<usize>,
    /// Times that all were woken.
    round: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    round: u64,
    place: usize,
}

impl Waiters {
    /// Notes one, who may have a place already.
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
