//! The atomics that rings and doorbells are written over. The model checker's tests put others in this place.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex::{self, Flags, Timespec};

pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Asks for the line to read it soon.
#[inline(always)]
pub(crate) fn soon_read<T>(line: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 processor has the instruction, and it changes nothing but caches.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = line;
}

/// Asks for the line to write to it soon: takes it away from other processors.
#[inline(always)]
pub(crate) fn soon_write<T>(line: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // Not by `_mm_prefetch`: unless it may suppose a processor that knows it, which the oldest do not, the compiler
        // makes of that the other instruction, and then the line comes to be read, and once more to be written.
        #[expect(
            clippy::pointers_in_nomem_asm_block,
            reason = "the address is only hinted at: nothing is read or written, and nothing has to be in order"
        )]
        // SAFETY: a hint, which processors that do not know it pass over, and it changes nothing but caches.
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
pub(crate) enum Ended {
    /// By the peer, as far as can be told.
    Woken,
    Interrupted,
    TimedOut,
}

/// A word that a thread of another process can wait for.
///
/// Its operations on memory are relaxed: who needs an order puts [`fence`]s around them.
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

    /// Whether it was `from`; it is `to` then.
    pub(crate) fn change(&self, from: u32, to: u32) -> bool {
        let changed = self
            .0
            .compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
        changed.is_ok()
    }

    pub(crate) fn wait(&self, expected: u32, timeout: Option<Duration>) -> Ended {
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        // Not the private kind: that never meets a waiter of another process.
        match futex::wait(&self.0, Flags::empty(), expected, timeout.as_ref()) {
            Err(Errno::TIMEDOUT) => Ended::TimedOut,
            Err(Errno::INTR) => Ended::Interrupted,
            // Woken, or it was not `expected` any more.
            Ok(()) | Err(_) => Ended::Woken,
        }
    }

    pub(crate) fn wake(&self) {
        // It fails for addresses that are not mapped or not aligned, and this one is both.
        let _woken = futex::wake(&self.0, Flags::empty(), 1);
    }
}
