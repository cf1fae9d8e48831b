//! The doorbells of a region, and who may ring them.

use std::os::fd::OwnedFd;
use std::sync::Arc;

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
}

impl Alarm {
    pub(crate) fn new(region: &Arc<Region>, side: Side, eventfd: Option<Arc<OwnedFd>>) -> Self {
        Self {
            region: region.clone(),
            side,
            eventfd,
        }
    }

    /// Wakes the thread wherever it sleeps, whatever the doorbell says of it.
    pub(crate) fn wake(&self) {
        let bell = self.region.doorbell(self.side);
        bell.disarm();
        bell.sleep_on().0.wake();
        if let Some(eventfd) = &self.eventfd {
            // It fails where it is full, and then it is readable.
            let _written = rustix::io::write(eventfd, &1_u64.to_ne_bytes());
        }
    }

    /// The thread does not sleep, or wakes up.
    pub fn ring(&self) {
        let bell = self.region.doorbell(self.side);
        match bell.ring(ALARM) {
            Some(Sleep::Futex) => bell.sleep_on().0.wake(),
            Some(Sleep::Descriptor) => {
                if let Some(eventfd) = &self.eventfd {
                    // It fails where it is full, and then it is readable.
                    let _written = rustix::io::write(eventfd, &1_u64.to_ne_bytes());
                }
            }
            None => {}
        }
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
        let bells = &self.party.bells;
        Alarm::new(&bells.region, bells.side, self.life().map(Life::alarm))
    }
}
