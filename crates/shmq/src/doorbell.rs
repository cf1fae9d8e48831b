//! Wakes a sleeping process exactly once, and never notifies a process that is awake.
//!
//! ```text
//!            arm                       ┌──────────── ring: ARMED ─► RUNNING; only the thread that made the change wakes it
//!  RUNNING ───────► ARMED ── fence, look again ──► nothing: wait while it is ARMED ──► RUNNING (disarm)
//!     ▲                                  └──────► something arrived meanwhile ────────► RUNNING (disarm)
//!     └── ring: sets pending bits, wakes no process
//! ```
//!
//! The region has one doorbell for each process. The process itself arms and disarms its doorbell, and its peer rings
//! it. Between two armings, at most one ring finds the doorbell armed, so at most one wake-up is under way.

use super::atomic::{AtomicU64, Futex, Ordering, fence};

/// The process polls the rings before it sleeps.
const RUNNING: u32 = 0;

/// The process sleeps on this word.
const ARMED: u32 = 1;

/// The process has left and will not read the rings again.
const CLOSED: u32 = 2;

/// The process sleeps on its descriptor.
const ARMED_FD: u32 = 3;

/// The place where a process sleeps, which determines how it is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SleepMode {
    /// In the kernel, on the doorbell's futex: [`crate::Channel::wait`].
    Futex,
    /// In epoll or a similar call, on [`crate::Channel::descriptor`].
    Descriptor,
}

#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Doorbell {
    /// The reasons for which the doorbell was rung, one bit for each reason.
    pending: AtomicU64,
    state: Futex,
    /// Number of the processor on which the process last ran, plus one; a hint.
    cpu: AtomicU64,
}

impl Doorbell {
    /// Creates a doorbell for the model checker. In a region, a doorbell starts as zeros.
    #[cfg(test)]
    #[allow(
        dead_code,
        reason = "the tests of the models compile this file a second time and call it there; the unit tests do not"
    )]
    pub(crate) fn new(pending: AtomicU64, state: Futex, cpu: AtomicU64) -> Self {
        Self {
            pending,
            state,
            cpu,
        }
    }

    /// Records reasons to wake the doorbell's process. Returns where that process sleeps if the caller must wake it.
    pub(crate) fn ring(&self, reasons: u64) -> Option<SleepMode> {
        // Release and fence: either a process that armed the doorbell sees the bits when it looks again, or the fence
        // lets this thread see that the doorbell is armed. They pair with the fence in `arm` and with the Acquire in
        // `take`.
        self.pending.fetch_or(reasons, Ordering::Release);
        fence(Ordering::SeqCst);
        let (armed, sleep) = match self.state.load() {
            ARMED => (ARMED, SleepMode::Futex),
            ARMED_FD => (ARMED_FD, SleepMode::Descriptor),
            _ => return None,
        };
        self.state.change(armed, RUNNING).then_some(sleep)
    }

    /// Announces that the doorbell's process is about to sleep. The process must then check everything again, and may
    /// sleep if it finds no work.
    pub(crate) fn arm(&self, sleep: SleepMode) {
        self.state.store(armed(sleep));
        // Pairs with the peer's fence before it reads events and state: either the peer sees them, or this process sees
        // the peer's messages.
        fence(Ordering::SeqCst);
    }

    pub(crate) fn disarm(&self) {
        if self.state.load() != RUNNING {
            self.state.store(RUNNING);
        }
    }

    /// Returns whether the process announced a sleep and nothing has rung the doorbell since.
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

    /// Returns the word to sleep on, and its value until the doorbell is rung.
    pub(crate) fn sleep_on(&self) -> (&Futex, u32) {
        (&self.state, ARMED)
    }
}

fn armed(sleep: SleepMode) -> u32 {
    match sleep {
        SleepMode::Futex => ARMED,
        SleepMode::Descriptor => ARMED_FD,
    }
}
