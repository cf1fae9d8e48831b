//! A slot of a ring: one cache line whose first word states whether its message is present.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::message::WORDS;

/// The content of a slot. The ring owns the low half of its first word.
pub(crate) use crate::message::Message;

#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Slot {
    words: [AtomicU64; WORDS],
}

impl Slot {
    /// Returns the first word. A reader that sees a turn in it also sees everything written before
    /// [`show`](Self::show).
    #[inline(always)]
    pub(crate) fn first(&self) -> u64 {
        // Pairs with the Release in `show`.
        self.words[0].load(Ordering::Acquire)
    }

    /// Writes the first word, which makes the message visible.
    #[inline(always)]
    pub(crate) fn show(&self, first: u64) {
        // Pairs with the Acquire in `first`.
        self.words[0].store(first, Ordering::Release);
    }

    #[inline(always)]
    pub(crate) fn load(&self) -> Message {
        // SAFETY: a slot is a mapped and aligned line of memory that consists of atomics. The peer may write to it, and
        // no reference in this process asserts otherwise.
        unsafe { Message::read_from(self.words.as_ptr().cast()) }
    }

    #[inline(always)]
    pub(crate) fn store_rest(&self, message: &Message) {
        // SAFETY: as in `load`; atomics may be written through a shared reference.
        unsafe { message.write_rest_to(self.words.as_ptr().cast_mut().cast()) };
    }
}
