//! The doorbells of a region, and who may ring them.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Channel;
use crate::doorbell::{Doorbell, Sleep};
use crate::layout::Side;
use crate::life::Life;
use crate::party::{ALARM, Bells};
use crate::region::Region;

/// Wakes the process's own thread from [`Channel::wait`], from any other.
#[derive(Clone, Debug)]
pub struct Alarm {
    region: Arc<Region>,
    side: Side,
    /// Where there is one: it came by [`Channel::watch`].
    eventfd: Option<Arc<OwnedFd>>,
    /// Times that it was rung. Ours alone, as nothing in the region is.
    rings: Arc<AtomicU64>,
}

impl Alarm {
    pub(super) fn new(region: Arc<Region>, side: Side) -> Self {
        Self {
            region,
            side,
            eventfd: None,
            rings: Arc::default(),
        }
    }

    /// Wakes who sleeps on that descriptor, too.
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

    /// How often it was rung.
    pub(super) fn rings(&self) -> u64 {
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

/// The doorbells of a region, as one side sees them.
#[derive(Debug)]
pub(super) struct RegionBells {
    pub(super) region: Arc<Region>,
    pub(super) side: Side,
    pub(super) life: Option<Life>,
}

impl Bells for RegionBells {
    #[inline]
    fn own(&self) -> &Doorbell {
        self.region.doorbell(self.side)
    }

    #[inline]
    fn peer(&self) -> &Doorbell {
        self.region.doorbell(self.side.peer())
    }

    fn wake_peer(&self, sleep: Sleep) {
        match sleep {
            Sleep::Futex => self.peer().sleep_on().0.wake(),
            Sleep::Descriptor => self.life.iter().for_each(Life::wake_peer),
        }
    }
}

impl Channel {
    /// For waking whoever waits here; on the descriptor, too, where it was taken after [`watch`](Self::watch).
    pub fn alarm(&self) -> Alarm {
        self.alarm.clone()
    }
}
