//! The two rings and two doorbells of one process: when to notify the peer, and when this process may sleep.
//!
//! No wake-up is lost, for the following reason. The writer writes a message, executes a fence, and then checks whether
//! the reader asked to be notified (the event index, then the doorbell's state). The reader asks to be notified,
//! executes a fence, and then checks for messages. The side whose fence comes second sees what the other side wrote
//! before its own fence. So either the reader finds the message and does not sleep, or the writer finds the doorbell
//! armed and rings it. Room in the ring is announced in the same way, with the sides exchanged. The model checker's
//! tests run this very code through all interleavings.

use super::atomic::{Ordering, fence};
use super::doorbell::{Doorbell, SleepMode};
use super::ring::{Consumer, Producer, RingMemory};
use super::slot::Message;
use crate::violation::Violation;

/// Reasons to ring: new messages, new room in the ring, and the end of the channel.
pub(crate) const MESSAGES: u64 = 1;
pub(crate) const SPACE: u64 = 2;
pub(crate) const END: u64 = 4;

/// Reason to ring: another thread of the same process has work for the thread that waits.
pub(crate) const ALARM: u64 = 8;

/// The events that a process waits for, besides the end of its peer and alarms from its own threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// Wait for messages. If unset, messages stay in the ring.
    pub messages: bool,
    /// Wait for room in a ring that was full.
    pub room: bool,
}

pub(crate) trait Doorbells {
    fn own(&self) -> &Doorbell;
    fn peer(&self) -> &Doorbell;
    fn wake_peer(&self, sleep: SleepMode);
}

#[derive(Debug)]
pub(crate) struct RingPair<P, B> {
    pub(crate) tx: Producer<P>,
    pub(crate) rx: Consumer<P>,
    pub(crate) doorbells: B,
    /// A message found no room, and none has been written since.
    room_wanted: bool,
    /// Number of consumed messages after which the head is published to the producer.
    publish_after: u64,
    pub(crate) notifications: u64,
    /// Number of times that the peer was not notified of news, because it was awake.
    pub(crate) suppressed: u64,
}

impl<P: RingMemory, B: Doorbells> RingPair<P, B> {
    pub(crate) fn new(tx: P, rx: P, doorbells: B) -> Self {
        // Few enough that the producer does not wait, and many enough that the cost is negligible.
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

    /// Returns whether the ring has room for a message. If not, new room counts as work from now on.
    #[cold]
    pub(crate) fn has_room(&mut self) -> Result<bool, Violation> {
        let has_room = self.tx.has_room()?;
        self.room_wanted = !has_room;
        Ok(has_room)
    }

    /// Writes a message; the ring must have room. The peer sees the message after [`Producer::publish`] or
    /// [`flush`](Self::flush), or when a batch is complete.
    #[inline(always)]
    pub(crate) fn stage(&mut self, message: Message) {
        self.tx.stage(message);
        self.room_wanted = false;
    }

    /// Takes the next message, which must be present.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Message {
        let message = self.rx.take();
        if self.rx.unpublished() >= self.publish_after {
            self.publish_room();
        }
        message
    }

    /// Publishes staged messages, and wakes the peer if it sleeps and has not seen them.
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

    /// Wakes the peer if it asked to be notified of messages published before the last fence.
    #[inline]
    fn notify(&mut self) {
        if self.tx.unsettled() == 0 {
            return;
        }
        if !self.tx.settle() || !self.ring(MESSAGES) {
            self.suppressed += 1;
        }
    }

    /// Returns whether there is work to do: a message, a reason for which the peer rang, or room after the ring was
    /// full. Room is reported only once, because the caller may not want it any more.
    #[inline]
    pub(crate) fn has_work(&mut self) -> bool {
        // A violation also counts as work, and the code that does the work detects it.
        if self.rx.is_ready() || self.doorbells.own().is_pending() {
            return true;
        }
        let has_room = self.room_wanted && !matches!(self.tx.has_room(), Ok(false));
        self.room_wanted &= !has_room;
        has_room
    }

    #[inline]
    pub(crate) fn has_work_for(&mut self, interest: Interest) -> bool {
        (interest.messages && self.rx.is_ready())
            || self.doorbells.own().is_pending()
            || (interest.room && !matches!(self.tx.has_room(), Ok(false)))
    }

    /// Returns what a process waits for that takes all messages: messages, and room if it found none.
    pub(crate) fn usual_interest(&self) -> Interest {
        Interest {
            messages: true,
            room: self.room_wanted,
        }
    }

    /// Like [`arm_for`](Self::arm_for) with the [usual](Self::usual_wants) events.
    pub(crate) fn arm(&mut self, sleep: SleepMode) -> bool {
        self.announce(sleep, self.usual_interest());
        !self.has_work()
    }

    /// Announces that this process is about to sleep, and returns whether it may. Publishes staged messages before the
    /// announcement and wakes the peer only after it. A peer that then takes over this processor finds that its answer
    /// has to wake this process.
    pub(crate) fn arm_for(&mut self, sleep: SleepMode, interest: Interest) -> bool {
        self.announce(sleep, interest);
        !self.has_work_for(interest)
    }

    fn announce(&mut self, sleep: SleepMode, interest: Interest) {
        self.tx.publish();
        let before = self.rx.publish();
        if interest.messages {
            self.rx.arm();
        }
        if interest.room {
            self.tx.arm();
        }
        // This fence also serves as the fence of `flush` and of `publish_room`.
        self.doorbells.own().arm(sleep);
        self.notify();
        if self.rx.settle(before) {
            self.ring(SPACE);
        }
    }

    /// Rings the peer's doorbell. Returns whether the peer had to be woken.
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
    fn publish_room(&mut self) {
        let before = self.rx.publish();
        // Pairs with the fence in `Doorbell::arm`, which follows `Producer::arm`.
        fence(Ordering::SeqCst);
        if self.rx.settle(before) {
            self.ring(SPACE);
        }
    }
}
