//! A ring with one producer and one consumer that share nothing but memory.
//!
//! A slot is one cache line and states itself whether its message is present. It holds the message's *turn*: the lap of
//! the ring that the message belongs to. The consumer reads one line per message and none of the producer's cursors. It
//! publishes its own cursor, the *head*, from time to time, so that the producer learns about free slots.
//!
//! ```text
//!  producer:  write words 1.. of slots; words 0 with the turns (Release), the last slot's first
//!             ...; fence; is `message_event` among the messages since the last fence? then ring the doorbell
//!  consumer:  read word 0 (Acquire): its turn? then read the other words
//!             ...; message_event = head; arm the doorbell; fence; look again; sleep
//! ```
//!
//! Producer and consumer trust only their private memory. The other side can make them see any message or none, but it
//! cannot make them read or write outside the slots.

use super::atomic::{AtomicU64, Ordering};
use super::slot::{Message, Slot};
use crate::violation::Violation;

/// A cursor alone on its cache lines. It takes two lines, because processors fetch lines in pairs.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Cursor(pub(crate) AtomicU64);

/// The state that producer and consumer exchange besides the messages.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Cursors {
    /// Written by the consumer: all messages before this position are consumed.
    pub(crate) head: Cursor,
    /// Written by the consumer: it asks to be notified when the message at this position is present.
    pub(crate) message_event: Cursor,
    /// Written by the producer: it asks to be notified when the message at this position is consumed.
    pub(crate) space_event: Cursor,
}

/// The memory of a ring. The number of slots is a power of two and never changes.
pub(crate) trait RingMemory {
    fn cursors(&self) -> &Cursors;
    fn slots(&self) -> &[Slot];
}

/// Largest number of messages that become visible to the consumer together; a power of two. A larger batch would delay
/// the consumer without making a message cheaper.
pub const BATCH: usize = 8;

#[derive(Debug)]
pub(crate) struct Producer<P> {
    place: P,
    /// Position after the last message, including staged messages.
    tail: u64,
    /// Messages before this position are visible to the consumer. Messages from here to the tail are staged.
    shown: u64,
    /// The first staged message as a whole. A consumer that polls its slot would take the cache line away between two
    /// writes, so the slot is written last and in one go.
    first: Message,
    /// First words of all staged messages, indexed by position. The other words of all but the first message are in the
    /// slots already.
    turns: [u64; BATCH],
    head: u64,
    /// Value of the tail when the producer last checked whether to notify the consumer.
    settled: u64,
}

impl<P: RingMemory> Producer<P> {
    pub(crate) fn new(place: P) -> Self {
        // The producer does not wait for room yet. An event of 0 would ask for the first message.
        let event = &place.cursors().space_event.0;
        event.store(u64::MAX, Ordering::Relaxed);
        Self {
            place,
            tail: 0,
            shown: 0,
            first: Message::default(),
            turns: [0; BATCH],
            head: 0,
            settled: 0,
        }
    }

    /// Returns whether the ring has room for a message, judging by the last known head. If not, call
    /// [`has_room`](Self::has_room) to read the head again.
    #[inline(always)]
    pub(crate) fn has_known_room(&self) -> bool {
        self.tail - self.head < self.place.slots().len() as u64
    }

    /// Writes a message; the ring must have room. The ring owns the low half of the message's first word. The consumer
    /// sees the message after [`publish`](Self::publish), or when a batch is complete.
    #[inline(always)]
    pub(crate) fn stage(&mut self, message: Message) {
        debug_assert!(self.has_known_room(), "the caller checks for room first");
        let slots = self.place.slots();
        let turn = u64::from(turn(self.tail, slots.len()));
        self.turns[index(self.tail, BATCH)] = message.first() & !TURN_MASK | turn;
        if self.tail == self.shown {
            self.first = message;
        } else {
            // `head` (Acquire in `has_room`) orders this write after the consumer's reads of the previous lap.
            slots[index(self.tail, slots.len())].store_rest(&message);
        }
        self.tail += 1;
        if self.staged() == BATCH as u64 {
            self.show();
        }
    }

    #[inline(always)]
    pub(crate) fn publish(&mut self) {
        if self.tail != self.shown {
            self.show();
        }
    }

    /// Shows the staged messages from the last to the first. A consumer that sees the first message then sees all of
    /// them, and none of the cache lines moves back and forth in the meantime.
    #[inline(never)]
    fn show(&mut self) {
        let slots = self.place.slots();
        for at in (self.shown + 1..self.tail).rev() {
            slots[index(at, slots.len())].show(self.turns[index(at, BATCH)]);
        }
        let slot = &slots[index(self.shown, slots.len())];
        slot.store_rest(&self.first);
        slot.show(self.turns[index(self.shown, BATCH)]);
        self.shown = self.tail;
    }

    #[inline(always)]
    pub(crate) fn staged(&self) -> u64 {
        self.tail - self.shown
    }

    #[inline]
    pub(crate) fn written(&self) -> u64 {
        self.tail
    }

    /// Reads the head again and returns whether the ring has room for a message.
    #[inline(never)]
    pub(crate) fn has_room(&mut self) -> Result<bool, Violation> {
        // Pairs with the Release in `Consumer::publish`.
        let found = self.place.cursors().head.0.load(Ordering::Acquire);
        if found < self.head || found > self.tail {
            return Err(Violation::Head {
                found,
                before: self.head,
                written: self.tail,
            });
        }
        self.head = found;
        Ok(self.tail - found < self.place.slots().len() as u64)
    }

    /// Returns the number of messages written since the producer last checked whether to notify the consumer.
    #[inline]
    pub(crate) fn unsettled(&self) -> u64 {
        self.tail - self.settled
    }

    /// Returns whether the consumer asked to be notified about a message written since the last call. The caller must
    /// execute a `SeqCst` fence first; it pairs with the fence after [`Consumer::arm`].
    #[inline]
    pub(crate) fn settle(&mut self) -> bool {
        let event = self.place.cursors().message_event.0.load(Ordering::Relaxed);
        let wanted = is_between(event, self.settled, self.tail);
        self.settled = self.tail;
        wanted
    }

    /// Asks to be notified when the ring has room. A `SeqCst` fence and [`has_room`](Self::has_room) must follow.
    pub(crate) fn arm(&self) {
        let event = &self.place.cursors().space_event.0;
        event.store(self.head, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub(crate) struct Consumer<P> {
    place: P,
    head: u64,
    /// The head that the producer can see.
    published: u64,
}

impl<P: RingMemory> Consumer<P> {
    pub(crate) fn new(place: P) -> Self {
        Self {
            place,
            head: 0,
            published: 0,
        }
    }

    #[inline(always)]
    pub(crate) fn has_message(&self) -> bool {
        let slots = self.place.slots();
        let first = slots[index(self.head, slots.len())].first();
        turn_of(first) == turn(self.head, slots.len())
    }

    /// Takes the next message, which must be present.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Message {
        let slots = self.place.slots();
        let message = slots[index(self.head, slots.len())].load();
        self.head += 1;
        message
    }

    /// Checks that the slot of the next message holds a turn that an honest producer may have written.
    pub(crate) fn check(&self) -> Result<(), Violation> {
        let slots = self.place.slots();
        let found = turn_of(slots[index(self.head, slots.len())].first());
        let expected = turn(self.head, slots.len());
        if found == expected || found == expected.wrapping_sub(1) {
            return Ok(());
        }
        Err(Violation::Turn {
            index: self.head,
            found,
            expected,
        })
    }

    /// Returns whether the next slot holds a message or an invalid turn.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        let slots = self.place.slots();
        let found = turn_of(slots[index(self.head, slots.len())].first());
        found != turn(self.head, slots.len()).wrapping_sub(1)
    }

    #[inline]
    pub(crate) fn consumed(&self) -> u64 {
        self.head
    }

    #[inline]
    pub(crate) fn unpublished(&self) -> u64 {
        self.head - self.published
    }

    /// Publishes the head, which returns the slots of consumed messages to the producer. Returns the value to pass to
    /// [`settle`](Self::settle) after a `SeqCst` fence.
    pub(crate) fn publish(&mut self) -> u64 {
        let before = std::mem::replace(&mut self.published, self.head);
        // Pairs with the Acquire in `Producer::has_room`: a producer that sees the new head also sees that the slots
        // were read.
        self.place
            .cursors()
            .head
            .0
            .store(self.head, Ordering::Release);
        before
    }

    /// Returns whether the producer asked to be notified about room that was freed since the head was `before`. The
    /// caller must execute a `SeqCst` fence first; it pairs with the fence after [`Producer::arm`].
    pub(crate) fn settle(&self, before: u64) -> bool {
        let event = self.place.cursors().space_event.0.load(Ordering::Relaxed);
        is_between(event, before, self.published)
    }

    /// Asks to be notified about the next message. A `SeqCst` fence and [`is_ready`](Self::is_ready) must follow.
    pub(crate) fn arm(&self) {
        let event = &self.place.cursors().message_event.0;
        event.store(self.head, Ordering::Relaxed);
    }
}

/// Mask of the turn in a slot's first word.
const TURN_MASK: u64 = u32::MAX as u64;

#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the remainder is below len"
)]
fn index(position: u64, len: usize) -> usize {
    (position & (len as u64 - 1)) as usize
}

/// Returns the turn of the message at `position`. Fresh memory holds 0, which is the turn before the first.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "turns wrap around after 2^32 laps"
)]
fn turn(position: u64, len: usize) -> u32 {
    ((position >> len.trailing_zeros()) as u32).wrapping_add(1)
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the turn is the low half")]
fn turn_of(first: u64) -> u32 {
    first as u32
}

/// Returns whether `event` is in `old..new`; also correct after the numbers wrap around.
#[inline]
fn is_between(event: u64, old: u64, new: u64) -> bool {
    event.wrapping_sub(old) < new.wrapping_sub(old)
}
