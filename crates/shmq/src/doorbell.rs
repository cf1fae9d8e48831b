//! How a process that sleeps is woken, once, and only then.
//!
//! ```text
//!            arm                       ┌──────────── ring: ARMED ─► RUNNING, and only who made the change wakes
//!  RUNNING ───────► ARMED ── fence, look again ──► nothing: wait while it is ARMED ──► RUNNING (disarm)
//!     ▲                                  └──────► something came meanwhile ───────────► RUNNING (disarm)
//!     └── ring: sets pending bits, wakes nobody
//! ```
//!
//! There is one for each process in the region. The process itself arms and disarms, its peer rings. Between two arms
//! at most one ring finds it armed, so there is at most one wake-up under way.

use super::atomic::{AtomicU64, Futex, Ordering, fence};

/// The process looks at the rings by itself before it sleeps.
const RUNNING: u32 = 0;

/// The process sleeps on this word.
const ARMED: u32 = 1;

/// The process will not look again.
const CLOSED: u32 = 2;

/// The process sleeps on its eventfd.
const ARMED_FD: u32 = 3;

/// Where a process sleeps, and so how it is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// In the kernel, on the doorbell itself: [`crate::Channel::wait`].
    Futex,
    /// In epoll or the like, on the eventfd.
    Descriptor,
}

#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Doorbell {
    /// Why it was rung, a bit for each reason.
    pending: AtomicU64,
    state: Futex,
    /// Where its process last ran, plus one; a hint.
    cpu: AtomicU64,
}

impl Doorbell {
    /// For models; in a region it is there already, as zeros.
    #[cfg(test)]
    #[allow(dead_code, reason = "the models compile this file once more")]
    pub(crate) fn new(pending: AtomicU64, state: Futex, cpu: AtomicU64) -> Self {
        Self {
            pending,
            state,
            cpu,
        }
    }

    /// Notes a reason. Whom the caller has to wake for it, if anybody.
    pub(crate) fn ring(&self, reasons: u64) -> Option<Sleep> {
        // Release and the fence: who is armed sees the bits when it looks again, or we see that it is armed. Pairs with
        // the fence in `arm`, and with the Acquire in `take`.
        self.pending.fetch_or(reasons, Ordering::Release);
        fence(Ordering::SeqCst);
        let (armed, sleep) = match self.state.load() {
            ARMED => (ARMED, Sleep::Futex),
            ARMED_FD => (ARMED_FD, Sleep::Descriptor),
            _ => return None,
        };
        self.state.change(armed, RUNNING).then_some(sleep)
    }

    /// Announces that its process is about to sleep. It has to look at everything again after this, and may sleep if
    /// there is nothing.
    pub(crate) fn arm(&self, sleep: Sleep) {
        self.state.store(armed(sleep));
        // Pairs with the fence before the peer looks at events and state: either it sees them, or we see its messages.
        fence(Ordering::SeqCst);
    }

    pub(crate) fn disarm(&self) {
        if self.state.load() != RUNNING {
            self.state.store(RUNNING);
        }
    }

    /// Whether its process is said to sleep, and nobody to have rung since.
    pub(crate) fn is_armed(&self) -> bool {
        matches!(self.state.load(), ARMED | ARMED_FD)
    }

    pub(crate) fn close(&self) {
        self.state.store(CLOSED);
    }

    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn take(&self) -> u64 {
        if self.is_pending() {
            // Pairs with the Release in `ring`.
            self.pending.swap(0, Ordering::Acquire)
        } else {
            0
        }
    }

    pub(crate) fn set_cpu(&self, cpu: usize) {
        self.cpu.store(cpu as u64 + 1, Ordering::Relaxed);
    }

    pub(crate) fn cpu(&self) -> Option<u64> {
        self.cpu.load(Ordering::Relaxed).checked_sub(1)
    }

    /// The word to sleep on, and what it is until somebody rings.
    pub(crate) fn sleep_on(&self) -> (&Futex, u32) {
        (&self.state, ARMED)
    }
}

fn armed(sleep: Sleep) -> u32 {
    match sleep {
        Sleep::Futex => ARMED,
        Sleep::Descriptor => ARMED_FD,
    }
}
