//! The application's side of a flow.

use std::io::{self, IoSlice};

use bytes::Bytes;

/// A connected, non-blocking byte stream to an application: TCP, a Unix socket, or memory in a test.
///
/// Would-block is `io::ErrorKind::WouldBlock`; `Interrupted` must be retried by the implementation.
pub trait Socket {
    /// Appends what is there to `into`, at most its spare capacity; 0 is the end of the stream (FIN).
    fn read(&mut self, into: &mut Vec<u8>) -> io::Result<usize>;

    /// What there is as memory that needs no copy, at most so many bytes; empty is the end of the stream. `None`: only
    /// [`read`](Self::read) tells, as with everything that the kernel has to copy.
    fn lend(&mut self, _max: usize) -> Option<io::Result<Bytes>> {
        None
    }

    /// Writes from `chunks` in order and returns how many bytes were taken.
    fn write(&mut self, chunks: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Ends the writing direction (FIN); reading goes on.
    fn finish(&mut self) -> io::Result<()>;

    /// Whether the other end's system has everything that was written, the FIN included. Until then an
    /// abort would take some of it back.
    fn is_sent(&self) -> bool {
        true
    }

    /// Makes the close that follows on drop a reset (RST), so that the application sees a cut.
    fn abort(&mut self);

    /// Makes the close that follows on drop an orderly end: both directions have finished, and what is still held for the
    /// application is delivered. Without it a drop, and the death of the process, may be a reset.
    fn close(&mut self);
}
