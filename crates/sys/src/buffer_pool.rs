//! Receive buffers that the kernel fills, that are split among readers, and that come back.
//!
//! Clearing 64 KiB for every batch of datagrams costs more than handling its headers. A pool keeps the end of each
//! buffer it has lent. Once all other parts are dropped, the whole buffer can be used again.

use std::collections::VecDeque;
use std::fmt;

use bytes::BytesMut;

/// Lent buffers that are checked before a new one is made. Some stay with their reader for long.
const TRIES: usize = 4;

/// A pool of buffers of one size. See the module documentation.
pub struct BufferPool {
    size: usize,
    most: usize,
    /// The unused end of every lent buffer, oldest first. Each is part of an allocation of `size` bytes that were all
    /// written once.
    lent: VecDeque<BytesMut>,
}

impl BufferPool {
    /// Makes a pool of buffers of `size` bytes that remembers at most `most` lent ones.
    pub fn new(size: usize, most: usize) -> Self {
        Self {
            size,
            most,
            lent: VecDeque::new(),
        }
    }

    /// Returns a buffer of `size` bytes with unspecified contents.
    pub fn take(&mut self) -> BytesMut {
        for _ in 0..TRIES.min(self.lent.len()) {
            let Some(mut buffer) = self.lent.pop_front() else {
                break;
            };
            if buffer.try_reclaim(self.size) {
                debug_assert!(buffer.is_empty() && buffer.capacity() >= self.size);
                // SAFETY: the buffer is one of `lend`, so its allocation was made by `zeroed` below with `size` bytes,
                // all initialised, and bytes cannot become uninitialised again. The buffer is empty, and it was
                // reclaimed: its capacity, at least `size`, begins at the start of the allocation, because a part that
                // begins later has fewer than `size` bytes behind it.
                unsafe { buffer.set_len(self.size) };
                return buffer;
            }
            self.lent.push_back(buffer);
        }
        BytesMut::zeroed(self.size)
    }

    /// Lends the first `used` bytes of a buffer from [`BufferPool::take`], and remembers the rest. A buffer that is
    /// used up to its end does not come back.
    pub fn lend(&mut self, mut buffer: BytesMut, used: usize) -> BytesMut {
        let mut rest = buffer.split_off(used.min(buffer.len()));
        if rest.len() < self.size && !rest.is_empty() && self.most > 0 {
            if self.lent.len() >= self.most {
                self.lent.pop_front();
            }
            rest.clear();
            self.lent.push_back(rest);
        }
        buffer
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferPool")
            .field("size", &self.size)
            .field("lent", &self.lent.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 1024;

    #[test]
    fn a_buffer_comes_back_once_every_part_is_gone() {
        let mut pool = BufferPool::new(SIZE, 4);
        let mut buffer = pool.take();
        let place = buffer.as_ptr();
        buffer.fill(7);
        let mut data = pool.lend(buffer, 1000);
        let part = data.split_to(10).freeze();
        drop(data);
        assert_ne!(pool.take().as_ptr(), place, "a part is still read");
        assert_eq!(part[..], [7; 10]);
        drop(part);
        let again = pool.take();
        assert_eq!((again.as_ptr(), again.len()), (place, SIZE));
    }

    #[test]
    fn lent_buffers_are_remembered_up_to_the_limit() {
        let mut pool = BufferPool::new(SIZE, 2);
        let lent: Vec<_> = (0..5)
            .map(|_| {
                let buffer = pool.take();
                pool.lend(buffer, 1)
            })
            .collect();
        let places: Vec<_> = lent.iter().map(|data| data.as_ptr()).collect();
        assert_eq!(pool.lent.len(), 2);
        drop(lent);
        let mut back = [pool.take().as_ptr(), pool.take().as_ptr()];
        back.sort_unstable();
        let mut last = [places[3], places[4]];
        last.sort_unstable();
        assert_eq!(back, last);
        assert!(pool.lent.is_empty());
    }

    #[test]
    fn every_new_buffer_has_the_full_size() {
        let mut pool = BufferPool::new(SIZE, 3);
        for used in [0, 1, SIZE / 2, SIZE - 1, SIZE, SIZE + 1] {
            let buffer = pool.take();
            assert_eq!(buffer.len(), SIZE);
            let data = pool.lend(buffer, used);
            assert_eq!(data.len(), used.min(SIZE));
        }
        assert_eq!(pool.take().len(), SIZE);
    }
}
