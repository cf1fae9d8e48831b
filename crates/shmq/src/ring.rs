//! A ring with one producer and one consumer that share nothing but memory.
//!
//! A slot is a cache line, and says itself whether its message is there: it holds the message's *turn*, the lap of the ring that
//! the message belongs to. The consumer reads one line per message and none of the producer's cursors. Its own cursor, the
//! *head*, is published now and then, for the producer to see that there is room.
//!
//! ```text
//!  producer:  write words 1.. of slots; words 0 with the turns (Release), the last slot's first
//!             ...; fence; is `message_event` among the messages since the last fence? then ring the doorbell
//!  consumer:  read word 0 (Acquire): its turn? then read the other words
//!             ...; message_event = head; arm the doorbell; fence; look again; sleep
//! ```
//!
//! Producer and consumer believe only what they have in their own memory. The other side can make them see any message or
//! none; it cannot make them read or write outside the slots.

use super::atomic::{AtomicU64, Ordering};
use super::slot::{Message, Slot};
use crate::violation::Violation;

/// A cursor and what shares no line with it; two lines, since processors fetch them in pairs.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Cursor(pub(crate) AtomicU64);

/// What producer and consumer tell each other besides the messages.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Cursors {
    /// The consumer's: messages before it are consumed.
    pub(crate) head: Cursor,
    /// The consumer's: it wants to know when this message is there.
    pub(crate) message_event: Cursor,
    /// The producer's: it wants to know when this message is consumed.
    pub(crate) space_event: Cursor,
}

/// Where a ring lies. The number of slots is a power of two and never changes.
pub(crate) trait RingMemory {
    fn cursors(&self) -> &Cursors;
    fn slots(&self) -> &[Slot];
}

/// Messages that are shown to the consumer together, at most; a power of two. More would have the consumer wait for them
/// without making a message any cheaper.
pub const BATCH: usize = 8;

#[derive(Debug)]
pub(crate) struct Producer<P> {
    place: P,
    /// Counts what is staged, too.
    tail: u64,
    /// Messages before this one the consumer can see; those from here to the tail are staged.
    shown: u64,
    /// The first of them as a whole: a consumer that looks at its slot would take the line away between two writes.
    first: Message,
    /// First words of all of them, each at its position; the rest of the others is in the slots.
    turns: [u64; BATCH],
    head: u64,
    /// The tail when the consumer was last thought of.
    settled: u64,
}

impl<P: RingMemory> Producer<P> {
    pub(crate) fn new(place: P) -> Self {
        // Nobody waits for room yet; 0 would be the first message.
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

    /// Whether there is room for a message, as far as is known; if not, [`has_room`](Self::has_room) looks.
    #[inline(always)]
    pub(crate) fn has_known_room(&self) -> bool {
        self.tail - self.head < self.place.slots().len() as u64
    }

    /// Writes a message: there is room. The low half of its first word is the ring's. The consumer sees it after
    /// [`publish`](Self::publish), or when there is a batch.
    #[inline(always)]
    pub(crate) fn stage(&mut self, message: Message) {
        debug_assert!(self.has_known_room(), "callers look");
        let slots = self.place.slots();
        let turn = u64::from(turn(self.tail, slots.len()));
        self.turns[index(self.tail, BATCH)] = message.first() & !TURN_MASK | turn;
        if self.tail == self.shown {
            self.first = message;
        } else {
            // Ordered after the consumer's reads of the lap before by `head` (Acquire in `has_room`).
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

    /// From the last to the first, so that who sees the first sees all of them, and none of the lines goes there and back
    /// meanwhile.
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

    /// Whether there is room for a message, by a new look at the head.
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

    /// Messages written since the consumer was last thought of.
    #[inline]
    pub(crate) fn unsettled(&self) -> u64 {
        self.tail - self.settled
    }

    /// Whether the consumer wants to know of the messages written since the last time. After a `SeqCst` fence, which pairs
    /// with the one after [`Consumer::arm`].
    #[inline]
    pub(crate) fn settle(&mut self) -> bool {
        let event = self.place.cursors().message_event.0.load(Ordering::Relaxed);
        let wanted = is_between(event, self.settled, self.tail);
        self.settled = self.tail;
        wanted
    }

    /// Asks to be told when there is room. A `SeqCst` fence and [`has_room`](Self::has_room) must follow.
    pub(crate) fn arm(&self) {
        let event = &self.place.cursors().space_event.0;
        event.store(self.head, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub(crate) struct Consumer<P> {
    place: P,
    head: u64,
    /// The head that the producer knows.
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
    pub(crate) fn is_there(&self) -> bool {
        let slots = self.place.slots();
        let first = slots[index(self.head, slots.len())].first();
        turn_of(first) == turn(self.head, slots.len())
    }

    /// Takes it: it is there.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Message {
        let slots = self.place.slots();
        let message = slots[index(self.head, slots.len())].load();
        self.head += 1;
        message
    }

    /// Whether the slot of the next message holds what an honest producer may have put there.
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

    /// Whether there is a message, or something else that is not nothing.
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

    /// Gives the room of consumed messages back. Returns what to pass to [`settle`](Self::settle), after a `SeqCst` fence.
    pub(crate) fn publish(&mut self) -> u64 {
        let before = std::mem::replace(&mut self.published, self.head);
        // Pairs with the Acquire in `Producer::has_room`: who sees the room sees that the slots have been read.
        self.place
            .cursors()
            .head
            .0
            .store(self.head, Ordering::Release);
        before
    }

    /// Whether the producer wants to know of the room given since the head was `before`. After a `SeqCst` fence, which
    /// pairs with the one after [`Producer::arm`].
    pub(crate) fn settle(&self, before: u64) -> bool {
        let event = self.place.cursors().space_event.0.load(Ordering::Relaxed);
        is_between(event, before, self.published)
    }

    /// Asks to be told of the next message. A `SeqCst` fence and [`is_ready`](Self::is_ready) must follow.
    pub(crate) fn arm(&self) {
        let event = &self.place.cursors().message_event.0;
        event.store(self.head, Ordering::Relaxed);
    }
}

/// The half of a slot's first word that holds the turn.
const TURN_MASK: u64 = u32::MAX as u64;

#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the remainder is below len"
)]
fn index(position: u64, len: usize) -> usize {
    (position & (len as u64 - 1)) as usize
}

/// The turn of a message: memory begins as 0, which is the turn before the first.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "turns come round again after 2^32 laps"
)]
fn turn(position: u64, len: usize) -> u32 {
    ((position >> len.trailing_zeros()) as u32).wrapping_add(1)
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the turn is the low half")]
fn turn_of(first: u64) -> u32 {
    first as u32
}

/// Whether `event` is one of `old..new`; right also after the numbers have come round.
#[inline]
fn is_between(event: u64, old: u64, new: u64) -> bool {
    event.wrapping_sub(old) < new.wrapping_sub(old)
}
