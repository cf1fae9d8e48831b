//! The QUIC side of a flow.

use bytes::Bytes;
use quictun_wire::code::FlowCode;

/// A bidirectional QUIC stream as a flow needs it.
pub trait Stream {
    /// Hands over as much of `chunk` as flow control allows, advancing it past what was taken.
    ///
    /// An empty chunk asks whether there is credit for a byte: [`WriteEnd::Blocked`] where there is none.
    fn write(&mut self, chunk: &mut Bytes) -> WriteEnd;

    /// Ends the sending part after what was written (FIN).
    fn finish(&mut self);

    /// Abandons the sending part (`RESET_STREAM`).
    fn reset(&mut self, code: FlowCode);

    /// Takes at most `max` bytes that have arrived and gives each chunk to `sink` with its offset.
    ///
    /// Ordered reads yield contiguous chunks only. Once a stream was read unordered it must not be
    /// read ordered again.
    fn read(&mut self, ordered: bool, max: usize, sink: &mut dyn FnMut(u64, Bytes)) -> ReadEnd;

    /// Refuses the rest of the receiving part (`STOP_SENDING`).
    fn stop(&mut self, code: FlowCode);
}

/// The stream of a connection that is gone: nothing can be written to it or read from it.
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

/// No stream for now: nothing can be written or read until the flow has another one.
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

/// Why a write took what it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteEnd {
    /// All of the chunk was taken.
    Taken,
    /// Flow control took a part or nothing; the stream will become writable.
    Blocked,
    /// The peer sent `STOP_SENDING` with this code.
    Stopped(u64),
    /// The stream is no longer there.
    Gone,
}

/// Why a read gave what it gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadEnd {
    /// `max` was reached; there may be more.
    More,
    /// Nothing more can be had now; the stream will become readable.
    Blocked,
    /// Everything up to the FIN has been read.
    Finished,
    /// The peer sent `RESET_STREAM` with this code.
    Reset(u64),
    /// The stream is no longer there.
    Gone,
}
