//! The layer between a TLS connection and its streams: QMux, HTTP/2, or nothing.

use std::time::Instant;

use bytes::Bytes;
use quictun_flow::{ReadEnd, Stream, StreamId, WriteEnd};
use quictun_http2::Http2;
use quictun_mux::Mux;
use quictun_wire::alpn::Protocol;
use quictun_wire::code::{CloseCode, FlowCode};
use quictun_wire::opening;

use super::loss::{of_close, of_flow};
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
    Http2(Box<Http2>),
}

/// Evaluates an expression for the layer of whichever kind.
macro_rules! each {
    ($self:ident, $layer:ident => $value:expr) => {
        match $self {
            Self::Mux($layer) => $value,
            Self::Single($layer) => $value,
            Self::Http2($layer) => $value,
        }
    };
}

impl Layer {
    pub(super) fn single(&self) -> Option<&SingleStream> {
        match self {
            Self::Mux(_) | Self::Http2(_) => None,
            Self::Single(single) => Some(single),
        }
    }

    pub(super) fn http2(&self) -> Option<&Http2> {
        match self {
            Self::Http2(http2) => Some(http2),
            Self::Mux(_) | Self::Single(_) => None,
        }
    }

    pub(super) fn handle_bytes(&mut self, now: Instant, bytes: Bytes) {
        match self {
            Self::Mux(mux) => mux.handle_bytes(now, bytes),
            Self::Single(single) => single.handle_bytes(bytes),
            Self::Http2(http2) => http2.handle_bytes(now, bytes),
        }
    }

    /// Returns whether the connection was closed by a frame. One stream alone has none.
    pub(super) fn is_closed(&self) -> bool {
        match self {
            Self::Mux(mux) => mux.is_closed(),
            Self::Single(_) => false,
            Self::Http2(http2) => http2.is_closed(),
        }
    }

    pub(super) fn ping(&mut self) {
        match self {
            Self::Mux(mux) => mux.ping(),
            // The system probes programs.
            Self::Single(_) | Self::Http2(_) => {}
        }
    }

    /// Ends the connection. Returns false if that leaves a stream cut off, and no frame tells the peer.
    pub(super) fn close(&mut self, code: CloseCode, reason: Bytes) -> bool {
        match self {
            Self::Mux(mux) => mux.close(code.to_u64(), reason),
            Self::Single(single) => return single.close(code),
            Self::Http2(http2) => {
                let answer = opening::closing(Protocol::Http2, code);
                http2.close(of_close(code), reason, &answer);
            }
        }
        true
    }

    /// Tells a peer without a control stream that this side takes no new flows.
    pub(super) fn drain(&mut self) {
        if let Self::Http2(http2) = self {
            http2.drain();
        }
    }

    pub(super) fn open(&mut self) -> Option<StreamId> {
        match self {
            Self::Mux(mux) => mux.open(),
            Self::Single(_) | Self::Http2(_) => None,
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
            Self::Http2(http2) => http2.open_streams().into(),
        }
    }

    pub(super) fn unsettled_streams(&self) -> usize {
        match self {
            Self::Mux(mux) => mux.unsettled_streams(),
            Self::Single(single) => usize::from(!single.is_idle()),
            Self::Http2(http2) => http2.unsettled_streams(),
        }
    }

    pub(super) fn grant_streams(&mut self, limit: u32) {
        match self {
            Self::Mux(mux) => mux.grant_streams(limit),
            Self::Single(_) => {}
            Self::Http2(http2) => http2.grant_streams(limit),
        }
    }

    /// Notes how many bytes of a stream its flow holds. Only HTTP/2 has credit by that; QMux has HOLD.
    pub(super) fn note_held(&mut self, stream: StreamId, bytes: u64) {
        if let Self::Http2(http2) = self {
            http2.note_held(stream, bytes);
        }
    }

    /// Returns the memory of records and frames that have arrived in part, bytes. One stream alone has none.
    pub(super) fn held(&self) -> usize {
        match self {
            Self::Mux(mux) => mux.held(),
            Self::Single(_) => 0,
            Self::Http2(http2) => http2.held(),
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
            Self::Single(_) | Self::Http2(_) => None,
        }
    }

    /// Returns the memory of the datagrams that wait to be sent, bytes.
    pub(super) fn datagrams_queued(&self) -> usize {
        match self {
            Self::Mux(mux) => mux.datagrams_queued(),
            Self::Single(_) | Self::Http2(_) => 0,
        }
    }

    /// Queues a datagram. Returns false if it was dropped.
    pub(super) fn send_datagram(&mut self, payload: Bytes) -> bool {
        match self {
            Self::Mux(mux) => mux.send_datagram(payload).is_ok(),
            Self::Single(_) | Self::Http2(_) => false,
        }
    }

    /// Returns the number of bytes that may wait to leave, `most` at most, beyond those that do.
    pub(super) fn room(&self, most: usize) -> usize {
        let most = most as u64;
        let room = match self {
            Self::Mux(mux) => most.saturating_sub(mux.queued()),
            Self::Single(single) => most.saturating_sub(single.queued()).min(single.room()),
            Self::Http2(http2) => most.saturating_sub(http2.queued()),
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
            Self::Http2(http2) => http2.poll_transmit(now, slot),
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
            Layer::Http2(http2) => http2.write(self.id, chunk),
        }
    }

    fn finish(&mut self) {
        match &mut self.layer {
            Layer::Mux(mux) => mux.finish(self.id),
            Layer::Single(single) => single.finish(),
            Layer::Http2(http2) => http2.finish(self.id),
        }
    }

    fn reset(&mut self, code: FlowCode) {
        match &mut self.layer {
            Layer::Mux(mux) => mux.reset(self.id, code.to_peer()),
            Layer::Single(single) => single.reset(),
            Layer::Http2(http2) => http2.reset(self.id, of_flow(code)),
        }
    }

    fn read(&mut self, _ordered: bool, max: usize, sink: &mut dyn FnMut(u64, Bytes)) -> ReadEnd {
        match &mut self.layer {
            Layer::Mux(mux) => mux.read(self.id, max, sink),
            Layer::Single(single) => single.read(max, sink),
            Layer::Http2(http2) => http2.read(self.id, max, sink),
        }
    }

    fn stop(&mut self, code: FlowCode) {
        match &mut self.layer {
            Layer::Mux(mux) => mux.stop(self.id, code.to_peer()),
            Layer::Single(single) => single.stop(),
            Layer::Http2(http2) => http2.stop(self.id, of_flow(code)),
        }
    }
}
