//! The atomics that rings and doorbells use. The model checker's tests substitute their own.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex::{self, Flags, Timespec};

pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Prefetches a cache line for reading.
#[inline(always)]
pub(crate) fn soon_read<T>(line: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 processor has the instruction, and it affects only caches.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = line;
}

/// Prefetches a cache line for writing, which takes it away from other processors.
#[inline(always)]
pub(crate) fn soon_write<T>(line: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // `_mm_prefetch` cannot be used here. Unless the target is known to support `prefetchw`, which the oldest
        // processors do not, the compiler emits the prefetch for reading. The line would then be fetched once for
        // reading and once more for writing.
        #[expect(
            clippy::pointers_in_nomem_asm_block,
            reason = "the address is only a hint: the instruction reads and writes no memory and needs no ordering"
        )]
        // SAFETY: the instruction is a hint that affects only caches. Processors that do not support it ignore it.
        unsafe {
            std::arch::asm!(
                "prefetchw [{line}]",
                line = in(reg) line,
                options(nostack, preserves_flags, nomem),
            );
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = line;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitResult {
    /// The peer woke the thread, or the wait ended for an unknown reason.
    Woken,
    Interrupted,
    TimedOut,
}

/// A word in shared memory that a thread of another process can wait on.
///
/// Memory operations on the word are relaxed. A caller that needs an order adds [`fence`]s around them.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Futex(AtomicU32);

impl Futex {
    pub(crate) fn load(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn store(&self, value: u32) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Changes the word from `from` to `to`. Returns false, and leaves the word unchanged, if it was not `from`.
    pub(crate) fn change(&self, from: u32, to: u32) -> bool {
        let changed = self
            .0
            .compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
        changed.is_ok()
    }

    pub(crate) fn wait(&self, expected: u32, timeout: Option<Duration>) -> WaitResult {
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        // The private kind of futex does not work here: it never wakes a waiter of another process.
        match futex::wait(&self.0, Flags::empty(), expected, timeout.as_ref()) {
            Err(Errno::TIMEDOUT) => WaitResult::TimedOut,
            Err(Errno::INTR) => WaitResult::Interrupted,
            // The thread was woken, or the word was no longer `expected`.
            Ok(()) | Err(_) => WaitResult::Woken,
        }
    }

    pub(crate) fn wake(&self) {
        // The call fails only for addresses that are unmapped or misaligned, and this one is neither.
        let _woken = futex::wake(&self.0, Flags::empty(), 1);
    }
}
