//! The layer between a TLS connection and its streams: QMux, or nothing.

use std::time::Instant;

use bytes::Bytes;
use quictun_flow::{ReadEnd, Stream, StreamId, WriteEnd};
use quictun_mux::Mux;
use quictun_wire::code::{CloseCode, FlowCode};

use super::single_stream::SingleStream;

/// The streams of a connection.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are QMux, and a carrier over TLS is in a box of its own"
)]
pub(super) enum Layer {
    Mux(Mux),
    Single(SingleStream),
}

/// Evaluates an expression for the layer of whichever kind.
macro_rules! each {
    ($self:ident, $layer:ident => $value:expr) => {
        match $self {
            Self::Mux($layer) => $value,
            Self::Single($layer) => $value,
        }
    };
}

impl Layer {
    pub(super) fn single(&self) -> Option<&SingleStream> {
        match self {
            Self::Mux(_) => None,
            Self::Single(single) => Some(single),
        }
    }

    pub(super) fn handle_bytes(&mut self, now: Instant, bytes: Bytes) {
        match self {
            Self::Mux(mux) => mux.handle_bytes(now, bytes),
            Self::Single(single) => single.handle_bytes(bytes),
        }
    }

    /// Returns whether the connection was closed by a frame. One stream alone has none.
    pub(super) fn is_closed(&self) -> bool {
        match self {
            Self::Mux(mux) => mux.is_closed(),
            Self::Single(_) => false,
        }
    }

    pub(super) fn ping(&mut self) {
        if let Self::Mux(mux) = self {
            mux.ping();
        }
    }

    pub(super) fn close(&mut self, code: CloseCode, reason: Bytes) {
        if let Self::Mux(mux) = self {
            mux.close(code.to_u64(), reason);
        }
    }

    pub(super) fn open(&mut self) -> Option<StreamId> {
        match self {
            Self::Mux(mux) => mux.open(),
            Self::Single(_) => None,
        }
    }

    pub(super) fn accept(&mut self) -> Option<StreamId> {
        each!(self, layer => layer.accept())
    }

    pub(super) fn prefer(&mut self, stream: StreamId, preferred: bool) {
        if let Self::Mux(mux) = self {
            mux.prefer(stream, preferred);
        }
    }

    pub(super) fn peer_streams(&self) -> u64 {
        match self {
            Self::Mux(mux) => mux.peer_streams(),
            Self::Single(single) => u64::from(single.is_of_peer()),
        }
    }

    pub(super) fn unsettled_streams(&self) -> usize {
        match self {
            Self::Mux(mux) => mux.unsettled_streams(),
            Self::Single(single) => usize::from(!single.is_idle()),
        }
    }

    pub(super) fn grant_streams(&mut self, limit: u32) {
        if let Self::Mux(mux) = self {
            mux.grant_streams(limit);
        }
    }

    pub(super) fn set_window(&mut self, bytes: u64) {
        each!(self, layer => layer.set_window(bytes));
    }

    pub(super) fn granted(&self) -> u64 {
        each!(self, layer => layer.granted())
    }

    pub(super) fn set_kept(&mut self, bytes: u64) {
        each!(self, layer => layer.set_kept(bytes));
    }

    /// Returns the length of the longest datagram that can be sent, bytes.
    pub(super) fn max_datagram(&self) -> Option<usize> {
        match self {
            Self::Mux(mux) => mux.max_datagram(),
            Self::Single(_) => None,
        }
    }

    /// Returns the memory of the datagrams that wait to be sent, bytes.
    pub(super) fn datagrams_queued(&self) -> usize {
        match self {
            Self::Mux(mux) => mux.datagrams_queued(),
            Self::Single(_) => 0,
        }
    }

    /// Queues a datagram. Returns false if it was dropped.
    pub(super) fn send_datagram(&mut self, payload: Bytes) -> bool {
        match self {
            Self::Mux(mux) => mux.send_datagram(payload).is_ok(),
            Self::Single(_) => false,
        }
    }

    /// Returns the number of bytes that may wait to leave, `most` at most, beyond those that do.
    pub(super) fn room(&self, most: usize) -> usize {
        let most = most as u64;
        let room = match self {
            Self::Mux(mux) => most.saturating_sub(mux.queued()),
            Self::Single(single) => most.saturating_sub(single.queued()).min(single.room()),
        };
        usize::try_from(room).unwrap_or(usize::MAX)
    }

    pub(super) fn is_idle(&self) -> bool {
        each!(self, layer => layer.is_idle())
    }

    pub(super) fn poll_transmit(&mut self, now: Instant, slot: &mut [u8]) -> usize {
        match self {
            Self::Mux(mux) => mux.poll_transmit(now, slot),
            Self::Single(single) => single.poll_transmit(slot),
        }
    }
}

/// A stream of a connection over TLS.
pub(crate) struct LayerStream<'a> {
    pub(super) layer: &'a mut Layer,
    pub(super) id: StreamId,
}

impl Stream for LayerStream<'_> {
    fn write(&mut self, chunk: &mut Bytes) -> WriteEnd {
        match &mut self.layer {
            Layer::Mux(mux) => mux.write(self.id, chunk),
            Layer::Single(single) => single.write(chunk),
        }
    }

    fn finish(&mut self) {
        match &mut self.layer {
            Layer::Mux(mux) => mux.finish(self.id),
            Layer::Single(single) => single.finish(),
        }
    }

    fn reset(&mut self, code: FlowCode) {
        match &mut self.layer {
            Layer::Mux(mux) => mux.reset(self.id, code.to_peer()),
            Layer::Single(single) => single.reset(),
        }
    }

    fn read(&mut self, _ordered: bool, max: usize, sink: &mut dyn FnMut(u64, Bytes)) -> ReadEnd {
        match &mut self.layer {
            Layer::Mux(mux) => mux.read(self.id, max, sink),
            Layer::Single(single) => single.read(max, sink),
        }
    }

    fn stop(&mut self, code: FlowCode) {
        match &mut self.layer {
            Layer::Mux(mux) => mux.stop(self.id, code.to_peer()),
            Layer::Single(single) => single.stop(),
        }
    }
}
