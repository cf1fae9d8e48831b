//! The model checker's atomics, and a futex built from its lock and condition variable.

use std::time::Duration;

use loom::sync::atomic::AtomicU32;
use loom::sync::{Condvar, Mutex};

pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitResult {
    Woken,
}

#[derive(Debug)]
pub(crate) struct Futex {
    word: AtomicU32,
    /// Stands for the kernel's futex queue: the kernel compares and queues in one step.
    queue: Mutex<()>,
    woken: Condvar,
}

impl Futex {
    pub(crate) fn new() -> Self {
        Self {
            word: AtomicU32::new(0),
            queue: Mutex::new(()),
            woken: Condvar::new(),
        }
    }

    pub(crate) fn load(&self) -> u32 {
        self.word.load(Ordering::Relaxed)
    }

    pub(crate) fn store(&self, value: u32) {
        self.word.store(value, Ordering::Relaxed);
    }

    pub(crate) fn change(&self, from: u32, to: u32) -> bool {
        let changed = self
            .word
            .compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
        changed.is_ok()
    }

    pub(crate) fn wait(&self, expected: u32, _timeout: Option<Duration>) -> WaitResult {
        let queue = self.queue.lock().expect("lock poisoned");
        if self.load() == expected {
            drop(self.woken.wait(queue).expect("lock poisoned"));
        }
        WaitResult::Woken
    }

    pub(crate) fn wake(&self) {
        let _queue = self.queue.lock().expect("lock poisoned");
        self.woken.notify_one();
    }
}
