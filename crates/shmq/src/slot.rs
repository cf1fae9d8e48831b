//! A slot of a ring: one cache line, of which the first word says whether its message is there.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::message::WORDS;

/// What a slot carries. The low half of its first word is the ring's.
pub(crate) use crate::message::Message;

#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Slot {
    words: [AtomicU64; WORDS],
}

impl Slot {
    /// The first word. Who sees a turn in it sees what was written before [`show`](Self::show).
    #[inline(always)]
    pub(crate) fn first(&self) -> u64 {
        // Pairs with the Release in `show`.
        self.words[0].load(Ordering::Acquire)
    }

    /// Writes the first word, and so shows the message.
    #[inline(always)]
    pub(crate) fn show(&self, first: u64) {
        // Pairs with the Acquire in `first`.
        self.words[0].store(first, Ordering::Release);
    }

    #[inline(always)]
    pub(crate) fn load(&self) -> Message {
        // SAFETY: a slot is a line of memory that is mapped and aligned, and it consists of atomics: the peer may write to
        // it, and no reference of ours says that nobody does.
        unsafe { Message::read_from(self.words.as_ptr().cast()) }
    }

    #[inline(always)]
    pub(crate) fn store_rest(&self, message: &Message) {
        // SAFETY: as in `load`; atomics may be written to through a shared reference.
        unsafe { message.write_rest_to(self.words.as_ptr().cast_mut().cast()) };
    }
}
