//! The tunnel's side of a flow.

use bytes::Bytes;
use quictun_wire::code::FlowCode;

/// A bidirectional stream, as a flow needs it.
pub trait Stream {
    /// Hands over as much of `chunk` as flow control allows, and advances it past the bytes that were taken.
    ///
    /// An empty chunk asks whether there is credit for one byte: the result is [`WriteEnd::Blocked`] if not.
    fn write(&mut self, chunk: &mut Bytes) -> WriteEnd;

    /// Ends the sending part after the bytes written so far (FIN).
    fn finish(&mut self);

    /// Abandons the sending part (`RESET_STREAM`).
    fn reset(&mut self, code: FlowCode);

    /// Takes at most `max` bytes that have arrived and gives each chunk to `sink` with its offset.
    ///
    /// Ordered reads yield contiguous chunks only. After the first unordered read, the stream must not be read in order
    /// again.
    fn read(&mut self, ordered: bool, max: usize, sink: &mut dyn FnMut(u64, Bytes)) -> ReadEnd;

    /// Refuses the rest of the receiving part (`STOP_SENDING`).
    fn stop(&mut self, code: FlowCode);
}

/// The stream of a lost connection: it can be neither written nor read.
#[derive(Clone, Copy, Debug)]
pub struct LostStream;

impl Stream for LostStream {
    fn write(&mut self, _: &mut Bytes) -> WriteEnd {
        WriteEnd::Gone
    }

    fn finish(&mut self) {}

    fn reset(&mut self, _: FlowCode) {}

    fn read(&mut self, _: bool, _: usize, _: &mut dyn FnMut(u64, Bytes)) -> ReadEnd {
        ReadEnd::Gone
    }

    fn stop(&mut self, _: FlowCode) {}
}

/// A placeholder for a flow that has no stream now: reads and writes block until the flow is on another stream.
#[derive(Clone, Copy, Debug)]
pub struct NoStream;

impl Stream for NoStream {
    fn write(&mut self, _: &mut Bytes) -> WriteEnd {
        WriteEnd::Blocked
    }

    fn finish(&mut self) {}

    fn reset(&mut self, _: FlowCode) {}

    fn read(&mut self, _: bool, _: usize, _: &mut dyn FnMut(u64, Bytes)) -> ReadEnd {
        ReadEnd::Blocked
    }

    fn stop(&mut self, _: FlowCode) {}
}

/// The reason why a write stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteEnd {
    /// The whole chunk was taken.
    Taken,
    /// Flow control allowed only a part or nothing. The stream will become writable.
    Blocked,
    /// The peer sent `STOP_SENDING` with this code.
    Stopped(u64),
    /// The stream does not exist any more.
    Gone,
}

/// The reason why a read stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadEnd {
    /// `max` was reached; more bytes may be available.
    More,
    /// No more bytes are available now. The stream will become readable.
    Blocked,
    /// Everything up to the FIN has been read.
    Finished,
    /// The peer sent `RESET_STREAM` with this code.
    Reset(u64),
    /// The stream does not exist any more.
    Gone,
}
