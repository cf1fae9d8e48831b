//! Wakes the thread that waits on a channel from other threads of the same process.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::layout::RegionSide;
use crate::region::Region;
use crate::ring_pair::ALARM;

/// A handle with which any thread of the process wakes the thread that sleeps in [`crate::Channel::wait`].
#[derive(Clone, Debug)]
pub struct Alarm {
    region: Arc<Region>,
    side: RegionSide,
    /// The eventfd that [`crate::Channel::watch`] created; `None` before that call.
    eventfd: Option<Arc<OwnedFd>>,
    /// Number of times that the alarm was rung. The count is private to this process; it is not in the region.
    rings: Arc<AtomicU64>,
}

impl Alarm {
    pub(crate) fn new(region: Arc<Region>, side: RegionSide) -> Self {
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

    /// Wakes the thread wherever it sleeps and whatever its doorbell says. Also cancels an arming if the thread has not
    /// gone to sleep yet.
    pub(crate) fn ring_again(&self) {
        self.region.doorbell(self.side).disarm();
        self.wake();
    }

    pub(crate) fn rings(&self) -> u64 {
        // The ringing thread increments the count before the kernel wakes the thread that reads it.
        self.rings.load(Ordering::Relaxed)
    }

    fn wake(&self) {
        let bell = self.region.doorbell(self.side);
        bell.sleep_on().0.wake();
        if let Some(eventfd) = &self.eventfd {
            // The write fails only if the eventfd's counter is full, and then the eventfd is readable already.
            let _written = rustix::io::write(eventfd, &1_u64.to_ne_bytes());
        }
    }

    /// Wakes the thread, or prevents it from going to sleep.
    pub fn ring(&self) {
        self.rings.fetch_add(1, Ordering::Relaxed);
        // The doorbell's answer is ignored, because the peer can write to the doorbell's state, too.
        let _told = self.region.doorbell(self.side).ring(ALARM);
        self.wake();
    }
}
