//! Adapts quinn-proto's streams to the interface that flows use.

use bytes::Bytes;
use quictun_flow::{ReadEnd, Stream, WriteEnd};
use quictun_wire::code::FlowCode;
use quinn_proto::{Connection, Dir, ReadError, Side, StreamId, VarInt, WriteError};

pub(crate) struct QuicStream<'a> {
    pub(crate) quic: &'a mut Connection,
    pub(crate) id: StreamId,
}

impl Stream for QuicStream<'_> {
    fn write(&mut self, chunk: &mut Bytes) -> WriteEnd {
        let mut stream = self.quic.send_stream(self.id);
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
        if self.quic.send_stream(self.id).finish().is_err() {}
    }

    fn reset(&mut self, code: FlowCode) {
        // An error means that the stream was reset or fully acknowledged before.
        if self.quic.send_stream(self.id).reset(var_int(code)).is_err() {}
    }

    fn read(&mut self, ordered: bool, max: usize, sink: &mut dyn FnMut(u64, Bytes)) -> ReadEnd {
        let mut stream = self.quic.recv_stream(self.id);
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
        if self.quic.recv_stream(self.id).stop(var_int(code)).is_err() {}
    }
}

/// Returns the number of a stream as on the wire (RFC 9000 section 2.1).
pub(crate) fn stream_number(stream: StreamId) -> u64 {
    VarInt::from(stream).into_inner()
}

/// Returns the stream that a flow's number names. `None` for a unidirectional stream, which no flow has.
pub(crate) fn stream_of(flow: u64) -> Option<StreamId> {
    let side = match flow % 4 {
        0 => Side::Client,
        1 => Side::Server,
        _ => return None,
    };
    Some(StreamId::new(side, Dir::Bi, flow >> 2))
}

fn var_int(code: FlowCode) -> VarInt {
    VarInt::from_u64(code.to_peer()).unwrap_or(VarInt::MAX)
}
