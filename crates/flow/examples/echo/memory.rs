//! An application and a stream in memory.

use std::io::{self, IoSlice};

use bytes::Bytes;
use quictun_flow::{ReadEnd, Socket, Stream, WriteEnd};
use quictun_wire::code::FlowCode;

/// The bytes that flow control allows for one write.
const CREDIT: usize = 5;

/// An application that sends some bytes and a FIN, and keeps what it receives.
pub(crate) struct App {
    left: &'static [u8],
    received: Vec<u8>,
}

impl App {
    pub(crate) fn sends(left: &'static [u8]) -> Self {
        let received = Vec::new();
        Self { left, received }
    }

    pub(crate) fn received(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.received)
    }
}

impl Socket for App {
    fn read(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        let room = into.capacity() - into.len();
        let (part, left) = self.left.split_at(room.min(self.left.len()));
        into.extend_from_slice(part);
        self.left = left;
        // With 0, the application has finished. A socket without bytes would return `WouldBlock`.
        Ok(part.len())
    }

    fn write(&mut self, chunks: &[IoSlice<'_>]) -> io::Result<usize> {
        for chunk in chunks {
            self.received.extend_from_slice(chunk);
        }
        Ok(chunks.iter().map(|chunk| chunk.len()).sum())
    }

    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn abort(&mut self) {}

    fn close(&mut self) {}
}

/// A stream from which everything can be read that was written to it.
#[derive(Default)]
pub(crate) struct Echo {
    /// Chunks and their offsets.
    chunks: Vec<(u64, Bytes)>,
    written: u64,
    finished: bool,
}

impl Stream for Echo {
    fn write(&mut self, chunk: &mut Bytes) -> WriteEnd {
        let taken = chunk.split_to(chunk.len().min(CREDIT));
        let offset = self.written;
        self.written += taken.len() as u64;
        self.chunks.push((offset, taken));
        if chunk.is_empty() {
            WriteEnd::Taken
        } else {
            WriteEnd::Blocked
        }
    }

    fn finish(&mut self) {
        self.finished = true;
    }

    fn reset(&mut self, _: FlowCode) {}

    /// Returns everything that was written. That is always less than the maximum, which a QUIC library has to respect.
    fn read(&mut self, _: bool, _: usize, sink: &mut dyn FnMut(u64, Bytes)) -> ReadEnd {
        for (offset, chunk) in self.chunks.drain(..) {
            sink(offset, chunk);
        }
        if self.finished {
            ReadEnd::Finished
        } else {
            ReadEnd::Blocked
        }
    }

    fn stop(&mut self, _: FlowCode) {}
}
