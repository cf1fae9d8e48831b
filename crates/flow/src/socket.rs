//! The application's side of a flow.

use std::io::{self, IoSlice};

use bytes::Bytes;

/// A connected, non-blocking byte stream to an application: TCP, a Unix socket, or memory in a test. Or a socket for
/// datagrams: see [`carries_datagrams`](Self::carries_datagrams).
///
/// An operation that would block returns `io::ErrorKind::WouldBlock`. The implementation must retry on `Interrupted`.
pub trait Socket {
    /// Appends available bytes to `into`, at most its spare capacity. 0 is the end of the stream (FIN).
    ///
    /// Bytes that came before a reset are still read after it. Behind them the read fails, even if an operation has
    /// reported the reset before.
    fn read(&mut self, into: &mut Vec<u8>) -> io::Result<usize>;

    /// Returns whether the last successful [`read`](Self::read) left neither bytes nor a FIN, so that what arrives later
    /// is a new event. `false` if unknown: then only a read that would block shows it.
    fn is_drained(&self) -> bool {
        false
    }

    /// Returns whether bytes wait to be read. `true` if unknown.
    fn has_unread(&self) -> bool {
        true
    }

    /// Lends available bytes, at most `_max`, as memory that needs no copy. Empty bytes are the end of the stream.
    ///
    /// Returns `None` if only [`read`](Self::read) can get the bytes, as with every socket that the kernel copies from.
    fn lend(&mut self, _max: usize) -> Option<io::Result<Bytes>> {
        None
    }

    /// Writes from `chunks` in order and returns how many bytes were taken.
    fn write(&mut self, chunks: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Ends the writing direction (FIN). Reading continues.
    fn finish(&mut self) -> io::Result<()>;

    /// Returns how much of what was written the system at the other end has not received: in bytes, where the FIN counts
    /// as one. An abort would discard it.
    fn unsent(&self) -> usize {
        0
    }

    /// Limits the bytes that the system keeps unsent. Without such a limit in the system, nothing changes.
    fn set_unsent_max(&mut self, _bytes: u32) {}

    /// Returns the number of segments that the system has sent again or received out of order. 0 if unknown.
    fn segments_lost(&self) -> u64 {
        0
    }

    /// Returns whether the application exchanges datagrams instead of a byte stream (PROTOCOL section 5.11).
    ///
    /// The stream of such a flow carries no bytes. [`read`](Self::read) then only tells of the end: it would block, after
    /// [`finish`](Self::finish) it returns the end of the stream, and after a failure the error.
    fn carries_datagrams(&self) -> bool {
        false
    }

    /// Returns whether no other process can take the socket over, so that a hand-over resets its flow.
    fn stays_with_process(&self) -> bool {
        false
    }

    /// Takes the next datagram of the application. If there is none, the operation would block. Any other error ends the
    /// flow.
    fn recv_datagram(&mut self) -> io::Result<Bytes> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Sends a datagram to the application. An operation that would block has dropped the datagram. Any other error ends
    /// the flow.
    fn send_datagram(&mut self, _payload: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Makes the close on drop a reset (RST), so that the application sees a cut.
    fn abort(&mut self);

    /// Makes the close on drop orderly: both directions have finished, and bytes still buffered for the application are
    /// delivered. Without this call, a drop or the death of the process may be a reset.
    fn close(&mut self);
}
