//! Bytes in order that wait for the application, as the pieces in which they arrived.
//!
//! The worker receives up to 64 KiB of datagrams at once. A piece is a slice of such a batch: it costs no copy, but it
//! keeps the whole batch in memory. [`ReadyBytes::compact`] copies small pieces and counts the batches that the others
//! keep ([`ReadyBytes::batches`]). [`ReadyBytes::detach`] copies those pieces, too. The count depends on memory
//! addresses, so nothing that a peer can observe may depend on it: `detach` keeps the number of pieces and their
//! lengths.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};

/// Pieces in one gathering write. `IOV_MAX` is 1024, but beyond 64 the call no longer gets cheaper.
pub(crate) const WRITE_CHUNKS: usize = 64;

/// Cost of a piece besides its bytes: its entry in the queue.
const PIECE_COST: usize = 64;

/// Length of the longest batch, in bytes. A piece counts as a slice of the same batch if it begins less than this
/// behind the piece that was counted last.
const BATCH_MAX: usize = 64 * 1024;

/// Length of the copies that [`ReadyBytes::pack`] makes, in bytes, unless one piece is longer.
pub(crate) const PACKED_MAX: usize = 16 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backing {
    /// Not known yet: [`ReadyBytes::compact`] has not seen the piece.
    Unknown,
    /// The piece is a copy and keeps only its own bytes.
    Copy,
    /// The piece keeps a batch that an earlier piece counts for.
    Slice,
    /// The piece keeps a batch, and counts for it.
    Batch,
}

#[derive(Debug)]
struct Piece {
    bytes: Bytes,
    backing: Backing,
}

#[derive(Debug, Default)]
pub(crate) struct ReadyBytes {
    pieces: VecDeque<Piece>,
    bytes: usize,
    /// Number of pieces at the front that are not new.
    seen: usize,
    /// Number of pieces at the front that are copies.
    copies: usize,
    batches: usize,
    /// Address of the piece that was counted last.
    batch: usize,
}

impl ReadyBytes {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the memory that the pieces take, in bytes, without the rest of their batches.
    pub(crate) fn held(&self) -> usize {
        self.bytes + self.pieces.len() * PIECE_COST
    }

    /// Returns the number of batches that the pieces seen by [`ReadyBytes::compact`] keep in memory. Two batches that
    /// are adjacent in memory may count as one, so the true number is at most twice as large.
    pub(crate) fn batches(&self) -> usize {
        self.batches
    }

    pub(crate) fn push(&mut self, bytes: Bytes) {
        self.bytes += bytes.len();
        self.pieces.push_back(Piece {
            bytes,
            backing: Backing::Unknown,
        });
    }

    pub(crate) fn pieces(&self) -> impl Iterator<Item = &Bytes> {
        self.pieces.iter().map(|piece| &piece.bytes)
    }

    /// Fills `slices` with the first pieces, at most `most` bytes. Returns how many slices were filled.
    pub(crate) fn slices<'a>(
        &'a self,
        slices: &mut [IoSlice<'a>; WRITE_CHUNKS],
        most: usize,
    ) -> usize {
        let (mut count, mut left) = (0, most);
        for (slot, bytes) in slices.iter_mut().zip(self.pieces()) {
            if left == 0 {
                break;
            }
            let part = bytes.len().min(left);
            *slot = IoSlice::new(&bytes[..part]);
            left -= part;
            count += 1;
        }
        count
    }

    pub(crate) fn advance(&mut self, mut bytes: usize) {
        self.bytes -= bytes;
        while bytes > 0 {
            let Some(front) = self.pieces.front_mut() else {
                break;
            };
            if bytes < front.bytes.len() {
                front.bytes.advance(bytes);
                break;
            }
            bytes -= front.bytes.len();
            self.drop_front();
        }
    }

    fn drop_front(&mut self) {
        let dropped = self.pieces.pop_front().map(|piece| piece.backing);
        self.seen = self.seen.saturating_sub(1);
        self.copies = self.copies.saturating_sub(1);
        if dropped == Some(Backing::Batch) {
            match self.pieces.front_mut() {
                Some(next) if next.backing == Backing::Slice => next.backing = Backing::Batch,
                _ => self.batches -= 1,
            }
        }
    }

    /// Copies new pieces shorter than `copy_below` bytes, and counts the batches that the longer ones keep.
    pub(crate) fn compact(&mut self, copy_below: usize) {
        let last = self.seen.checked_sub(1);
        let last = last.and_then(|last| self.pieces.get(last));
        let mut follows = last.is_some_and(|piece| piece.backing != Backing::Copy);
        for piece in self.pieces.range_mut(self.seen..) {
            if piece.bytes.len() < copy_below {
                piece.bytes = Bytes::copy_from_slice(&piece.bytes);
                piece.backing = Backing::Copy;
                follows = false;
                continue;
            }
            let address = piece.bytes.as_ptr() as usize;
            if follows && address.wrapping_sub(self.batch) < BATCH_MAX {
                piece.backing = Backing::Slice;
                continue;
            }
            piece.backing = Backing::Batch;
            (self.batch, follows) = (address, true);
            self.batches += 1;
        }
        self.seen = self.pieces.len();
    }

    /// Copies the pieces that are slices, so that they keep no batch in memory.
    pub(crate) fn detach(&mut self) {
        for piece in self.pieces.range_mut(self.copies..) {
            if piece.backing != Backing::Copy {
                piece.bytes = Bytes::copy_from_slice(&piece.bytes);
                piece.backing = Backing::Copy;
            }
        }
        self.copied();
    }

    /// Merges all pieces into a few copies, so that their number costs little.
    pub(crate) fn pack(&mut self) {
        let mut slices = self.pieces.split_off(self.copies.min(self.pieces.len()));
        while !slices.is_empty() {
            let mut bytes = 0;
            let fitting = |piece: &&Piece| {
                bytes += piece.bytes.len();
                bytes <= PACKED_MAX
            };
            let count = slices.iter().take_while(fitting).count().max(1);
            let length = slices.range(..count).map(|piece| piece.bytes.len()).sum();
            let mut packed = BytesMut::with_capacity(length);
            for piece in slices.drain(..count) {
                packed.extend_from_slice(&piece.bytes);
            }
            self.pieces.push_back(Piece {
                bytes: packed.freeze(),
                backing: Backing::Copy,
            });
        }
        self.copied();
    }

    fn copied(&mut self) {
        (self.seen, self.copies) = (self.pieces.len(), self.pieces.len());
        self.batches = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: usize = 1200;
    const BELOW: usize = 1024;

    /// Makes `count` long pieces that are slices of one batch.
    fn batch(count: usize) -> Vec<Bytes> {
        let whole = Bytes::from(vec![7; count * LONG]);
        (0..count)
            .map(|number| whole.slice(number * LONG..(number + 1) * LONG))
            .collect()
    }

    fn ready(pieces: impl IntoIterator<Item = Bytes>) -> ReadyBytes {
        let mut ready = ReadyBytes::default();
        for piece in pieces {
            ready.push(piece);
        }
        ready.compact(BELOW);
        ready
    }

    #[test]
    fn pieces_of_a_batch_count_once_until_the_last_is_consumed() {
        let mut ready = ready(batch(10));
        assert_eq!(ready.batches(), 1);
        ready.advance(9 * LONG + 5);
        assert_eq!(ready.batches(), 1);
        ready.advance(LONG - 5);
        assert_eq!((ready.batches(), ready.bytes()), (0, 0));
    }

    #[test]
    fn a_piece_of_each_batch_counts_for_each() {
        // No shorter than the longest batch, so pieces of adjacent batches are never taken for one batch's.
        let pieces = BATCH_MAX.div_ceil(LONG);
        let batches: Vec<_> = (0..20).map(|_| batch(pieces)).collect();
        let mut ready = ready(batches.iter().map(|batch| batch[3].clone()));
        assert_eq!(ready.batches(), 20);
        ready.advance(LONG);
        assert_eq!(ready.batches(), 19);
    }

    #[test]
    fn batches_that_follow_each_other_in_memory_count_each() {
        let memory = Bytes::from(vec![7; 40 * BATCH_MAX]);
        // The later the batch, the earlier its piece starts, so adjacent pieces are closer together than the length of
        // a batch.
        let piece = |number: usize| {
            let start = number * BATCH_MAX + (39 - number) * LONG;
            memory.slice(start..start + LONG)
        };
        let ready = ready((0..40).map(piece));
        assert!(ready.batches() >= 20, "{}", ready.batches());
    }

    #[test]
    fn small_pieces_are_copied_and_keep_nothing() {
        let whole = batch(1).remove(0);
        let ready = ready([whole.slice(..10), whole.slice(10..20)]);
        assert_eq!((ready.batches(), ready.bytes()), (0, 20));
        drop(ready);
        assert!(whole.is_unique());
    }

    #[test]
    fn detached_pieces_are_the_same_and_keep_no_batch() {
        let pieces: Vec<Bytes> = (0..3).flat_map(|_| batch(30)).collect();
        let mut ready = ready(pieces.iter().cloned());
        ready.advance(3 * LONG + 7);
        let (held, bytes) = (ready.held(), ready.bytes());
        ready.detach();
        assert_eq!((ready.held(), ready.bytes()), (held, bytes));
        ready.push(batch(1).remove(0));
        ready.detach();
        assert_eq!(ready.batches(), 0);
        assert_eq!(ready.pieces().count(), 3 * 30 - 3 + 1);
        for piece in pieces {
            assert!(ready.pieces().all(|kept| kept.as_ptr() != piece.as_ptr()));
        }
    }

    #[test]
    fn packed_bytes_are_the_same_and_keep_no_batch() {
        let pieces: Vec<Bytes> = (0..3).flat_map(|_| batch(30)).collect();
        let mut ready = ready(pieces.iter().cloned());
        ready.advance(3 * LONG + 7);
        ready.pack();
        for piece in batch(2) {
            ready.push(piece);
        }
        ready.pack();
        assert_eq!(ready.batches(), 0);
        assert!(ready.pieces().all(|piece| piece.len() <= PACKED_MAX));
        let bytes: usize = ready.pieces().map(Bytes::len).sum();
        assert_eq!((bytes, ready.bytes()), (89 * LONG - 7, 89 * LONG - 7));
        for piece in pieces {
            assert!(ready.pieces().all(|kept| kept.as_ptr() != piece.as_ptr()));
        }
    }
}
