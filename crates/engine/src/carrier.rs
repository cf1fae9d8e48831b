//! Carriers bring flows from one side of the tunnel to the other.
//!
//! A carrier has streams, credit for them, and packets of its own. QUIC is the only kind. Another kind is another
//! variant of [`Carrier`], made by an endpoint of its own; a [`Connection`](crate::connection::Connection) and everything
//! above it knows only what is here.
//!
//! # Order of calls
//!
//! 1. The endpoint passes packets that have arrived; [`Carrier::handle_timeout`] handles timers that are due.
//! 2. [`Carrier::poll_event`] until it returns `None`.
//! 3. [`Carrier::watch`], [`Carrier::follow_remote`] and [`Carrier::follow_up`].
//! 4. [`Carrier::begin_filling`]; with room, [`Carrier::stream`] for what flows write; [`Carrier::end_filling`].
//! 5. [`Carrier::poll_transmit`] until it returns `None`.

mod interface;
pub(crate) mod quic;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use quictun_congestion::{ControllerView, PathKnowledge};
use quictun_flow::{Stream, StreamId};
use quictun_wire::code::CloseCode;
use rustls::pki_types::CertificateDer;

use crate::datagrams::Datagrams;
use crate::report::{Protocol, SendLimit};
use quic::QuicCarrier;

pub(crate) use interface::{BatchContext, CarrierCounters, CarrierEvent, CreditOffer, PathView};

/// Evaluates an expression for the carrier of whichever kind.
macro_rules! each {
    ($self:ident, $carrier:ident => $value:expr) => {
        match $self {
            Self::Quic($carrier) => $value,
        }
    };
}

/// A connection of any kind, without the state that all kinds have in common.
pub(crate) enum Carrier {
    Quic(QuicCarrier),
}

/// The life of a carrier.
impl Carrier {
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
        each!(self, carrier => carrier.acknowledge_early(soon));
    }

    /// Watches the packets in flight after others have arrived, and records the controller's view in the trace.
    pub(crate) fn watch(&mut self, now: Instant) {
        each!(self, carrier => carrier.watch(now));
    }

    /// Ends a turn in which something has arrived.
    pub(crate) fn follow_up(&mut self, now: Instant) {
        each!(self, carrier => carrier.follow_up(now));
    }

    /// Server: returns whether the client's first message of the handshake has arrived only in part.
    pub(crate) fn awaits_client_hello(&self) -> bool {
        each!(self, carrier => carrier.awaits_client_hello())
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
        each!(self, carrier => carrier.end_handshake());
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

    pub(crate) fn stream(&mut self, id: StreamId) -> impl Stream {
        each!(self, carrier => carrier.stream(id))
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
        each!(self, carrier => carrier.answer_blocked(offer));
    }

    /// Returns the bytes that the peer may send beyond those that were taken off streams.
    pub(crate) fn granted(&self) -> u64 {
        each!(self, carrier => carrier.granted())
    }

    /// Notes that `bytes` were taken off streams.
    pub(crate) fn note_taken(&mut self, bytes: u64) {
        each!(self, carrier => carrier.note_taken(bytes));
    }

    /// Forgets a part of the credit that is still to be taken back. Call it only if there is plenty of memory.
    pub(crate) fn forgive(&mut self) {
        each!(self, carrier => carrier.forgive());
    }

    /// Limits the bytes that are kept until the peer has acknowledged them.
    pub(crate) fn set_kept(&mut self, bytes: u64) {
        each!(self, carrier => carrier.set_kept(bytes));
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
        each!(self, carrier => carrier.begin_filling(now, sleeps, waiting))
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
        each!(self, carrier => carrier.end_filling(now, room, waiting, restrained));
    }

    pub(crate) fn poll_transmit(
        &mut self,
        now: Instant,
        context: BatchContext,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Datagrams> {
        each!(self, carrier => carrier.poll_transmit(now, context, max_segments, buffer))
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
        each!(self, carrier => carrier.knowledge(remote))
    }

    /// Returns the peer's latest address at which it has shown that it receives.
    pub(crate) fn follow_remote(&mut self) -> SocketAddr {
        each!(self, carrier => carrier.follow_remote())
    }

    /// Returns the number of times that something from the peer has arrived.
    pub(crate) fn arrivals(&self) -> u64 {
        each!(self, carrier => carrier.arrivals())
    }

    /// Returns the length of the longest packet that the peer has sent.
    pub(crate) fn packet_max(&self) -> usize {
        each!(self, carrier => carrier.packet_max())
    }

    pub(crate) fn counters(&self) -> CarrierCounters {
        each!(self, carrier => carrier.counters())
    }
}
