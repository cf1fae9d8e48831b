//! Runs an executor as part of another event loop: epoll or tokio.
//!
//! ```text
//!  loop: advance ─► Ended: remove it from the loop
//!                ─► Ready: call it again soon; other sources may run first
//!                ─► Asleep: call it again when the descriptor is readable or the time has elapsed
//! ```

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use quictun_shmq::SleepMode;

use crate::executor::{Executor, TurnOutcome};
use crate::wait::WaitPolicy;

/// The next step of an event loop that contains an executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// Every coroutine has ended.
    Ended,
    /// Call [`Executor::advance`] again without waiting.
    Ready,
    /// Call [`Executor::advance`] again when the descriptor is readable, or after this time at the latest, if one is
    /// given.
    Asleep(Option<Duration>),
}

impl Executor {
    /// Returns a descriptor that becomes readable when an executor that is [`Advance::Asleep`] has something to do. It
    /// is private to this process: an epoll instance that contains the socket to the peer and an eventfd. Never read
    /// from it.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        match self.channel.borrow().descriptor() {
            Some(descriptor) => descriptor.try_clone_to_owned(),
            None => Err(io::Error::other("the channel has no socket: call `watch`")),
        }
    }

    /// Does a bounded amount of work without waiting, and returns `None` if there was nothing to do. The peer still
    /// considers this side awake, so its messages cause no wake-up. A loop with several sources polls all of them in
    /// this way for a while, and calls [`advance`](Self::advance) before it waits.
    pub fn try_advance(&mut self) -> Option<Advance> {
        self.wake_up();
        let ran = match self.turn() {
            TurnOutcome::Ended => return Some(Advance::Ended),
            TurnOutcome::Ready => return Some(Advance::Ready),
            TurnOutcome::Idle { ran } => ran,
        };
        if self.is_last(ran) {
            self.channel.borrow_mut().flush();
        }
        ran.then_some(Advance::Ready)
    }

    /// Does a bounded amount of work without waiting, whatever the policy. With [`WaitPolicy::Polling`], it never
    /// returns [`Advance::Asleep`].
    pub fn advance(&mut self) -> Advance {
        self.wake_up();
        match self.turn() {
            TurnOutcome::Ended => return Advance::Ended,
            TurnOutcome::Ready => return Advance::Ready,
            TurnOutcome::Idle { .. } => {}
        }
        let channel = &mut *self.channel.borrow_mut();
        if self.policy == WaitPolicy::Polling {
            channel.flush();
            return Advance::Ready;
        }
        let interest = self.port.interest();
        if !channel.arm_for(SleepMode::Descriptor, interest) || self.schedule.has_remote() {
            channel.disarm();
            return Advance::Ready;
        }
        self.idle.sleeps += 1;
        self.asleep = true;
        Advance::Asleep(self.port.silence_left(channel))
    }

    /// Ends the executor's sleep in its event loop, if it slept.
    pub(crate) fn wake_up(&mut self) {
        if std::mem::take(&mut self.asleep) {
            self.channel.borrow_mut().wake_up();
        }
    }

    /// Runs until every coroutine has ended, as part of a tokio task. While there is nothing to do, the thread runs
    /// other tasks. Needs a runtime with I/O and time enabled, and a task that stays on its thread (`LocalSet`,
    /// `block_on`). Dropping the future stops the coroutines where they are; another run continues them.
    #[cfg(feature = "tokio")]
    pub async fn run_in_tokio(&mut self) -> io::Result<()> {
        use tokio::io::Interest;
        use tokio::io::unix::AsyncFd;

        #[allow(
            deprecated,
            reason = "the replacement is unsafe, for types whose descriptor may change, unlike OwnedFd"
        )]
        let descriptor = AsyncFd::with_interest(self.descriptor()?, Interest::READABLE)?;
        loop {
            match self.advance() {
                Advance::Ended => return Ok(()),
                Advance::Ready => tokio::task::yield_now().await,
                Advance::Asleep(None) => descriptor.readable().await?.clear_ready(),
                Advance::Asleep(Some(left)) => {
                    // If the time elapsed, `advance` notices that.
                    if let Ok(ready) = tokio::time::timeout(left, descriptor.readable()).await {
                        ready?.clear_ready();
                    }
                }
            }
        }
    }
}
