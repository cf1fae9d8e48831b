//! Random numbers that depend on a seed, a packet's number and a purpose, and on nothing else.

/// What a number is drawn for: draws for different purposes are independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Loss = 1,
    Duplicate = 2,
    Gap = 3,
    Reorder = 4,
    Jitter = 5,
}

/// A number in 0..1 for packet `index`.
pub(crate) fn draw(seed: u64, index: u64, purpose: Purpose) -> f64 {
    const MANTISSA: u32 = 53;
    let mixed = mix(mix(mix(seed) ^ index) ^ purpose as u64);
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit a double exactly")]
    let exact = |bits: u64| bits as f64;
    exact(mixed >> (u64::BITS - MANTISSA)) / exact(1 << MANTISSA)
}

/// The finalizer of `SplitMix64` (Steele, Lea, Flood 2014), which makes any counter look random.
fn mix(counter: u64) -> u64 {
    let mut z = counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
