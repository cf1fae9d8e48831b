//! Carriers bring flows from one side of the tunnel to the other.
//!
//! A carrier has streams, credit for them, and packets or records of its own: QUIC in UDP datagrams, or QMux in TLS over
//! TCP. Each kind is a variant of [`Carrier`]; a [`Connection`](crate::connection::Connection) and everything above it
//! knows only what is here.
//!
//! # Order of calls
//!
//! 1. The endpoint passes packets that have arrived, or the carrier reads its socket; [`Carrier::handle_timeout`] handles
//!    timers that are due.
//! 2. [`Carrier::poll_event`] until it returns `None`.
//! 3. [`Carrier::watch`], [`Carrier::follow_remote`] and [`Carrier::follow_up`].
//! 4. [`Carrier::begin_filling`]; with room, [`Carrier::stream`] for what flows write; [`Carrier::end_filling`].
//! 5. [`Carrier::poll_transmit`] until it returns `None`, or the carrier writes to its socket.

mod interface;
pub(crate) mod quic;
pub(crate) mod tls;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use quictun_congestion::{ControllerView, PathKnowledge};
use quictun_flow::{ReadEnd, Stream, StreamId, WriteEnd};
use quictun_wire::code::{CloseCode, FlowCode};
use rustls::pki_types::CertificateDer;

use crate::datagrams::Datagrams;
use crate::report::{CarrierKind, Protocol, SendLimit};
use quic::{QuicCarrier, QuicStream};
use tls::{LayerStream, TlsCarrier};

pub(crate) use interface::{BatchContext, CarrierCounters, CarrierEvent, CreditOffer, PathView};

/// Bytes of datagrams that may wait in a carrier. Further ones wait in their flows, which drop them when they are too old.
const DATAGRAMS_QUEUED: usize = 64 * 1024;

/// Evaluates an expression for the carrier of whichever kind.
macro_rules! each {
    ($self:ident, $carrier:ident => $value:expr) => {
        match $self {
            Self::Quic($carrier) => $value,
            Self::Tls($carrier) => $value,
        }
    };
}

/// A connection of any kind, without the state that all kinds have in common.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are QUIC, and a connection is in a box of its own"
)]
pub(crate) enum Carrier {
    Quic(QuicCarrier),
    Tls(Box<TlsCarrier>),
}

/// The life of a carrier.
impl Carrier {
    pub(crate) fn kind(&self) -> CarrierKind {
        match self {
            Self::Quic(_) => CarrierKind::Quic,
            Self::Tls(_) => CarrierKind::Tls,
        }
    }

    /// Returns the carrier over TLS, if it is one. It reads and writes a socket of its own.
    pub(crate) fn as_tls(&mut self) -> Option<&mut TlsCarrier> {
        match self {
            Self::Quic(_) => None,
            Self::Tls(tls) => Some(tls),
        }
    }

    pub(crate) fn poll_event(&mut self) -> Option<CarrierEvent> {
        each!(self, carrier => carrier.poll_event())
    }

    pub(crate) fn next_timeout(&mut self) -> Option<Instant> {
        each!(self, carrier => carrier.next_timeout())
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        each!(self, carrier => carrier.handle_timeout(now));
    }

    /// Sends the acknowledgement that is due by `soon`.
    pub(crate) fn acknowledge_early(&mut self, soon: Instant) {
        if let Self::Quic(quic) = self {
            quic.acknowledge_early(soon);
        }
    }

    /// Watches the packets in flight after others have arrived, and records the controller's view in the trace.
    pub(crate) fn watch(&mut self, now: Instant) {
        if let Self::Quic(quic) = self {
            quic.watch(now);
        }
    }

    /// Ends a turn in which something has arrived.
    pub(crate) fn follow_up(&mut self, now: Instant) {
        if let Self::Quic(quic) = self {
            quic.follow_up(now);
        }
    }

    /// Server: returns whether the client's first message of the handshake has arrived only in part.
    pub(crate) fn awaits_client_hello(&self) -> bool {
        match self {
            Self::Quic(quic) => quic.awaits_client_hello(),
            Self::Tls(_) => false,
        }
    }

    /// Returns the protocol that ALPN has negotiated.
    pub(crate) fn protocol(&self) -> Protocol {
        each!(self, carrier => carrier.protocol())
    }

    /// Returns the peer's certificates, if it has sent any.
    pub(crate) fn certificates(&self) -> Option<Vec<CertificateDer<'static>>> {
        each!(self, carrier => carrier.certificates())
    }

    /// Returns the value of the TLS exporter for this label (RFC 8446 section 7.5).
    pub(crate) fn export(&self, label: &[u8]) -> Option<[u8; 32]> {
        each!(self, carrier => carrier.export(label))
    }

    /// Stops the repetition of packets that belongs to handshakes.
    pub(crate) fn end_handshake(&mut self) {
        if let Self::Quic(quic) = self {
            quic.end_handshake();
        }
    }

    /// Sends a keep-alive, whether or not the window has room.
    pub(crate) fn ping(&mut self) {
        each!(self, carrier => carrier.ping());
    }

    pub(crate) fn close(&mut self, now: Instant, code: CloseCode, reason: Bytes) {
        each!(self, carrier => carrier.close(now, code, reason));
    }

    pub(crate) fn is_closed(&self) -> bool {
        each!(self, carrier => carrier.is_closed())
    }
}

/// Streams, and the credit for them.
impl Carrier {
    /// Opens a stream, of which the peer learns with its first bytes. `None` if the peer permits no more.
    pub(crate) fn open(&mut self) -> Option<StreamId> {
        each!(self, carrier => carrier.open())
    }

    /// Returns the next stream that the peer has opened.
    pub(crate) fn accept(&mut self) -> Option<StreamId> {
        each!(self, carrier => carrier.accept())
    }

    pub(crate) fn stream(&mut self, id: StreamId) -> CarrierStream<'_> {
        match self {
            Self::Quic(quic) => CarrierStream::Quic(quic.stream(id)),
            Self::Tls(tls) => CarrierStream::Tls(tls.stream(id)),
        }
    }

    /// Sets whether a stream's bytes precede those of other streams.
    ///
    /// Compatibility: a lost token is retransmitted together with other data. If the token comes first, it stays in one
    /// piece, and the original understands only a token in one piece.
    pub(crate) fn prefer(&mut self, stream: StreamId, preferred: bool) {
        each!(self, carrier => carrier.prefer(stream, preferred));
    }

    /// Returns the number of the peer's streams that have not ended in both directions.
    pub(crate) fn peer_streams(&mut self) -> u64 {
        each!(self, carrier => carrier.peer_streams())
    }

    /// Returns the number of streams with bytes, or an end, that the peer has not acknowledged.
    pub(crate) fn unsettled_streams(&mut self) -> usize {
        each!(self, carrier => carrier.unsettled_streams())
    }

    /// Lets the peer have this many streams open.
    pub(crate) fn grant_streams(&mut self, limit: u32) {
        each!(self, carrier => carrier.grant_streams(limit));
    }

    /// Gives the peer credit. Credit that it has already cannot be taken back.
    pub(crate) fn grant(&mut self, offer: CreditOffer) {
        each!(self, carrier => carrier.grant(offer));
    }

    /// Answers a peer that has said that it lacks credit.
    pub(crate) fn answer_blocked(&mut self, offer: CreditOffer) {
        if let Self::Quic(quic) = self {
            quic.answer_blocked(offer);
        }
    }

    /// Returns the bytes that the peer may send beyond those that were taken off streams.
    pub(crate) fn granted(&self) -> u64 {
        each!(self, carrier => carrier.granted())
    }

    /// Notes that `bytes` were taken off streams.
    pub(crate) fn note_taken(&mut self, bytes: u64) {
        if let Self::Quic(quic) = self {
            quic.note_taken(bytes);
        }
    }

    /// Forgets a part of the credit that is still to be taken back. Call it only if there is plenty of memory.
    pub(crate) fn forgive(&mut self) {
        if let Self::Quic(quic) = self {
            quic.forgive();
        }
    }

    /// Limits the bytes that are kept until the peer has acknowledged them.
    pub(crate) fn set_kept(&mut self, bytes: u64) {
        each!(self, carrier => carrier.set_kept(bytes));
    }
}

/// Programs that use a server's HTTPS proxy by HTTP/2.
impl Carrier {
    /// Notes how many bytes of a stream its flow holds because the application has not taken them.
    pub(crate) fn note_held(&mut self, stream: StreamId, bytes: u64) {
        if let Self::Tls(tls) = self {
            tls.note_held(stream, bytes);
        }
    }

    /// Tells a program that this side takes no new flows. Clients of quictun learn of it by the control stream.
    pub(crate) fn drain(&mut self) {
        if let Self::Tls(tls) = self {
            tls.drain();
        }
    }
}

/// DATAGRAM frames, which are never sent again.
impl Carrier {
    /// Returns the memory of the datagrams that the carrier has taken and not sent. A carrier over UDP sends them at once.
    pub(crate) fn datagrams_queued(&self) -> usize {
        match self {
            Self::Tls(carrier) => carrier.datagrams_queued(),
            Self::Quic(_) => 0,
        }
    }

    /// Returns whether the carrier takes a datagram of `len` bytes. It takes any if none waits there.
    pub(crate) fn takes_datagram(&self, len: usize) -> bool {
        let queued = self.datagrams_queued();
        queued == 0 || queued + len <= DATAGRAMS_QUEUED
    }

    /// Returns the length of the longest payload of a DATAGRAM frame. `None` if the peer takes none.
    pub(crate) fn max_datagram(&mut self) -> Option<usize> {
        each!(self, carrier => carrier.max_datagram())
    }

    /// Sends a payload in a DATAGRAM frame with the next batch. Returns false if it was dropped.
    pub(crate) fn send_datagram(&mut self, payload: Bytes) -> bool {
        each!(self, carrier => carrier.send_datagram(payload))
    }
}

/// Sending: batches, and what limits them.
impl Carrier {
    /// Begins a batch. Returns the number of bytes that flows may hand over now, or `None` if no flow is `waiting` or
    /// nothing may be sent. `sleeps` is the delay of this call that the caller's sleep may cause.
    pub(crate) fn begin_filling(
        &mut self,
        now: Instant,
        sleeps: Duration,
        waiting: bool,
    ) -> Option<usize> {
        match self {
            Self::Quic(quic) => quic.begin_filling(now, sleeps, waiting),
            Self::Tls(tls) => tls.begin_filling(waiting),
        }
    }

    /// Ends a batch for which there was `room`. `waiting` means that flows have more, and `restrained` that memory is
    /// short.
    pub(crate) fn end_filling(
        &mut self,
        now: Instant,
        room: usize,
        waiting: bool,
        restrained: bool,
    ) {
        if let Self::Quic(quic) = self {
            quic.end_filling(now, room, waiting, restrained);
        }
    }

    pub(crate) fn poll_transmit(
        &mut self,
        now: Instant,
        context: BatchContext,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Datagrams> {
        match self {
            Self::Quic(quic) => quic.poll_transmit(now, context, max_segments, buffer),
            Self::Tls(_) => None,
        }
    }

    /// Notes that `bytes` were written to streams.
    pub(crate) fn note_written(&mut self, bytes: usize) {
        each!(self, carrier => carrier.note_written(bytes));
    }

    /// Returns whether bytes were written to streams that have not left.
    pub(crate) fn has_unsent(&self) -> bool {
        each!(self, carrier => carrier.has_unsent())
    }

    /// Returns whether nothing waits to be sent or acknowledged.
    pub(crate) fn is_idle(&self) -> bool {
        each!(self, carrier => carrier.is_idle())
    }

    /// Returns the largest number of bytes that flows hand over for one batch.
    pub(crate) fn batch_max(&self) -> usize {
        match self {
            Self::Quic(_) => quic::BATCH_MAX,
            Self::Tls(_) => tls::WRITE_MAX,
        }
    }

    /// Returns the memory of bytes that a carrier over TCP could not open or send yet.
    pub(crate) fn held(&self) -> u64 {
        match self {
            Self::Quic(_) => 0,
            Self::Tls(tls) => tls.held() as u64,
        }
    }

    pub(crate) fn limit(&self) -> SendLimit {
        each!(self, carrier => carrier.limit())
    }

    pub(crate) fn set_limit(&mut self, limit: SendLimit) {
        each!(self, carrier => carrier.set_limit(limit));
    }
}

/// The path and the peer.
impl Carrier {
    pub(crate) fn path(&self) -> PathView {
        each!(self, carrier => carrier.path())
    }

    /// Returns the number of bytes that were sent and neither acknowledged nor lost.
    pub(crate) fn in_flight(&self) -> u64 {
        each!(self, carrier => carrier.in_flight())
    }

    pub(crate) fn controller(&self) -> ControllerView {
        each!(self, carrier => carrier.controller())
    }

    /// Returns the knowledge of the path to `remote` for later connections, without the receive window. `None` if it is
    /// in doubt whether the peer is there.
    pub(crate) fn knowledge(&self, remote: SocketAddr) -> Option<PathKnowledge> {
        match self {
            Self::Quic(quic) => quic.knowledge(remote),
            Self::Tls(_) => None,
        }
    }

    /// Returns the peer's latest address at which it has shown that it receives.
    pub(crate) fn follow_remote(&mut self) -> SocketAddr {
        match self {
            Self::Quic(quic) => quic.follow_remote(),
            Self::Tls(tls) => tls.remote(),
        }
    }

    /// Returns the number of times that something from the peer has arrived.
    pub(crate) fn arrivals(&self) -> u64 {
        each!(self, carrier => carrier.arrivals())
    }

    /// Returns the length of the longest packet that the peer has sent.
    pub(crate) fn packet_max(&self) -> usize {
        match self {
            Self::Quic(quic) => quic.packet_max(),
            Self::Tls(_) => 0,
        }
    }

    pub(crate) fn counters(&self) -> CarrierCounters {
        each!(self, carrier => carrier.counters())
    }
}

/// A stream of a carrier of whichever kind.
pub(crate) enum CarrierStream<'a> {
    Quic(QuicStream<'a>),
    Tls(LayerStream<'a>),
}

impl Stream for CarrierStream<'_> {
    fn write(&mut self, chunk: &mut Bytes) -> WriteEnd {
        each!(self, stream => stream.write(chunk))
    }

    fn finish(&mut self) {
        each!(self, stream => stream.finish());
    }

    fn reset(&mut self, code: FlowCode) {
        each!(self, stream => stream.reset(code));
    }

    fn read(&mut self, ordered: bool, max: usize, sink: &mut dyn FnMut(u64, Bytes)) -> ReadEnd {
        each!(self, stream => stream.read(ordered, max, sink))
    }

    fn stop(&mut self, code: FlowCode) {
        each!(self, stream => stream.stop(code));
    }
}
