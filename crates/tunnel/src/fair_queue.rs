//! A fair queue for places that clients share.
//!
//! Each holder has its own queue, and the queues take turns. Call [`FairQueue::enter`], then [`FairQueue::next`] until
//! it returns `None`. Do the same after [`FairQueue::give_back`]. A waiter that gives up calls [`FairQueue::leave`].
//! The caller limits the number of waiters.

use std::collections::{BTreeMap, HashMap, VecDeque};

use quictun_trust::shares::{Holder, Shares};

/// Places and the waiters for them. A `T` identifies a waiter.
#[derive(Debug)]
pub(crate) struct FairQueue<T> {
    shares: Shares,
    /// The waiters by ticket, which is the order of arrival. No queue is empty.
    waiting: HashMap<Holder, BTreeMap<u64, T>>,
    /// The holders that have a queue, the next one first. Holders whose waiters have left may remain here and are
    /// skipped.
    order: VecDeque<Holder>,
    tickets: u64,
}

impl<T> FairQueue<T> {
    pub(crate) fn new(shares: Shares) -> Self {
        Self {
            shares,
            waiting: HashMap::new(),
            order: VecDeque::new(),
            tickets: 0,
        }
    }

    /// Appends a waiter to the holder's queue. Returns a ticket for [`FairQueue::leave`].
    pub(crate) fn enter(&mut self, holder: &Holder, who: T) -> u64 {
        self.tickets += 1;
        let queue = self.waiting.entry(holder.clone()).or_default();
        if queue.is_empty() && !self.order.contains(holder) {
            self.order.push_back(holder.clone());
        }
        queue.insert(self.tickets, who);
        self.tickets
    }

    /// Removes a waiter. Has no effect if its turn has come already.
    pub(crate) fn leave(&mut self, holder: &Holder, ticket: u64) {
        if let Some(queue) = self.waiting.get_mut(holder) {
            queue.remove(&ticket);
            if queue.is_empty() {
                self.waiting.remove(holder);
            }
        }
    }

    pub(crate) fn next(&mut self) -> Option<(Holder, T)> {
        for _ in 0..self.order.len() {
            let holder = self.order.pop_front()?;
            let Some(queue) = self.waiting.get_mut(&holder) else {
                // All waiters of this holder have left.
                continue;
            };
            if !self.shares.take(&holder) {
                self.order.push_back(holder);
                continue;
            }
            let first = queue.pop_first();
            if queue.is_empty() {
                self.waiting.remove(&holder);
            } else {
                self.order.push_back(holder.clone());
            }
            return first.map(|(_, who)| (holder, who));
        }
        None
    }

    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.values().map(BTreeMap::len).sum()
    }

    pub(crate) fn give_back(&mut self, holder: &Holder) {
        self.shares.give_back(holder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(number: u8) -> Holder {
        Holder::at([192, 0, 2, number].into())
    }

    /// Enters `count` waiters for each of these holders, one holder after the other.
    fn crowd(places: usize, counts: &[(u8, usize)]) -> FairQueue<usize> {
        let mut turns = FairQueue::new(Shares::new(places, 1));
        for &(number, count) in counts {
            for who in 0..count {
                turns.enter(&holder(number), who);
            }
        }
        turns
    }

    fn served(turns: &mut FairQueue<usize>) -> Vec<(Holder, usize)> {
        std::iter::from_fn(|| turns.next()).collect()
    }

    #[test]
    fn holders_take_turns_and_each_is_served_in_order() {
        let mut turns = crowd(16, &[(1, 3), (2, 2), (3, 1)]);
        let order: Vec<_> = [(1, 0), (2, 0), (3, 0), (1, 1), (2, 1), (1, 2)]
            .map(|(number, who)| (holder(number), who))
            .into();
        assert_eq!(served(&mut turns), order);
        assert!(turns.order.is_empty() && turns.waiting.is_empty());
    }

    #[test]
    fn a_holder_with_many_waiters_leaves_places_for_others() {
        let mut turns = crowd(64, &[(1, 1000)]);
        assert_eq!(served(&mut turns).len(), 32);
        turns.enter(&holder(2), 7);
        assert_eq!(served(&mut turns), [(holder(2), 7)]);
    }

    #[test]
    fn a_returned_place_goes_to_the_next_holder_in_turn() {
        let mut turns = crowd(2, &[(1, 5)]);
        assert_eq!(served(&mut turns), [(holder(1), 0)]);
        turns.enter(&holder(2), 0);
        assert_eq!(served(&mut turns), [(holder(2), 0)]);
        turns.enter(&holder(3), 0);
        assert_eq!(served(&mut turns), []);
        turns.give_back(&holder(1));
        assert_eq!(served(&mut turns), [(holder(1), 1)]);
        turns.give_back(&holder(2));
        assert_eq!(served(&mut turns), [(holder(3), 0)]);
    }

    #[test]
    fn a_waiter_that_leaves_is_skipped_and_removed() {
        let mut turns = crowd(4, &[]);
        let first = turns.enter(&holder(1), 0);
        let second = turns.enter(&holder(2), 0);
        turns.leave(&holder(1), first);
        assert_eq!(served(&mut turns), [(holder(2), 0)]);
        turns.leave(&holder(2), second);
        assert!(turns.order.is_empty() && turns.waiting.is_empty());
        // A holder that enters and leaves repeatedly is in the order only once.
        for _ in 0..10 {
            let ticket = turns.enter(&holder(1), 0);
            turns.leave(&holder(1), ticket);
        }
        assert!(turns.order.len() <= 1, "{:?}", turns.order);
    }
}
