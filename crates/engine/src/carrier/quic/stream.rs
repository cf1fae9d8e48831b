//! The library's streams, with the interface that flows use.

use bytes::Bytes;
use quictun_flow::{ReadEnd, Stream, StreamId, WriteEnd};
use quictun_wire::code::FlowCode;
use quinn_proto::{ReadError, VarInt, WriteError};

pub(crate) struct QuicStream<'a> {
    pub(super) library: &'a mut quinn_proto::Connection,
    pub(super) id: quinn_proto::StreamId,
}

impl Stream for QuicStream<'_> {
    fn write(&mut self, chunk: &mut Bytes) -> WriteEnd {
        let mut stream = self.library.send_stream(self.id);
        loop {
            match stream.write_chunks(std::slice::from_mut(chunk)) {
                Ok(_) if chunk.is_empty() => return WriteEnd::Taken,
                // The rest waits for credit. Only an attempt that takes nothing registers for the notification.
                Ok(_) => {}
                Err(WriteError::Blocked) => return WriteEnd::Blocked,
                Err(WriteError::Stopped(code)) => return WriteEnd::Stopped(code.into_inner()),
                Err(WriteError::ClosedStream) => return WriteEnd::Gone,
            }
        }
    }

    fn finish(&mut self) {
        // An error means that the peer has stopped the stream. No notice is needed then.
        if self.library.send_stream(self.id).finish().is_err() {}
    }

    fn reset(&mut self, code: FlowCode) {
        // An error means that the stream was reset or fully acknowledged before.
        if self
            .library
            .send_stream(self.id)
            .reset(var_int(code))
            .is_err()
        {}
    }

    fn read(&mut self, ordered: bool, max: usize, sink: &mut dyn FnMut(u64, Bytes)) -> ReadEnd {
        let mut stream = self.library.recv_stream(self.id);
        let Ok(mut chunks) = stream.read(ordered) else {
            return ReadEnd::Gone;
        };
        let mut left = max;
        let end = loop {
            if left == 0 {
                break ReadEnd::More;
            }
            match chunks.next(left) {
                Ok(Some(chunk)) => {
                    left -= chunk.bytes.len();
                    sink(chunk.offset, chunk.bytes);
                }
                Ok(None) => break ReadEnd::Finished,
                Err(ReadError::Blocked) => break ReadEnd::Blocked,
                Err(ReadError::Reset(code)) => break ReadEnd::Reset(code.into_inner()),
            }
        };
        // `_credit` tells whether to send credit. The caller polls for transmits after every pump anyway.
        let _credit = chunks.finalize();
        end
    }

    fn stop(&mut self, code: FlowCode) {
        // An error means that the stream has ended before.
        if self
            .library
            .recv_stream(self.id)
            .stop(var_int(code))
            .is_err()
        {}
    }
}

/// Returns `None` for a unidirectional stream, which no side permits.
pub(super) fn from_library(stream: quinn_proto::StreamId) -> Option<StreamId> {
    StreamId::from_number(stream.into())
}

pub(super) fn to_library(stream: StreamId) -> quinn_proto::StreamId {
    quinn_proto::StreamId::from(VarInt::from_u64(stream.number()).unwrap_or(VarInt::MAX))
}

fn var_int(code: FlowCode) -> VarInt {
    VarInt::from_u64(code.to_peer()).unwrap_or(VarInt::MAX)
}
