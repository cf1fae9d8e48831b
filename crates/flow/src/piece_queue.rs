//! Bytes of a stream that wait in the order in which they came, for carriers whose frames arrive in order.

use std::collections::VecDeque;

use bytes::{BufMut, Bytes, BytesMut};

/// Pieces of a stream's bytes, in order.
#[derive(Debug, Default)]
pub struct PieceQueue {
    pieces: VecDeque<Bytes>,
    /// Copies of short pieces, which follow `pieces`.
    tail: BytesMut,
    /// Number of bytes in `pieces` and `tail`.
    length: u64,
}

impl PieceQueue {
    /// Returns the number of bytes that wait.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Returns whether no byte waits.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Adds a piece, which is copied if it is shorter than `copy_below` bytes. A piece that is not copied keeps the memory
    /// of all that was read with it.
    pub fn push(&mut self, piece: Bytes, copy_below: usize) {
        self.length += piece.len() as u64;
        if piece.len() < copy_below {
            self.tail.extend_from_slice(&piece);
        } else {
            self.seal_tail();
            self.pieces.push_back(piece);
        }
    }

    /// Takes the next piece, of at most `most` bytes.
    pub fn pop(&mut self, most: usize) -> Option<Bytes> {
        if self.pieces.is_empty() {
            self.seal_tail();
        }
        let first = self.pieces.front_mut()?;
        let piece = first.split_to(most.min(first.len()));
        if first.is_empty() {
            self.pieces.pop_front();
        }
        self.length -= piece.len() as u64;
        Some(piece)
    }

    /// Moves the first `length` bytes to `out`.
    pub fn pull(&mut self, mut length: usize, out: &mut impl BufMut) {
        while length > 0
            && let Some(piece) = self.pop(length)
        {
            length -= piece.len();
            out.put(piece);
        }
    }

    /// Keeps the first `keep` bytes. Returns the number of bytes that are dropped.
    pub fn truncate(&mut self, keep: u64) -> u64 {
        let before = self.length;
        self.seal_tail();
        while self.length > keep
            && let Some(last) = self.pieces.back_mut()
        {
            let excess = usize::try_from(self.length - keep).unwrap_or(usize::MAX);
            let dropped = excess.min(last.len());
            last.truncate(last.len() - dropped);
            self.length -= dropped as u64;
            if last.is_empty() {
                self.pieces.pop_back();
            }
        }
        before - self.length
    }

    fn seal_tail(&mut self) {
        if !self.tail.is_empty() {
            self.pieces.push_back(self.tail.split().freeze());
        }
    }
}
