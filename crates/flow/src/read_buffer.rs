//! Where reads from applications land before they become stream chunks.

use std::io;

use bytes::Bytes;

use crate::Socket;

/// Most bytes taken from an application in one read.
const READ_MAX: usize = 64 * 1024;

/// Reads below this are copied out, so that a one-byte message does not hold a 64 KiB buffer until it
/// is acknowledged. Above it the copy would cost more than the memory.
const COPY_BELOW: usize = 16 * 1024;

/// One buffer shared by all flows of a worker.
#[derive(Debug, Default)]
pub struct ReadBuffer {
    buffer: Vec<u8>,
}

impl ReadBuffer {
    /// Reads at most `max` bytes (and at most 64 KiB); an empty chunk is the end of the stream.
    pub fn read_from<S: Socket>(&mut self, socket: &mut S, max: usize) -> io::Result<Bytes> {
        let max = max.clamp(1, READ_MAX);
        if let Some(lent) = socket.lend(max) {
            return lent;
        }
        if self.buffer.capacity() < max {
            self.buffer = Vec::with_capacity(READ_MAX);
        }
        // The socket fills spare capacity, so a smaller read needs a smaller vector.
        if max < self.buffer.capacity() && max < COPY_BELOW {
            let mut small = Vec::with_capacity(max);
            socket.read(&mut small)?;
            return Ok(Bytes::from(small));
        }
        let length = socket.read(&mut self.buffer)?;
        if length < COPY_BELOW {
            let chunk = Bytes::copy_from_slice(&self.buffer);
            self.buffer.clear();
            return Ok(chunk);
        }
        Ok(Bytes::from(std::mem::take(&mut self.buffer)))
    }
}
