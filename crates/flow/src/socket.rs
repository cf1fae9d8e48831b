//! The application's side of a flow.

use std::io::{self, IoSlice};

/// A connected, non-blocking byte stream to an application: TCP, a Unix socket, or memory in a test.
///
/// Would-block is `io::ErrorKind::WouldBlock`; `Interrupted` must be retried by the implementation.
pub trait Socket {
    /// Appends what is there to `into`, at most its spare capacity; 0 is the end of the stream (FIN).
    fn read(&mut self, into: &mut Vec<u8>) -> io::Result<usize>;

    /// Writes from `chunks` in order and returns how many bytes were taken.
    fn write(&mut self, chunks: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Ends the writing direction (FIN); reading goes on.
    fn finish(&mut self) -> io::Result<()>;

    /// Makes the close that follows on drop a reset (RST), so that the application sees a cut.
    fn abort(&mut self);
}
