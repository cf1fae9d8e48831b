//! Random numbers that depend only on a seed, a packet's number and a purpose.
//!
//! All operations use integers or are exactly rounded, so every machine draws the same numbers.

/// The purpose of a random number. Draws for different purposes are independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Loss = 1,
    Duplicate = 2,
    Gap = 3,
    Reorder = 4,
    Jitter = 5,
    BurstStart = 6,
    BurstState = 7,
    BurstLoss = 8,
    NamedUp = 9,
    NamedDown = 10,
    NamedBoth = 11,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Draws {
    mixed_seed: u64,
}

impl Draws {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            mixed_seed: mix(seed),
        }
    }

    /// Returns whether packet `index` is among the share `share` of packets that are picked.
    pub(crate) fn picks(self, index: u64, purpose: Purpose, share: f64) -> bool {
        const MANTISSA: u32 = 53;
        if share <= 0.0 {
            return false;
        }
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit a double exactly")]
        let exact = |bits: u64| bits as f64;
        let number = self.bits(index, purpose) >> (u64::BITS - MANTISSA);
        exact(number) / exact(1 << MANTISSA) < share
    }

    /// Draws a number for packet `index`, at least 0 and below `end`.
    pub(crate) fn below(self, index: u64, purpose: Purpose, end: u64) -> u64 {
        if end == 0 {
            return 0;
        }
        let scaled = u128::from(self.bits(index, purpose)) * u128::from(end);
        u64::try_from(scaled >> u64::BITS).unwrap_or(u64::MAX)
    }

    fn bits(self, index: u64, purpose: Purpose) -> u64 {
        mix(mix(self.mixed_seed ^ index) ^ purpose as u64)
    }
}

/// Mixes a counter so that consecutive values look random: the finalizer of `SplitMix64` (Steele, Lea, Flood 2014).
fn mix(counter: u64) -> u64 {
    let mut z = counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
