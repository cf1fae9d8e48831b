//! A slot of two words, the smallest slot whose message can be torn.

use loom::sync::atomic::{AtomicU64, Ordering};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Message(pub(crate) [u64; 2]);

impl Message {
    pub(crate) fn first(self) -> u64 {
        self.0[0]
    }
}

#[derive(Debug)]
pub(crate) struct Slot([AtomicU64; 2]);

impl Slot {
    pub(crate) fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    pub(crate) fn first(&self) -> u64 {
        self.0[0].load(Ordering::Acquire)
    }

    pub(crate) fn show(&self, first: u64) {
        self.0[0].store(first, Ordering::Release);
    }

    pub(crate) fn load(&self) -> Message {
        Message(std::array::from_fn(|at| self.0[at].load(Ordering::Relaxed)))
    }

    pub(crate) fn store_rest(&self, message: &Message) {
        self.0[1].store(message.0[1], Ordering::Relaxed);
    }
}
