//! The bytes that applications send. Any offset of any stream is available at the cost of a copy.

use std::sync::OnceLock;

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

/// Length of the repeated block. It is prime, so that the period does not hide an error by a power of two.
const PERIOD: usize = 1_048_583;

fn block() -> &'static [u8] {
    static BLOCK: OnceLock<Vec<u8>> = OnceLock::new();
    BLOCK.get_or_init(|| {
        let mut bytes = vec![0; PERIOD];
        ChaCha8Rng::from_seed([7; 32]).fill_bytes(&mut bytes);
        bytes
    })
}

/// Returns bytes of stream `seed` from `offset` on: at least one, at most `most`.
pub(crate) fn bytes(seed: u64, offset: u64, most: usize) -> &'static [u8] {
    let start = seed.wrapping_mul(611_953) % PERIOD as u64 + offset % PERIOD as u64;
    let start = usize::try_from(start).unwrap_or(0) % PERIOD;
    &block()[start..(start + most.max(1)).min(PERIOD)]
}

/// Returns the first offset at which `found`, which begins at `offset`, differs from stream `seed`.
pub(crate) fn first_difference(seed: u64, mut offset: u64, mut found: &[u8]) -> Option<u64> {
    while !found.is_empty() {
        let expected = bytes(seed, offset, found.len());
        let (part, rest) = found.split_at(expected.len());
        if part != expected {
            let same = part
                .iter()
                .zip(expected)
                .take_while(|(a, b)| a == b)
                .count();
            return Some(offset + same as u64);
        }
        offset += expected.len() as u64;
        found = rest;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_shifted_or_foreign_byte_is_found() {
        let mut stream = Vec::new();
        while stream.len() < 2_000_000 {
            let part = bytes(5, stream.len() as u64, 100_000);
            stream.extend_from_slice(part);
        }
        assert_eq!(first_difference(5, 0, &stream), None);
        assert_eq!(first_difference(5, 1_000_000, &stream[1_000_000..]), None);
        assert!(first_difference(5, 1, &stream).is_some());
        assert!(first_difference(6, 0, &stream).is_some());
        stream[1_500_000] ^= 1;
        assert_eq!(first_difference(5, 0, &stream), Some(1_500_000));
    }
}
