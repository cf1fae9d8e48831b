//! One process at its two rings and two doorbells: who is told of what, and when it may sleep.
//!
//! Why no wake-up is lost: the writer of a message writes it, passes a fence, and then looks whether the reader wants to
//! know (the event index, then the doorbell's state). The reader says that it wants to know, passes a fence, and then
//! looks for messages. Whichever fence comes second, its side sees what the other wrote before its own: either the reader
//! finds the message and does not sleep, or the writer finds the doorbell armed and rings it. Room in the ring is told of in
//! the same way, with the sides exchanged. The model checker's tests try all interleavings of this very code.

use super::atomic::{Ordering, fence};
use super::doorbell::{Doorbell, Sleep};
use super::ring::{Consumer, Producer, RingMemory};
use super::slot::Message;
use crate::violation::Violation;

/// Reasons to ring: there are messages, there is room, nobody is there any more.
pub(crate) const MESSAGES: u64 = 1;
pub(crate) const SPACE: u64 = 2;
pub(crate) const BYE: u64 = 4;

/// Another thread of the process itself has something for it.
pub(crate) const ALARM: u64 = 8;

/// What a process waits for, besides the end of its peer and what its own threads have for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// Messages: without, those that are in the ring stay there.
    pub messages: bool,
    /// Room for a message in a ring that was full.
    pub room: bool,
}

pub(crate) trait Doorbells {
    fn own(&self) -> &Doorbell;
    fn peer(&self) -> &Doorbell;
    fn wake_peer(&self, sleep: Sleep);
}

#[derive(Debug)]
pub(crate) struct RingPair<P, B> {
    pub(crate) tx: Producer<P>,
    pub(crate) rx: Consumer<P>,
    pub(crate) doorbells: B,
    /// A message found no room.
    room_wanted: bool,
    /// Messages consumed before the producer is told that there is room.
    publish_after: u64,
    pub(crate) notifications: u64,
    /// Times that it was not, although there was news, since it was awake.
    pub(crate) suppressed: u64,
}

impl<P: RingMemory, B: Doorbells> RingPair<P, B> {
    pub(crate) fn new(tx: P, rx: P, doorbells: B) -> Self {
        // Few enough that the producer does not wait for it, many enough that it costs nothing.
        let publish_after = (rx.slots().len() as u64 / 8).max(1);
        Self {
            tx: Producer::new(tx),
            rx: Consumer::new(rx),
            doorbells,
            room_wanted: false,
            publish_after,
            notifications: 0,
            suppressed: 0,
        }
    }

    /// Whether there is room for a message; if not, the peer's notice of it counts as work from now on.
    #[cold]
    pub(crate) fn has_room(&mut self) -> Result<bool, Violation> {
        let has_room = self.tx.has_room()?;
        self.room_wanted = !has_room;
        Ok(has_room)
    }

    /// Writes a message: there is room. The peer sees it after [`Producer::publish`] or [`flush`](Self::flush), or when
    /// there is a batch of them.
    #[inline(always)]
    pub(crate) fn stage(&mut self, message: Message) {
        self.tx.stage(message);
        self.room_wanted = false;
    }

    /// Takes it: it is there.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Message {
        let message = self.rx.take();
        if self.rx.unpublished() >= self.publish_after {
            self.give_room();
        }
        message
    }

    /// Publishes, and wakes the peer if it sleeps and has not seen what was written.
    #[inline]
    pub(crate) fn flush(&mut self) {
        if self.tx.unsettled() == 0 {
            return;
        }
        self.tx.publish();
        // Pairs with the fence in `Doorbell::arm`, which follows `Consumer::arm`.
        fence(Ordering::SeqCst);
        self.notify();
    }

    /// Wakes the peer if it wants to know of what was published before the last fence.
    #[inline]
    fn notify(&mut self) {
        if self.tx.unsettled() == 0 {
            return;
        }
        if !self.tx.settle() || !self.ring(MESSAGES) {
            self.suppressed += 1;
        }
    }

    /// Whether there is something to do: a message, a reason that was rung for, or room that was missing. Of the room it
    /// tells once: who wanted it may not want it any more.
    #[inline]
    pub(crate) fn has_work(&mut self) -> bool {
        // What breaks the rules is found by whoever does the work.
        if self.rx.is_ready() || self.doorbells.own().is_pending() {
            return true;
        }
        let has_room = self.room_wanted && !matches!(self.tx.has_room(), Ok(false));
        self.room_wanted &= !has_room;
        has_room
    }

    #[inline]
    pub(crate) fn has_work_for(&mut self, wants: Wants) -> bool {
        (wants.messages && self.rx.is_ready())
            || self.doorbells.own().is_pending()
            || (wants.room && !matches!(self.tx.has_room(), Ok(false)))
    }

    /// What a process wants that takes all messages: room where it found none.
    pub(crate) fn usual_wants(&self) -> Wants {
        Wants {
            messages: true,
            room: self.room_wanted,
        }
    }

    /// [`arm_for`](Self::arm_for) what it [usually](Self::usual_wants) wants.
    pub(crate) fn arm(&mut self, sleep: Sleep) -> bool {
        self.announce(sleep, self.usual_wants());
        !self.has_work()
    }

    /// Announces that this process is about to sleep; whether it may. What was written is published, and the peer woken if
    /// it sleeps: only then, so that a peer that takes over our processor finds that its answer has to wake us.
    pub(crate) fn arm_for(&mut self, sleep: Sleep, wants: Wants) -> bool {
        self.announce(sleep, wants);
        !self.has_work_for(wants)
    }

    fn announce(&mut self, sleep: Sleep, wants: Wants) {
        self.tx.publish();
        let before = self.rx.publish();
        if wants.messages {
            self.rx.arm();
        }
        if wants.room {
            self.tx.arm();
        }
        // Its fence is that of `flush` and of `give_room`, too.
        self.doorbells.own().arm(sleep);
        self.notify();
        if self.rx.settle(before) {
            self.ring(SPACE);
        }
    }

    /// Rings at the peer's; whether it had to be woken.
    #[cold]
    pub(crate) fn ring(&mut self, reasons: u64) -> bool {
        let Some(sleep) = self.doorbells.peer().ring(reasons) else {
            return false;
        };
        self.doorbells.wake_peer(sleep);
        self.notifications += 1;
        true
    }

    #[cold]
    fn give_room(&mut self) {
        let before = self.rx.publish();
        // Pairs with the fence in `Doorbell::arm`, which follows `Producer::arm`.
        fence(Ordering::SeqCst);
        if self.rx.settle(before) {
            self.ring(SPACE);
        }
    }
}
