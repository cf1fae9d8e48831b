//! How an emulator is told to end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

/// Ends an emulator, from any thread and however often.
#[derive(Clone, Debug)]
pub struct Stop(Arc<OwnedFd>);

impl Stop {
    /// One that has not been used.
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(event)))
    }

    /// Ends whoever waits for it, now or later.
    pub fn stop(&self) {
        // It fails only where the number is at its end: then it has been used before.
        rustix::io::write(&self.0, &1u64.to_ne_bytes()).ok();
    }
}

/// Readable once it was used.
impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
