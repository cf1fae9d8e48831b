//! The share of packets that is lost whatever we send.
//!
//! Loss that congestion causes goes away when less is sent; loss that the medium causes does not. So the
//! floor is measured where we send less than the path carries, and believed as far as it holds there.

/// Packets after which older ones count half.
const MEMORY: f64 = 20_000.0;

/// Packets below which nothing is known.
const LEAST: f64 = 200.0;

/// More than this is not taken for the medium's.
pub(crate) const CAP: f64 = 0.06;

/// A share of packets, the latest counting most.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    packets: f64,
    lost: f64,
}

impl Share {
    fn add(&mut self, arrived: f64, lost: f64) {
        let fade = 1.0 / (1.0 + (arrived + lost) / MEMORY);
        self.packets = self.packets * fade + arrived + lost;
        self.lost = self.lost * fade + lost;
    }

    fn share(self) -> f64 {
        if self.packets > 0.0 {
            self.lost / self.packets
        } else {
            0.0
        }
    }

    fn deviation(self) -> f64 {
        deviation(self.share(), self.packets)
    }

    /// The share that may be behind it, beyond much doubt: where few were lost, chance alone may have kept them few.
    fn most(self) -> f64 {
        let lost = self.lost + 1.0;
        (lost + 2.0 * lost.sqrt()) / self.packets.max(1.0)
    }
}

/// Standard deviation of the share of lost packets among `packets`.
pub(crate) fn deviation(share: f64, packets: f64) -> f64 {
    (share * (1.0 - share) / packets.max(1.0)).sqrt()
}

/// Packets after which the sign of a standing queue is judged afresh.
const SIGN_MEMORY: f64 = 2_000.0;

/// Whether more is lost while packets wait than while they do not: the mark of a queue that overflows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Overflow {
    /// Of what passed a path without queue.
    free: Share,
    /// Of what waited, since the last verdict.
    queued: Share,
    /// Lost packets of batches, and their squares: how far losses come together.
    sum: f64,
    squares: f64,
}

impl Overflow {
    /// How many packets are lost at once: chance varies by its root more than single losses would.
    pub(crate) fn clump(&self) -> f64 {
        ((self.squares + 1.0) / (self.sum + 1.0)).max(1.0)
    }

    pub(crate) fn add(&mut self, arrived: f64, lost: f64, queued: bool) {
        if lost > 0.0 {
            self.sum = self.sum * 0.99 + lost;
            self.squares = self.squares * 0.99 + lost * lost;
        }
        if queued {
            self.queued.packets += arrived + lost;
            self.queued.lost += lost;
            if self.queued.packets > SIGN_MEMORY {
                self.queued.packets /= 2.0;
                self.queued.lost /= 2.0;
            }
        } else {
            self.free.add(arrived, lost);
        }
    }

    /// Whether a queue certainly overflowed; the next verdict is independent of this one. Where a `rival` is
    /// known, the least doubt is enough.
    pub(crate) fn take(&mut self, medium: Option<f64>, rival: bool) -> bool {
        let packets = self.queued.packets;
        let free = self.free.most();
        // What is not known to be the medium's may be: nobody has seen the path without our queue yet.
        let known = medium.map_or((self.free.share() + 0.01).min(CAP), |medium| {
            medium.min(free)
        });
        let expected = known * packets;
        let variance = expected * (1.0 - known);
        let most = if rival {
            expected + variance.sqrt() + 0.5
        } else {
            let clump = self.clump();
            MARGIN * expected + 4.0 * (MARGIN * variance * clump).sqrt() + 2.0 * clump
        };
        let overflowed = self.queued.lost > most;
        if overflowed {
            self.queued = Share::default();
        }
        overflowed
    }
}

/// Packets of a lost one's batch are taken to have waited alike, so that chance alone shows some more loss
/// among those that waited.
const MARGIN: f64 = 1.3;

/// See the module documentation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LossFloor {
    /// Of what left while less was sent than the path carries.
    easy: Share,
    /// Of everything that left while nothing waited.
    all: Share,
    /// An explicit mark (RFC 3168): there is congestion, whatever else is seen.
    marked: f64,
}

impl LossFloor {
    /// `arrived` and `lost` packets that left together.
    pub(crate) fn add(&mut self, arrived: f64, lost: f64, easy: bool) {
        if easy {
            self.easy.add(arrived, lost);
        }
        self.all.add(arrived, lost);
        self.marked *= 1.0 - ((arrived + lost) / MEMORY).min(1.0);
    }

    /// What was taken for sending easily may not have been.
    pub(crate) fn doubt(&mut self) {
        self.easy = Share::default();
    }

    pub(crate) fn mark(&mut self) {
        self.marked = 1.0;
    }

    /// The floor: what was certainly lost while sending less, 0 to [`CAP`].
    pub(crate) fn floor(&self) -> f64 {
        if self.easy.packets < LEAST || self.marked > 0.5 {
            return 0.0;
        }
        let easy = self.easy.share() + self.easy.deviation();
        easy.min(self.all.share()).min(CAP)
    }

    /// The floor without what chance may have added to it, which is so many standard deviations.
    pub(crate) fn certain(&self, deviations: f64) -> f64 {
        (self.floor() - deviations * self.easy.deviation()).max(0.0)
    }

    /// The floor with what chance may add to it, if anything is known.
    pub(crate) fn known(&self) -> Option<f64> {
        let enough = self.easy.packets >= LEAST;
        enough.then(|| self.easy.most().min(CAP))
    }

    /// How far loss is believed to come from the medium: how much of it is left when sending less.
    pub(crate) fn trust(&self) -> f64 {
        let all = self.all.share();
        if self.easy.packets < LEAST || self.marked > 0.5 {
            0.0
        } else if all <= 0.0 {
            1.0
        } else {
            (self.floor() / all.min(CAP)).min(1.0)
        }
    }
}
