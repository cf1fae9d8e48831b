//! The request that ends an emulator.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

/// Stops an emulator. Any thread may use it, any number of times.
#[derive(Clone, Debug)]
pub struct Stop(Arc<OwnedFd>);

impl Stop {
    /// Creates a stop request that has not been sent.
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(event)))
    }

    /// Stops every emulator that waits for this request, now or later.
    pub fn stop(&self) {
        // The write fails only if the counter is at its maximum, so that an earlier call has already stopped the
        // emulator.
        rustix::io::write(&self.0, &1u64.to_ne_bytes()).ok();
    }
}

/// The descriptor is readable once [`Stop::stop`] has been called.
impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
