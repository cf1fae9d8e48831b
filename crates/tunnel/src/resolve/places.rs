//! Places for look-ups, and the queue for them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::fair_queue::FairQueue;
use quictun_trust::shares::{Holder, Shares};

#[derive(Clone)]
pub(super) struct LookupPlaces(Arc<Mutex<FairQueue<oneshot::Sender<LookupPlace>>>>);

/// One place. It becomes free when this is dropped, on any thread.
pub(super) struct LookupPlace {
    places: LookupPlaces,
    holder: Holder,
}

/// A position in the queue. Dropping it leaves the queue.
struct QueuePosition<'a> {
    places: &'a LookupPlaces,
    holder: &'a Holder,
    ticket: u64,
}

impl LookupPlaces {
    pub(super) fn new(count: usize) -> Self {
        Self(Arc::new(Mutex::new(FairQueue::new(Shares::new(
            count, WEIGHT,
        )))))
    }

    /// Waits for a place. It never returns `None` while it is awaited.
    ///
    /// # Cancel safety
    ///
    /// Safe to drop: the queue continues without this caller.
    pub(super) async fn place(&self, holder: &Holder) -> Option<LookupPlace> {
        let (who, turn) = oneshot::channel();
        let ticket = self.queue().enter(holder, who);
        // Dropped before `turn`, so that no place goes to a caller that no longer waits.
        let _waiting = QueuePosition {
            places: self,
            holder,
            ticket,
        };
        self.serve();
        turn.await.ok()
    }

    fn serve(&self) {
        loop {
            // The lock is released before a place is handed over or dropped.
            let next = self.queue().next();
            let Some((holder, who)) = next else {
                return;
            };
            let place = LookupPlace {
                places: self.clone(),
                holder,
            };
            // Dropping a place that was not taken passes it to the next caller.
            drop(who.send(place));
        }
    }

    fn queue(&self) -> MutexGuard<'_, FairQueue<oneshot::Sender<LookupPlace>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LookupPlace {
    fn drop(&mut self) {
        self.places.queue().give_back(&self.holder);
        self.places.serve();
    }
}

impl Drop for QueuePosition<'_> {
    fn drop(&mut self) {
        self.places.queue().leave(self.holder, self.ticket);
    }
}

/// A single holder gets half of the places (see `quictun_trust::shares`).
const WEIGHT: usize = 1;

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn a_caller_that_gives_up_leaves_the_queue() {
        let places = LookupPlaces::new(1);
        let mut context = Context::from_waker(Waker::noop());
        let mut first = pin!(places.place(&Holder::Own));
        let Poll::Ready(Some(place)) = first.as_mut().poll(&mut context) else {
            panic!("the first caller gets the place");
        };
        {
            let mut second = pin!(places.place(&Holder::Own));
            assert!(second.as_mut().poll(&mut context).is_pending());
            assert_eq!(places.queue().waiting(), 1);
        }
        assert_eq!(places.queue().waiting(), 0);
        // A place that was handed over and not taken is free for the next caller.
        {
            let mut third = pin!(places.place(&Holder::Own));
            assert!(third.as_mut().poll(&mut context).is_pending());
            drop(place);
        }
        let mut fourth = pin!(places.place(&Holder::Own));
        assert!(fourth.as_mut().poll(&mut context).is_ready());
    }
}
