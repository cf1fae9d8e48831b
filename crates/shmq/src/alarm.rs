//! Wakes the thread that waits on a channel, from other threads of its process.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::layout::Side;
use crate::region::Region;
use crate::ring_pair::ALARM;

/// Wakes the process's own thread from [`crate::Channel::wait`], from any other.
#[derive(Clone, Debug)]
pub struct Alarm {
    region: Arc<Region>,
    side: Side,
    /// Where there is one: it came by [`crate::Channel::watch`].
    eventfd: Option<Arc<OwnedFd>>,
    /// Times that it was rung. Ours alone, as nothing in the region is.
    rings: Arc<AtomicU64>,
}

impl Alarm {
    pub(crate) fn new(region: Arc<Region>, side: Side) -> Self {
        Self {
            region,
            side,
            eventfd: None,
            rings: Arc::default(),
        }
    }

    pub(crate) fn with_eventfd(mut self, eventfd: Arc<OwnedFd>) -> Self {
        self.eventfd = Some(eventfd);
        self
    }

    /// Wakes the thread wherever it sleeps, whatever the doorbell says of it; and undoes an arming that the thread has not
    /// slept after yet.
    pub(crate) fn insist(&self) {
        self.region.doorbell(self.side).disarm();
        self.wake();
    }

    pub(crate) fn rings(&self) -> u64 {
        // Whoever rings counts before the kernel wakes who reads this.
        self.rings.load(Ordering::Relaxed)
    }

    fn wake(&self) {
        let bell = self.region.doorbell(self.side);
        bell.sleep_on().0.wake();
        if let Some(eventfd) = &self.eventfd {
            // It fails where it is full, and then it is readable.
            let _written = rustix::io::write(eventfd, &1_u64.to_ne_bytes());
        }
    }

    /// The thread does not sleep, or wakes up.
    pub fn ring(&self) {
        self.rings.fetch_add(1, Ordering::Relaxed);
        // Whom it says to wake is not believed: the peer writes there, too.
        let _told = self.region.doorbell(self.side).ring(ALARM);
        self.wake();
    }
}
