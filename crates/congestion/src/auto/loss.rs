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
    /// Packets that passed a path without queue.
    free: Share,
    /// Packets that waited, since the last verdict.
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

    /// Whether a queue certainly overflowed, and it was not the medium of `floor` that lost; the next verdict is
    /// independent of this one. Beside a `rival` one loss is enough, as it is for CUBIC: a flow that waits for more has more.
    pub(crate) fn take(&mut self, floor: &LossFloor, rival: bool) -> bool {
        let most = if rival { 0.0 } else { self.most(floor) };
        let overflowed = self.queued.lost > most;
        if overflowed {
            self.queued = Share::default();
        }
        overflowed
    }

    /// The most packets of those that waited that chance and the medium may have taken.
    fn most(&self, floor: &LossFloor) -> f64 {
        let free = self.free.most();
        // What is not known to be the medium's may be: the path was not seen without our queue yet.
        let unknown = free.max(self.free.share() + 0.01);
        let known = floor
            .known()
            .map_or(unknown, |known| known.min(free))
            .min(CAP);
        let expected = MARGIN * known * self.queued.packets;
        let clump = self.clump();
        expected + 4.0 * (expected * (1.0 - known) * clump).sqrt() + 2.0 * clump
    }
}

/// Packets of a lost one's batch are taken to have waited alike, so that chance alone shows some more loss
/// among those that waited.
const MARGIN: f64 = 1.3;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LossFloor {
    /// Packets that left while less was sent than the path carries.
    easy: Share,
    /// All packets that left while nothing waited.
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

    /// What the medium loses with what chance may add to it, if anything is known.
    fn known(&self) -> Option<f64> {
        (self.easy.packets >= LEAST).then(|| self.easy.most())
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A verdict on 1000 packets that waited, `lost` of them one by one, after 250 that were sent easily and 2000 that
    /// did not wait, of which none was lost.
    fn overflowed(lost: u32, rival: bool) -> bool {
        let mut floor = LossFloor::default();
        let mut overflow = Overflow::default();
        floor.add(250.0, 0.0, true);
        overflow.add(2000.0, 0.0, false);
        overflow.add(1000.0 - f64::from(lost), 0.0, true);
        for _ in 0..lost {
            overflow.add(0.0, 1.0, true);
        }
        overflow.take(&floor, rival)
    }

    #[test]
    fn chance_is_no_overflow() {
        assert!(!overflowed(9, false));
        assert!(overflowed(10, false));
    }

    #[test]
    fn one_loss_is_enough_beside_a_rival() {
        assert!(!overflowed(0, true));
        assert!(overflowed(1, true));
    }
}
