//! Reads frames one behind the other into large buffers.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use quictun_sys::{BufferPool, PacketSocket, Reception, VnetHeader};

/// Reads frames without copying or clearing any byte. A buffer is reused once all its frames have left.
#[derive(Debug)]
pub(crate) struct FrameReader {
    pool: BufferPool,
    buffer: BytesMut,
}

#[derive(Debug)]
pub(crate) enum ReadResult {
    /// A frame, with the time since 1970 at which it reached the socket.
    Frame(VnetHeader, Bytes, Option<Duration>),
    Lost,
    Nothing,
}

impl FrameReader {
    pub(crate) fn new() -> Self {
        Self {
            pool: BufferPool::new(BUFFER, BUFFERS),
            buffer: BytesMut::new(),
        }
    }

    pub(crate) fn read(&mut self, socket: &PacketSocket) -> io::Result<ReadResult> {
        if self.buffer.len() <= FRAME_MAX {
            let used = std::mem::take(&mut self.buffer);
            drop(self.pool.lend(used, 0));
            self.buffer = self.pool.take();
        }
        Ok(match socket.receive(&mut self.buffer[..FRAME_MAX])? {
            Reception::Frame { header, at, stamp } => {
                // The kernel copies fastest to the start of a cache line.
                let used = at.end.next_multiple_of(ALIGNMENT);
                let frame = self.buffer.split_to(used).freeze();
                ReadResult::Frame(header, frame.slice(at), stamp)
            }
            Reception::Lost => ReadResult::Lost,
            Reception::Nothing => ReadResult::Nothing,
        })
    }
}

/// Length of the longest frame: BIG TCP as used in practice (185 000 bytes) and more. A multiple of [`ALIGNMENT`].
pub(crate) const FRAME_MAX: usize = 256 << 10;

/// Size of a buffer: several of the longest frames, or a thousand of the usual length, so that little is wasted at its
/// end.
const BUFFER: usize = 2 << 20;

/// Number of lent buffers that the pool remembers: as many as frames in flight can need, and half as many again.
const BUFFERS: usize = 384;

const ALIGNMENT: usize = 64;
