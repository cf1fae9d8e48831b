//! The streams of QMux, with the interface that flows use.

use bytes::Bytes;
use quictun_flow::{ReadEnd, Stream, StreamId, WriteEnd};
use quictun_mux::Mux;
use quictun_wire::code::FlowCode;

pub(crate) struct MuxStream<'a> {
    pub(super) mux: &'a mut Mux,
    pub(super) id: StreamId,
}

impl Stream for MuxStream<'_> {
    fn write(&mut self, chunk: &mut Bytes) -> WriteEnd {
        self.mux.write(self.id, chunk)
    }

    fn finish(&mut self) {
        self.mux.finish(self.id);
    }

    fn reset(&mut self, code: FlowCode) {
        self.mux.reset(self.id, code.to_peer());
    }

    fn read(&mut self, _ordered: bool, max: usize, sink: &mut dyn FnMut(u64, Bytes)) -> ReadEnd {
        self.mux.read(self.id, max, sink)
    }

    fn stop(&mut self, code: FlowCode) {
        self.mux.stop(self.id, code.to_peer());
    }
}
