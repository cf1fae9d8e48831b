//! Bytes that were handed to a stream and that the peer may ask for again, on another one.
//!
//! Pieces are clones of what was read from the application: no byte is copied, and the memory is counted where it was read
//! ([`ReadBuffer::kept`](crate::ReadBuffer::kept)). Byte 0 is the application's first.

use std::collections::VecDeque;

use bytes::{Buf, Bytes};

/// Places for pieces that stay allocated while nothing is kept.
const PLACES_MIN: usize = 8;

#[derive(Debug, Default)]
pub(crate) struct Retained {
    pieces: VecDeque<Bytes>,
    /// Number of the first byte that is kept.
    from: u64,
    /// Number after the last byte.
    end: u64,
}

impl Retained {
    /// Number of the first byte that is kept.
    pub(crate) fn from(&self) -> u64 {
        self.from
    }

    /// Bytes that are kept.
    pub(crate) fn len(&self) -> u64 {
        self.end - self.from
    }

    pub(crate) fn push(&mut self, piece: &Bytes) {
        self.end += piece.len() as u64;
        self.pieces.push_back(piece.clone());
    }

    /// The peer has everything before the number `next`.
    pub(crate) fn release(&mut self, next: u64) {
        while self.from < next
            && let Some(front) = self.pieces.front_mut()
        {
            let left = usize::try_from(next - self.from).unwrap_or(usize::MAX);
            if left < front.len() {
                front.advance(left);
                self.from = next;
                return;
            }
            self.from += front.len() as u64;
            self.pieces.pop_front();
        }
        if self.pieces.is_empty() && self.pieces.capacity() > PLACES_MIN {
            self.pieces.shrink_to(PLACES_MIN);
        }
    }

    /// Keeps nothing of what was handed over so far: a peer that lacks some of it can no longer get it.
    pub(crate) fn forget(&mut self) {
        self.pieces = VecDeque::new();
        self.from = self.end;
    }

    /// The kept bytes from the number `next` on, in order.
    pub(crate) fn pieces_from(&self, next: u64) -> VecDeque<Bytes> {
        let mut at = self.from;
        let mut pieces = VecDeque::new();
        for piece in &self.pieces {
            let end = at + piece.len() as u64;
            if end > next {
                let skipped = usize::try_from(next.saturating_sub(at)).unwrap_or(usize::MAX);
                pieces.push_back(piece.slice(skipped..));
            }
            at = end;
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever was released, the rest is what was pushed, from any number on.
        #[test]
        fn what_is_kept_is_the_end_of_what_was_pushed(
            steps in proptest::collection::vec((1usize..50, 0u64..60), 1..60),
            ask in any::<proptest::sample::Index>(),
        ) {
            let (mut retained, mut whole) = (Retained::default(), Vec::new());
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
            let kept: Vec<u8> = retained.pieces_from(from as u64).iter().flatten().copied().collect();
            prop_assert_eq!(&kept[..], &whole[from..]);
            retained.forget();
            prop_assert_eq!((retained.from(), retained.len()), (whole.len() as u64, 0));
        }
    }
}
