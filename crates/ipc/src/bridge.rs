//! An executor as part of somebody else's loop: epoll, or tokio.
//!
//! ```text
//!  loop: advance ─► Ended: take it out of the loop
//!                ─► Ready: call it again soon; others may have their turn first
//!                ─► Asleep: call it again when the descriptor is readable, or the time is over
//! ```

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use quictun_shmq::Sleep;

use crate::executor::{Executor, Turn};
use crate::wait::WaitPolicy;

/// What the loop that an executor is part of has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// Every coroutine has ended.
    Ended,
    /// Call [`Executor::advance`] again without waiting.
    Ready,
    /// Call it again when the descriptor is readable, and at the latest after this time, if there is one.
    Asleep(Option<Duration>),
}

impl Executor {
    /// What is readable when an executor that is [`Advance::Asleep`] has something to do. It is this process's own: an
    /// epoll instance with the socket to the peer and an eventfd in it. Never read from it.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        match self.channel.borrow().descriptor() {
            Some(descriptor) => descriptor.try_clone_to_owned(),
            None => Err(io::Error::other("the channel has no socket: see `watch`")),
        }
    }

    /// Does what can be done now, up to a bound, and never waits; nothing where there was nothing to do. The peer still takes
    /// this side for awake, so that what it sends rings nowhere. Who has other things to look at, too, looks at all of them
    /// for a while, and calls [`advance`](Self::advance) before it waits.
    pub fn try_advance(&mut self) -> Option<Advance> {
        self.wake_up();
        let ran = match self.turn() {
            Turn::Ended => return Some(Advance::Ended),
            Turn::Ready => return Some(Advance::Ready),
            Turn::Idle { ran } => ran,
        };
        if self.is_last(ran) {
            self.channel.borrow_mut().flush();
        }
        ran.then_some(Advance::Ready)
    }

    /// Does what can be done now, up to a bound, and never waits, whatever the policy: with one that polls it is never
    /// asleep.
    pub fn advance(&mut self) -> Advance {
        self.wake_up();
        match self.turn() {
            Turn::Ended => return Advance::Ended,
            Turn::Ready => return Advance::Ready,
            Turn::Idle { .. } => {}
        }
        let channel = &mut *self.channel.borrow_mut();
        if self.policy == WaitPolicy::Polling {
            channel.flush();
            return Advance::Ready;
        }
        let wants = self.port.wants();
        if !channel.arm_for(Sleep::Descriptor, wants) || self.schedule.has_remote() {
            channel.disarm();
            return Advance::Ready;
        }
        self.idle.sleeps += 1;
        self.asleep = true;
        Advance::Asleep(self.port.patience(channel))
    }

    /// Where it slept until now.
    pub(crate) fn wake_up(&mut self) {
        if std::mem::take(&mut self.asleep) {
            self.channel.borrow_mut().wake_up();
        }
    }

    /// Runs until every coroutine has ended, as a task of tokio's: the thread does other things while nothing comes. Needs a
    /// runtime with I/O and time, and a task that stays on its thread (`LocalSet`, `block_on`). Dropping it stops the
    /// coroutines where they are; another run goes on with them.
    #[cfg(feature = "tokio")]
    pub async fn run_in_tokio(&mut self) -> io::Result<()> {
        use tokio::io::Interest;
        use tokio::io::unix::AsyncFd;

        #[allow(
            deprecated,
            reason = "the newer one is unsafe, for types that are not as honest about their descriptor as OwnedFd"
        )]
        let descriptor = AsyncFd::with_interest(self.descriptor()?, Interest::READABLE)?;
        loop {
            match self.advance() {
                Advance::Ended => return Ok(()),
                Advance::Ready => tokio::task::yield_now().await,
                Advance::Asleep(None) => descriptor.readable().await?.clear_ready(),
                Advance::Asleep(Some(patience)) => {
                    // Where the time is over, `advance` sees that.
                    if let Ok(ready) = tokio::time::timeout(patience, descriptor.readable()).await {
                        ready?.clear_ready();
                    }
                }
            }
        }
    }
}
