//! A payload that both ends know, so that every byte that arrives can be compared.
//!
//! The payload consists of blocks of 1 KiB. Eight bytes of each block hold its number, so that a block in the wrong
//! place is noticed. The rest is the same pseudo-random text in all blocks, so writing is a copy and checking is a
//! comparison.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

const BLOCK: usize = 1024;

/// Bytes of a block that hold its number.
const COUNTER: usize = 8;

const BLOCKS: usize = 128;

/// Length of the longest piece, long enough for reuse of its memory to pay.
const PIECE: usize = 64 * 1024;

/// Number of lent pieces that the pattern remembers: 64 MiB.
const LENT: usize = 1024;

#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    seed: u64,
    /// [`BLOCKS`] blocks. Their counters are overwritten for each use.
    text: Vec<u8>,
    /// Memory of pieces that may still be in use, the oldest first; `free` holds the memory of pieces no longer in use.
    lent: VecDeque<Bytes>,
    free: Vec<BytesMut>,
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
            lent: VecDeque::new(),
            free: Vec::new(),
        }
    }

    /// Returns the payload from `offset` on: at least one byte and at most `most`.
    pub(crate) fn at(&mut self, offset: u64, most: usize) -> &[u8] {
        let skip = remainder(offset);
        let end = (skip + most.max(1)).min(self.text.len());
        count(&mut self.text[..end], self.seed, offset);
        &self.text[skip..end]
    }

    /// Returns the payload from `offset` on as memory that the caller can keep, of at most 64 KiB. Memory that the
    /// caller has dropped is reused. All blocks are alike except for their counters, so only the counters are written
    /// again.
    pub(crate) fn piece(&mut self, offset: u64, most: usize) -> Bytes {
        while self.lent.front().is_some_and(Bytes::is_unique) {
            let back = self.lent.pop_front().map(Bytes::try_into_mut);
            self.free.extend(back.and_then(Result::ok));
        }
        let fresh = || BytesMut::from(&self.text[..PIECE + BLOCK]);
        let mut memory = self.free.pop().unwrap_or_else(fresh);
        let skip = remainder(offset);
        let end = skip + most.clamp(1, PIECE);
        count(&mut memory[..end], self.seed, offset);
        let memory = memory.freeze();
        let piece = memory.slice(skip..end);
        if self.lent.len() < LENT {
            self.lent.push_back(memory);
        }
        piece
    }

    /// Compares `bytes` with the payload from `offset` on, and returns the offset of the first difference.
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

/// Writes the counters into a text whose first block holds the byte at `offset`.
fn count(text: &mut [u8], seed: u64, offset: u64) {
    let first = offset / BLOCK as u64;
    for (block, number) in text.chunks_mut(BLOCK).zip(first..) {
        let counter = (seed ^ number).to_le_bytes();
        let part = block.len().min(COUNTER);
        block[..part].copy_from_slice(&counter[..part]);
    }
}

fn remainder(offset: u64) -> usize {
    usize::try_from(offset % BLOCK as u64).unwrap_or_default()
}

/// Computes one step of `SplitMix64`.
fn mixed(state: u64) -> u64 {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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
        fn a_payload_written_in_any_pieces_matches(
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
    fn lent_pieces_match_and_their_memory_is_reused() {
        let mut pattern = Pattern::new(7);
        let (mut offset, mut held, mut places) = (5, VecDeque::new(), BTreeSet::new());
        for index in 0..1000 {
            let most = [1, 999, 65_000, 70_000][index % 4];
            let piece = pattern.piece(offset, most);
            assert!((1..=most).contains(&piece.len()));
            let begin = piece.as_ptr() as usize - remainder(offset);
            places.insert(begin);
            held.push_back((offset, piece));
            offset += held.back().map_or(0, |(_, piece)| piece.len()) as u64;
            if held.len() > 10 {
                let (offset, piece) = held.pop_front().expect("held piece");
                assert_eq!(Pattern::new(7).differs(offset, &piece), None);
            }
        }
        assert!(places.len() <= 12, "{}", places.len());
    }

    #[test]
    fn misplaced_and_foreign_blocks_are_detected() {
        let mut pattern = Pattern::new(7);
        let bytes = written(&mut pattern, 0, 4 * BLOCK, BLOCK);
        let swapped = [&bytes[BLOCK..2 * BLOCK], &bytes[..BLOCK]].concat();
        assert_eq!(pattern.differs(0, &swapped), Some(0));
        assert_eq!(Pattern::new(8).differs(0, &bytes), Some(0));
    }
}
