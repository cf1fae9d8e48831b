//! Puts chunks in order that arrive in any order.
//!
//! QUIC libraries reassemble too, but their limit on gaps, when exceeded, closes the whole connection. From the first
//! gap on, a flow reads unordered and holds early chunks here, under its own limit.

use std::collections::BTreeMap;

use bytes::{Buf, Bytes};

/// Holds chunks beyond a gap until the gap is filled.
#[derive(Debug, Default)]
pub struct Reassembly {
    /// Offset of the first byte not yet passed on.
    next: u64,
    /// Early chunks by offset. They do not overlap each other.
    early: BTreeMap<u64, Bytes>,
    /// Sum of the lengths in `early`.
    held: usize,
}

impl Reassembly {
    /// Starts with a stream whose first `next` bytes have already been passed on.
    pub fn starting_at(next: u64) -> Self {
        Self {
            next,
            ..Self::default()
        }
    }

    /// Takes a chunk at `offset`, and passes everything that became contiguous to `ready`, in order.
    ///
    /// Bytes seen before are dropped, so duplicates and overlaps are harmless. A chunk that has to wait is copied: a
    /// slice would keep the whole receive buffer alive, with the packets of many other flows.
    pub fn insert(&mut self, offset: u64, chunk: Bytes, ready: &mut impl FnMut(Bytes)) {
        if offset == self.next && self.early.is_empty() {
            self.pass(chunk, ready);
            return;
        }
        self.hold(offset, chunk);
        while let Some(entry) = self.early.first_entry() {
            if *entry.key() > self.next {
                break;
            }
            debug_assert_eq!(
                *entry.key(),
                self.next,
                "held chunks start at or after next"
            );
            let chunk = entry.remove();
            self.held -= chunk.len();
            self.pass(chunk, ready);
        }
        self.check_invariants();
    }

    /// Returns the number of bytes held beyond a gap.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Returns the number of separate pieces held beyond gaps.
    pub fn pieces(&self) -> usize {
        self.early.len()
    }

    /// Returns the offset of the first byte not yet passed on.
    pub fn next(&self) -> u64 {
        self.next
    }

    fn pass(&mut self, chunk: Bytes, ready: &mut impl FnMut(Bytes)) {
        if !chunk.is_empty() {
            self.next += chunk.len() as u64;
            ready(chunk);
        }
    }

    fn hold(&mut self, mut offset: u64, mut chunk: Bytes) {
        if offset < self.next {
            let seen = usize::try_from(self.next - offset).unwrap_or(usize::MAX);
            if seen >= chunk.len() {
                return;
            }
            chunk.advance(seen);
            offset = self.next;
        }
        if let Some((&before, held)) = self.early.range(..=offset).next_back() {
            let end = before + held.len() as u64;
            if end > offset {
                let seen = usize::try_from(end - offset).unwrap_or(usize::MAX);
                if seen >= chunk.len() {
                    return;
                }
                chunk.advance(seen);
                offset = end;
            }
        }
        while !chunk.is_empty() {
            let following = self
                .early
                .range(offset..)
                .next()
                .map(|(&at, held)| (at, held.len()));
            let room = following.map_or(chunk.len(), |(at, _)| {
                usize::try_from(at - offset)
                    .unwrap_or(usize::MAX)
                    .min(chunk.len())
            });
            if room > 0 {
                let part = chunk.split_to(room);
                self.held += room;
                let part = Bytes::copy_from_slice(&part);
                self.early.insert(offset, part);
                offset += room as u64;
            }
            if let Some((at, length)) = following.filter(|_| !chunk.is_empty()) {
                debug_assert_eq!(at, offset);
                chunk.advance(length.min(chunk.len()));
                offset += length as u64;
            }
        }
    }

    fn check_invariants(&self) {
        debug_assert!(
            self.early
                .keys()
                .next()
                .is_none_or(|&first| first > self.next)
        );
        // The full check runs only while it is cheap: a hostile peer makes thousands of pieces.
        let few = self.early.len() <= 64;
        debug_assert!(!few || self.held == self.early.values().map(Bytes::len).sum::<usize>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The bytes come out once and in order, whatever the order, the overlaps and the repeats.
        #[test]
        fn any_arrival_order_yields_the_stream(
            pieces in proptest::collection::vec((0usize..400, 1usize..90), 1..200),
        ) {
            let stream: Vec<u8> = (0..500u32).map(|i| (i * 7 % 251) as u8).collect();
            let mut reassembly = Reassembly::default();
            let mut out = Vec::new();
            let tail = (0..500).step_by(50).map(|at| (at, 50));
            for (at, length) in pieces.into_iter().chain(tail) {
                let chunk = Bytes::copy_from_slice(&stream[at..(at + length).min(500)]);
                reassembly.insert(at as u64, chunk, &mut |ready| out.extend_from_slice(&ready));
            }
            prop_assert_eq!(out, stream);
            prop_assert_eq!(reassembly.held(), 0);
            prop_assert_eq!(reassembly.next(), 500);
        }
    }
}
