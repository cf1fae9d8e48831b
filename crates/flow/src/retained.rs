//! Bytes that were handed to a stream and that the peer may ask for again, on another stream.
//!
//! Pieces are clones of what was read from the application: no byte is copied, and the memory is counted where it was
//! read ([`ReadBuffer::kept`](crate::ReadBuffer::kept)). Byte 0 is the application's first byte.

use std::collections::VecDeque;

use bytes::{Buf, Bytes};

use crate::read_buffer::memory_of;

/// Queue capacity that stays allocated while nothing is kept, in pieces.
const PLACES_MIN: usize = 8;

#[derive(Debug, Default)]
pub(crate) struct RetainedBytes {
    pieces: VecDeque<Bytes>,
    /// Number of the first byte that is kept.
    from: u64,
    /// Number after the last byte that is kept.
    end: u64,
    /// Memory behind the pieces, in bytes.
    memory: u64,
    /// Memory behind the first piece if a part of that piece was released; otherwise 0.
    first: u32,
    /// Number of pieces at the front that were given to the current stream.
    given: u32,
    /// Memory behind these pieces, in bytes.
    given_memory: u64,
    /// True if pieces are dropped as soon as they have been given to the current stream.
    over: bool,
}

impl RetainedBytes {
    /// Makes a place for bytes whose first one has this number.
    pub(crate) fn starting_at(from: u64) -> Self {
        Self {
            from,
            end: from,
            ..Self::default()
        }
    }

    /// Returns the kept bytes, in order.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &Bytes> {
        self.pieces.iter()
    }

    /// Returns the number of the first byte that is kept.
    pub(crate) fn from(&self) -> u64 {
        self.from
    }

    /// Returns the number of bytes that are kept.
    pub(crate) fn len(&self) -> u64 {
        self.end - self.from
    }

    /// Returns the memory behind the kept bytes, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.memory
    }

    /// Returns the memory behind the kept bytes that were not given to the current stream yet, in bytes.
    pub(crate) fn memory_to_give(&self) -> u64 {
        self.memory - self.given_memory
    }

    /// Keeps a piece that is given to the current stream now. All earlier pieces must have been given to it before.
    pub(crate) fn push(&mut self, piece: &Bytes) {
        self.end += piece.len() as u64;
        self.memory += memory_of(piece.len());
        self.pieces.push_back(piece.clone());
        self.hold_back();
    }

    /// Drops everything before the number `next`, which the peer has.
    pub(crate) fn release(&mut self, next: u64) {
        while self.from < next
            && let Some(front) = self.pieces.front_mut()
        {
            let left = usize::try_from(next - self.from).unwrap_or(usize::MAX);
            if left < front.len() {
                if self.first == 0 {
                    self.first = small(memory_of(front.len()));
                }
                front.advance(left);
                self.from = next;
                return;
            }
            self.pop();
        }
        self.shrink();
    }

    /// Drops everything that was given to the current stream. A peer that lacks some of it can no longer get it.
    pub(crate) fn forget(&mut self) {
        while self.given > 0 {
            self.pop();
        }
        self.shrink();
    }

    /// Marks all pieces as given, so that a new stream gets nothing for now.
    pub(crate) fn hold_back(&mut self) {
        self.given = small(self.pieces.len() as u64);
        self.given_memory = self.memory;
    }

    /// Makes a new stream get everything that is kept.
    pub(crate) fn give_again(&mut self) {
        self.given = 0;
        self.given_memory = 0;
    }

    /// Returns whether everything was given to the current stream.
    pub(crate) fn is_given(&self) -> bool {
        self.given == small(self.pieces.len() as u64)
    }

    /// Returns the next piece for the current stream.
    pub(crate) fn give(&mut self) -> Option<Bytes> {
        let piece = self.pieces.get(self.given as usize).cloned()?;
        self.given_memory += match self.first {
            whole @ 1.. if self.given == 0 => u64::from(whole),
            _ => memory_of(piece.len()),
        };
        self.given += 1;
        if self.over {
            self.forget();
        }
        Some(piece)
    }

    /// Keeps only the bytes that the current stream still lacks, from now on.
    pub(crate) fn end(&mut self) {
        self.over = true;
        self.forget();
    }

    /// Drops everything, because the peer takes no more bytes.
    pub(crate) fn clear(&mut self) {
        self.hold_back();
        self.forget();
    }

    /// Returns whether [`RetainedBytes::end`] was called.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    fn pop(&mut self) {
        if let Some(front) = self.pieces.pop_front() {
            self.from += front.len() as u64;
            let memory = match std::mem::take(&mut self.first) {
                0 => memory_of(front.len()),
                whole => u64::from(whole),
            };
            self.memory -= memory;
            if self.given > 0 {
                self.given_memory -= memory;
            }
        }
        self.given = self.given.saturating_sub(1);
    }

    fn shrink(&mut self) {
        if self.pieces.is_empty() && self.pieces.capacity() > PLACES_MIN {
            self.pieces.shrink_to(PLACES_MIN);
        }
    }
}

/// Converts to `u32`. No count of pieces and no size of a piece is larger.
fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The kept bytes are the end of what was pushed, whatever was released.
        #[test]
        fn the_retained_bytes_are_the_end_of_the_pushed_bytes(
            steps in proptest::collection::vec((1usize..50, 0u64..60), 1..60),
            ask in any::<proptest::sample::Index>(),
        ) {
            let (mut retained, mut whole) = (RetainedBytes::default(), Vec::new());
            for (length, released) in steps {
                let piece: Vec<u8> = (0..=250u8).cycle().skip(whole.len() % 251).take(length).collect();
                retained.push(&Bytes::from(piece.clone()));
                whole.extend(piece);
                let next = (retained.from() + released).min(whole.len() as u64);
                retained.release(next);
                prop_assert_eq!(retained.from(), next);
            }
            let released = usize::try_from(retained.from()).expect("a short stream");
            let from = released + ask.index(whole.len() - released + 1);
            retained.release(from as u64);
            retained.give_again();
            let kept: Vec<u8> = std::iter::from_fn(|| retained.give()).flatten().collect();
            prop_assert_eq!(&kept[..], &whole[from..]);
            prop_assert!(retained.is_given());
            prop_assert_eq!(retained.memory_to_give(), 0);
            retained.forget();
            prop_assert_eq!((retained.from(), retained.len()), (whole.len() as u64, 0));
            prop_assert_eq!((retained.memory(), retained.memory_to_give()), (0, 0));
        }
    }

    // A peer that moves its flows again and again costs no more memory than the bytes that it receives.
    #[test]
    fn a_move_copies_nothing_and_forgetting_spares_bytes_not_sent_again() {
        let mut retained = RetainedBytes::default();
        for _ in 0..100 {
            retained.push(&Bytes::from_static(b"0123456789"));
        }
        retained.release(15);
        retained.give_again();
        let first = retained.give().expect("a piece");
        assert_eq!((&first[..], retained.from()), (&b"56789"[..], 15));
        assert_eq!(retained.memory(), 99 * memory_of(10));
        assert_eq!(retained.memory_to_give(), 98 * memory_of(10));
        retained.forget();
        assert_eq!((retained.from(), retained.len()), (20, 980));
        assert_eq!(retained.memory_to_give(), retained.memory());
        retained.end();
        assert_eq!((retained.from(), retained.len()), (20, 980));
        let rest: Vec<u8> = std::iter::from_fn(|| retained.give()).flatten().collect();
        assert_eq!((rest.len(), retained.len(), retained.memory()), (980, 0, 0));
    }

    #[test]
    fn a_large_piece_counts_as_the_buffer_that_it_may_keep() {
        let mut retained = RetainedBytes::default();
        retained.push(&Bytes::from(vec![0; 16 * 1024]));
        let whole = retained.memory();
        assert!(whole >= 64 * 1024, "{whole}");
        for next in [1, 2, 16 * 1024 - 1] {
            retained.release(next);
            assert_eq!(retained.memory(), whole);
        }
        retained.release(16 * 1024);
        assert_eq!(retained.memory(), 0);
    }
}
