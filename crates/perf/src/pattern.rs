//! A payload that both ends know: every byte that arrives is compared.
//!
//! It consists of blocks of 1 KiB. Eight bytes of each count the blocks, so that one in the wrong place is noticed;
//! the rest is the same pseudo-random text in all of them, which makes writing a copy and checking a comparison.

/// Bytes of a block.
const BLOCK: usize = 1024;

/// Bytes that count it.
const COUNTER: usize = 8;

/// Blocks that are written at once.
const BLOCKS: usize = 128;

/// A payload without end.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    seed: u64,
    /// [`BLOCKS`] blocks, whose counters are written over.
    text: Vec<u8>,
}

impl Pattern {
    pub(crate) fn new(seed: u64) -> Self {
        let mut state = seed;
        let words = (0..BLOCK / 8).flat_map(|_| {
            state = mixed(state);
            state.to_le_bytes()
        });
        let block: Vec<u8> = words.collect();
        Self {
            seed,
            text: block.repeat(BLOCKS),
        }
    }

    /// The payload from `offset` on: at least one byte and at most `most`.
    pub(crate) fn at(&mut self, offset: u64, most: usize) -> &[u8] {
        let first = offset / BLOCK as u64;
        let skip = remainder(offset);
        let end = (skip + most.max(1)).min(self.text.len());
        let counters = self.text.chunks_exact_mut(BLOCK).take(end.div_ceil(BLOCK));
        for (block, number) in counters.zip(first..) {
            block[..COUNTER].copy_from_slice(&(self.seed ^ number).to_le_bytes());
        }
        &self.text[skip..end]
    }

    /// Where `bytes`, which should be the payload from `offset` on, first differ from it.
    pub(crate) fn differs(&self, offset: u64, bytes: &[u8]) -> Option<u64> {
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let skip = remainder(at);
            let (part, after) = rest.split_at(rest.len().min(BLOCK - skip));
            let counter = (self.seed ^ (at / BLOCK as u64)).to_le_bytes();
            let counted = COUNTER.saturating_sub(skip).min(part.len());
            let known = &self.text[skip + counted..skip + part.len()];
            let same = part[counted..] == *known
                && (counted == 0 || part[..counted] == counter[skip..skip + counted]);
            if !same {
                let expected = (skip..skip + part.len())
                    .map(|index| counter.get(index).copied().unwrap_or(self.text[index]));
                let index = part.iter().zip(expected).position(|(a, b)| *a != b);
                return Some(at + index.unwrap_or_default() as u64);
            }
            at += part.len() as u64;
            rest = after;
        }
        None
    }
}

fn remainder(offset: u64) -> usize {
    usize::try_from(offset % BLOCK as u64).unwrap_or_default()
}

/// One step of `SplitMix64`.
fn mixed(state: u64) -> u64 {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(pattern: &mut Pattern, offset: u64, length: usize, step: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < length {
            let most = step.min(length - bytes.len());
            let part = pattern.at(offset + bytes.len() as u64, most);
            assert!((1..=most).contains(&part.len()));
            bytes.extend_from_slice(part);
        }
        bytes
    }

    proptest! {
        #[test]
        fn what_is_written_in_any_pieces_is_what_is_expected(
            seed in any::<u64>(), offset in 0..u64::MAX / 2, length in 1..200_000_usize, step in 1..90_000_usize,
        ) {
            let step = step.max(length / 100);
            let bytes = written(&mut Pattern::new(seed), offset, length, step);
            prop_assert_eq!(Pattern::new(seed).differs(offset, &bytes), None);
        }

        #[test]
        fn one_wrong_bit_is_found(
            seed in any::<u64>(), offset in 0..10_000_u64, length in 1..5000_usize, at in any::<prop::sample::Index>(), bit in 0..8,
        ) {
            let mut bytes = written(&mut Pattern::new(seed), offset, length, length);
            let at = at.index(length);
            bytes[at] ^= 1_u8 << bit;
            prop_assert_eq!(Pattern::new(seed).differs(offset, &bytes), Some(offset + at as u64));
        }
    }

    #[test]
    fn blocks_in_the_wrong_place_and_of_others_are_noticed() {
        let mut pattern = Pattern::new(7);
        let bytes = written(&mut pattern, 0, 4 * BLOCK, BLOCK);
        let swapped = [&bytes[BLOCK..2 * BLOCK], &bytes[..BLOCK]].concat();
        assert_eq!(pattern.differs(0, &swapped), Some(0));
        assert_eq!(Pattern::new(8).differs(0, &bytes), Some(0));
    }
}
