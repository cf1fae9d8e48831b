//! Waits for sockets, deadlines and the end of the measurement.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use quictun_sys::poll_until;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::retry_on_intr;

/// Ends everything that waits with it. Clones share their state.
#[derive(Clone, Debug)]
pub struct Stop(Arc<StopState>);

#[derive(Debug)]
struct StopState {
    raised: AtomicBool,
    event: OwnedFd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeReason {
    /// The stop was raised.
    Stopped,
    Ready,
    Due,
}

impl Stop {
    /// Creates a stop that is not raised.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(Arc::new(StopState {
            raised: AtomicBool::new(false),
            event: eventfd(0, flags)?,
        })))
    }

    /// Raises the stop, which wakes every thread that waits with it.
    pub fn raise(&self) {
        self.0.raised.store(true, Ordering::Release);
        // The event is never read, so it stays readable for all. The write fails only if the event is already readable.
        if rustix::io::write(&self.0.event, &1_u64.to_ne_bytes()).is_err() {}
    }

    /// Returns whether the stop was raised.
    pub fn is_raised(&self) -> bool {
        self.0.raised.load(Ordering::Acquire)
    }

    /// Waits until `until`, if given, or until the stop is raised.
    pub(crate) fn wait(&self, until: Option<Instant>) -> io::Result<WakeReason> {
        self.poll(&mut [self.watched()], until)
    }

    pub(crate) fn wait_for(
        &self,
        fd: impl AsFd,
        flags: PollFlags,
        until: Option<Instant>,
    ) -> io::Result<WakeReason> {
        self.poll(&mut [self.watched(), PollFd::new(&fd, flags)], until)
    }

    pub(crate) fn wait_for_either(&self, a: impl AsFd, b: impl AsFd) -> io::Result<WakeReason> {
        let (a, b) = (
            PollFd::new(&a, PollFlags::IN),
            PollFd::new(&b, PollFlags::IN),
        );
        self.poll(&mut [self.watched(), a, b], None)
    }

    fn watched(&self) -> PollFd<'_> {
        PollFd::new(&self.0.event, PollFlags::IN)
    }

    fn poll(&self, set: &mut [PollFd<'_>], until: Option<Instant>) -> io::Result<WakeReason> {
        let ready = match until {
            Some(until) => poll_until(set, until)?,
            None => retry_on_intr(|| poll(set, None))? > 0,
        };
        Ok(match ready {
            _ if self.is_raised() => WakeReason::Stopped,
            false => WakeReason::Due,
            true => WakeReason::Ready,
        })
    }
}

/// The descriptor is readable once the stop was raised.
impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }
}
