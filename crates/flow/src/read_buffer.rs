//! The buffer into which application data is read before it becomes stream chunks.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use crate::Socket;

/// Maximum number of bytes taken from an application in one read.
const READ_MAX: usize = 64 * 1024;

/// Shorter reads are copied, so that a one-byte message does not hold a 64 KiB buffer until it is acknowledged. For
/// longer ones the copy would cost more than the memory.
const COPY_BELOW: usize = 16 * 1024;

/// Length of the longest chunk whose memory is that of its bytes.
pub(crate) const PIECE_MAX: usize = COPY_BELOW - 1;

/// Cost of a chunk besides its bytes, in bytes.
const CHUNK_COST: usize = 96;

/// Returns the memory that a chunk of `length` bytes may keep, in bytes. A chunk of a few bytes that was read while
/// memory is scarce may keep twice as much.
pub(crate) fn memory_of(length: usize) -> u64 {
    let buffer = if length < COPY_BELOW {
        length
    } else {
        length.max(READ_MAX)
    };
    (buffer + CHUNK_COST) as u64
}

/// One buffer shared by all flows of a worker. It counts how much of the data read is still referenced.
#[derive(Debug, Default)]
pub struct ReadBuffer {
    buffer: Vec<u8>,
    kept: Arc<AtomicUsize>,
    /// The longest read while memory is scarce.
    max: Option<usize>,
}

/// The memory of a chunk. Dropping it takes the chunk off the sum.
struct CountedChunk {
    bytes: Bytes,
    size: usize,
    sum: Arc<AtomicUsize>,
    /// Held by the chunk and by nothing else, except the flow.
    _unconfirmed: Arc<()>,
}

impl AsRef<[u8]> for CountedChunk {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for CountedChunk {
    fn drop(&mut self) {
        // Relaxed is enough here and below: the sum orders no other memory.
        self.sum.fetch_sub(self.size, Ordering::Relaxed);
    }
}

impl ReadBuffer {
    /// Limits each read to `max` bytes, and makes flows read only if their streams have credit. `None` removes both
    /// limits.
    pub fn set_max(&mut self, max: Option<usize>) {
        self.max = max;
    }

    /// Returns whether [`ReadBuffer::set_max`] has set a limit.
    pub fn is_restrained(&self) -> bool {
        self.max.is_some()
    }

    /// Reads at most `max` bytes (and at most 64 KiB). An empty chunk is the end of the stream. The chunk refers to
    /// `unconfirmed` until its last part is dropped.
    pub fn read_from<S: Socket>(
        &mut self,
        socket: &mut S,
        max: usize,
        unconfirmed: &Arc<()>,
    ) -> io::Result<Bytes> {
        let max = max.clamp(1, self.max.unwrap_or(READ_MAX));
        if let Some(lent) = socket.lend(max) {
            let bytes = lent?;
            let size = bytes.len();
            return Ok(self.keep(bytes, size, unconfirmed));
        }
        if self.buffer.capacity() < max {
            self.buffer = Vec::with_capacity(READ_MAX);
        }
        // The socket fills spare capacity, so a smaller read needs a smaller vector.
        if max < self.buffer.capacity() && max < COPY_BELOW {
            let mut small = Vec::with_capacity(max);
            let length = socket.read(&mut small)?;
            return Ok(if length < max / 2 {
                self.keep(Bytes::copy_from_slice(&small), length, unconfirmed)
            } else {
                self.keep(Bytes::from(small), max, unconfirmed)
            });
        }
        let length = socket.read(&mut self.buffer)?;
        if length < COPY_BELOW {
            let chunk = Bytes::copy_from_slice(&self.buffer);
            self.buffer.clear();
            return Ok(self.keep(chunk, length, unconfirmed));
        }
        let size = self.buffer.capacity();
        let chunk = Bytes::from(std::mem::take(&mut self.buffer));
        Ok(self.keep(chunk, size, unconfirmed))
    }

    /// Returns the memory behind chunks that are still referenced, in bytes. Whole allocations count, however small the
    /// referenced part is.
    pub fn kept(&self) -> usize {
        self.kept.load(Ordering::Relaxed)
    }

    /// Counts a copy that another process has handed over as a chunk, until its last part is dropped.
    pub(crate) fn keep_copy(&self, copy: Bytes, unconfirmed: &Arc<()>) -> Bytes {
        let size = copy.len();
        self.keep(copy, size, unconfirmed)
    }

    /// Counts `bytes` as a chunk that takes `size` bytes of memory, until its last part is dropped.
    fn keep(&self, bytes: Bytes, size: usize, unconfirmed: &Arc<()>) -> Bytes {
        if bytes.is_empty() {
            return bytes;
        }
        let size = size + CHUNK_COST;
        self.kept.fetch_add(size, Ordering::Relaxed);
        let sum = self.kept.clone();
        Bytes::from_owner(CountedChunk {
            bytes,
            size,
            sum,
            _unconfirmed: unconfirmed.clone(),
        })
    }
}
