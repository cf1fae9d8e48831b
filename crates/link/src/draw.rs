//! Random numbers that depend on a seed, a packet's number and a purpose, and on nothing else.
//!
//! Integers and exactly rounded operations only: every machine draws the same.

/// What a number is drawn for: draws for different purposes are independent.
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

    /// Whether packet `index` is one of the `share` that are picked.
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

    /// A number for packet `index` from 0 up to, but without, `end`.
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

/// The finalizer of `SplitMix64` (Steele, Lea, Flood 2014), which makes any counter look random.
fn mix(counter: u64) -> u64 {
    let mut z = counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
