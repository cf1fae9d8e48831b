//! The share of packets that is lost regardless of the sending rate.
//!
//! Loss caused by congestion disappears when less is sent; loss caused by the medium does not. So the loss floor is
//! measured while the sender sends less than the path carries, and loss is attributed to the medium as far as it
//! persists there.

/// Number of packets after which older packets count half.
const MEMORY: f64 = 20_000.0;

/// Minimum number of packets for an estimate.
const LEAST: f64 = 200.0;

/// Maximum loss that is attributed to the medium.
pub(crate) const CAP: f64 = 0.06;

/// A share of lost packets, in which the latest packets count most.
#[derive(Clone, Copy, Debug, Default)]
struct LossShare {
    packets: f64,
    lost: f64,
}

impl LossShare {
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

    /// Returns the highest share that the true loss rate is likely to have. If few packets were lost, chance alone
    /// may have kept their number low.
    fn most(self) -> f64 {
        let lost = self.lost + 1.0;
        (lost + 2.0 * lost.sqrt()) / self.packets.max(1.0)
    }
}

/// Returns the standard deviation of the share of lost packets among `packets`.
pub(crate) fn deviation(share: f64, packets: f64) -> f64 {
    (share * (1.0 - share) / packets.max(1.0)).sqrt()
}

/// Number of packets that waited after which earlier ones count half.
const SIGN_MEMORY: f64 = 2_000.0;

/// Compares the loss of packets that waited with the loss of packets that did not. A higher loss of packets that
/// waited shows that a queue overflows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Overflow {
    /// Packets that found no queue.
    free: LossShare,
    /// Packets that waited, since the last verdict.
    queued: LossShare,
    /// Sums of the lost packets per batch and of their squares, which show how far losses occur together.
    sum: f64,
    squares: f64,
}

impl Overflow {
    /// Returns how many packets are typically lost together. The standard deviation of the loss is larger than that
    /// of single losses by the square root of this number.
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

    /// Returns whether a queue certainly overflowed, so that the losses are not those of the medium described by
    /// `floor`. Each verdict is independent of earlier ones.
    ///
    /// If `one_is_enough`, one loss counts as an overflow.
    pub(crate) fn take(&mut self, floor: &LossFloor, one_is_enough: bool) -> bool {
        let most = if one_is_enough { 0.0 } else { self.most(floor) };
        let overflowed = self.queued.lost > most;
        if overflowed {
            self.queued = LossShare::default();
        }
        overflowed
    }

    /// Returns whether the medium certainly loses so many packets that a flow that yields to loss keeps a small window.
    pub(crate) fn medium_loses(&self) -> bool {
        let certain = self.free.share() - 2.0 * self.free.deviation();
        self.free.packets >= LEAST && certain >= MEDIUM_LOSES
    }

    /// Returns the maximum number of waiting packets whose loss can be explained by chance and by the medium.
    fn most(&self, floor: &LossFloor) -> f64 {
        let free = self.free.most();
        // Loss of unknown cause may be the medium's, because the path has not been seen without this sender's queue
        // yet.
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

/// Loss that leaves a flow that yields to loss a window of about 40 packets (RFC 9438 section 5.1).
const MEDIUM_LOSES: f64 = 0.001;

/// Factor on the expected loss of packets that waited. All packets of a batch with a loss are assumed to have waited
/// equally long, so chance alone shows somewhat more loss among packets that waited.
const MARGIN: f64 = 1.3;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LossFloor {
    /// Packets that were sent at less than the path's bandwidth.
    easy: LossShare,
    /// All packets that were sent while no queue was seen.
    all: LossShare,
    /// Weight of explicit congestion marks (RFC 3168). A mark means congestion, regardless of the losses.
    marked: f64,
}

impl LossFloor {
    /// Adds a batch of which `arrived` packets arrived and `lost` packets were lost. `easy` is true if it was sent at
    /// less than the path's bandwidth.
    pub(crate) fn add(&mut self, arrived: f64, lost: f64, easy: bool) {
        if easy {
            self.easy.add(arrived, lost);
        }
        self.all.add(arrived, lost);
        self.marked *= 1.0 - ((arrived + lost) / MEMORY).min(1.0);
    }

    /// Discards the packets that seemed to be sent at less than the path's bandwidth, because that may have been
    /// wrong.
    pub(crate) fn forget_easy(&mut self) {
        self.easy = LossShare::default();
    }

    pub(crate) fn mark(&mut self) {
        self.marked = 1.0;
    }

    /// Returns the loss floor: the share that was certainly lost while less was sent, from 0 to [`CAP`].
    pub(crate) fn floor(&self) -> f64 {
        if self.easy.packets < LEAST || self.marked > 0.5 {
            return 0.0;
        }
        let easy = self.easy.share() + self.easy.deviation();
        easy.min(self.all.share()).min(CAP)
    }

    /// Returns the loss floor minus the given number of standard deviations, which chance may have added to it.
    pub(crate) fn certain(&self, deviations: f64) -> f64 {
        (self.floor() - deviations * self.easy.deviation()).max(0.0)
    }

    /// Returns the loss of the medium plus what chance may add to it, or `None` if too few packets are known.
    fn known(&self) -> Option<f64> {
        (self.easy.packets >= LEAST).then(|| self.easy.most())
    }

    /// Returns how far loss is believed to come from the medium: the part of the loss that persists when less is
    /// sent.
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

    /// Returns the verdict on 1000 packets that waited, of which `lost` were lost one by one. Before them, 250
    /// packets were sent easily and 2000 packets did not wait, and none of those was lost.
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
