//! A connection of the library, with the credit, packets and measurements that belong to it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use quictun_congestion::{ControllerView, PathKnowledge};
use quictun_flow::StreamId;
use quictun_wire::code::CloseCode;
use quinn_proto::crypto::rustls::HandshakeData;
use quinn_proto::{ConnectionEvent, ConnectionHandle, Dir, Event, StreamEvent, VarInt};
use rustls::pki_types::CertificateDer;

use super::config::{ACK_WITHIN, Setup};
use super::credit::GrantedCredit;
use super::loss::reason_of;
use super::peer_questions::PeerQuestions;
use super::sending::Sending;
use super::stream::{QuicStream, from_library, to_library};
use super::trace::Trace;
use crate::carrier::interface::{
    BatchContext, CarrierCounters, CarrierEvent, CreditOffer, PathView,
};
use crate::datagrams::Datagrams;
use crate::report::{Protocol, SendLimit};

/// A connection of the library, with the pacing and the measurements of its packets.
pub(crate) struct QuicCarrier {
    pub(super) handle: ConnectionHandle,
    pub(super) library: quinn_proto::Connection,
    sending: Sending,
    credit: GrantedCredit,
    /// The address to which the library sends. It changes with the first packet from another address, which the peer, or
    /// a host that has captured the packet, may have sent with a false source.
    path: SocketAddr,
    /// The peer's latest address from which it has shown that it receives there (RFC 9000 section 8.2).
    validated: SocketAddr,
    questions: PeerQuestions,
    /// Length of the longest datagram that the peer has sent.
    packet_max: usize,
    datagrams_received: u64,
    /// The library has payloads of DATAGRAM frames.
    has_payloads: bool,
    trace: Option<Trace>,
}

/// A datagram of a connection.
#[derive(Debug)]
pub(crate) struct Packet {
    pub(super) event: ConnectionEvent,
    pub(super) length: usize,
}

/// The life of a connection.
impl QuicCarrier {
    pub(super) fn new(
        now: Instant,
        handle: ConnectionHandle,
        library: quinn_proto::Connection,
        setup: Setup,
    ) -> Self {
        let remote = library.remote_address();
        Self {
            handle,
            library,
            sending: Sending::new(now, setup.gauge),
            credit: GrantedCredit::new(setup.window),
            path: remote,
            validated: remote,
            questions: PeerQuestions::new(now),
            packet_max: 0,
            datagrams_received: 0,
            has_payloads: false,
            trace: setup.trace,
        }
    }

    /// Handles a datagram of this connection. Returns `None` if it acknowledges no data in flight, and otherwise the age
    /// of the oldest packet that it acknowledges, among those not older than `age_max`.
    #[inline]
    pub(crate) fn handle_packet(
        &mut self,
        now: Instant,
        packet: Packet,
        age_max: Duration,
    ) -> Option<Duration> {
        let acked = self.sending.gauge.acked();
        self.sending.gauge.watch_ages(age_max);
        let path = self.library.remote_address();
        self.packet_max = self.packet_max.max(packet.length);
        self.library.handle_event(packet.event);
        self.datagrams_received += 1;
        self.questions.handle_datagram(now);
        self.sending.allow(1);
        if self.sending.gauge.acked() == acked {
            return None;
        }
        // The library passes acknowledgements to the controller only if it does not doubt the peer's address.
        self.validated = path;
        Some(self.sending.gauge.oldest_acked())
    }

    pub(crate) fn poll_event(&mut self) -> Option<CarrierEvent> {
        if self.has_payloads {
            if let Some(payload) = self.library.datagrams().recv() {
                return Some(CarrierEvent::Datagram(payload));
            }
            self.has_payloads = false;
        }
        loop {
            let event = self.library.poll();
            self.questions.note_event(event.is_some());
            if matches!(event, Some(Event::DatagramReceived)) {
                self.has_payloads = true;
                return self.poll_event();
            }
            if let Some(event) = carrier_event(event?) {
                return Some(event);
            }
        }
    }

    pub(crate) fn next_timeout(&mut self) -> Option<Instant> {
        let timeouts = [self.library.poll_timeout(), self.sending.next_timeout()];
        timeouts.into_iter().flatten().min()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.sending.handle_timeout(now);
        if self.library.poll_timeout().is_some_and(|at| at <= now) {
            self.library.handle_timeout(now);
            self.sending.allow(2);
        }
    }

    /// Sends the acknowledgement that is due by `soon`. If nothing is in flight, the library's other timers are far
    /// away.
    pub(crate) fn acknowledge_early(&mut self, soon: Instant) {
        if self.sending.gauge.in_flight() == 0
            && let Some(at) = self.library.poll_timeout().filter(|&at| at <= soon)
        {
            self.library.handle_timeout(at);
            self.sending.allow(2);
        }
    }

    /// Ends a turn: answers a question of the peer at once.
    pub(crate) fn follow_up(&mut self, now: Instant) {
        if self.questions.take() {
            self.acknowledge_early(now + ACK_WITHIN);
        }
    }

    pub(crate) fn awaits_client_hello(&self) -> bool {
        let server = self.library.side().is_server();
        server && self.library.crypto_session().handshake_data().is_none()
    }

    pub(crate) fn protocol(&self) -> Protocol {
        let data = self.library.crypto_session().handshake_data();
        let data = data.and_then(|data| data.downcast::<HandshakeData>().ok());
        let chosen = data.and_then(|data| data.protocol);
        Protocol::of_alpn(chosen.as_deref())
    }

    pub(crate) fn certificates(&self) -> Option<Vec<CertificateDer<'static>>> {
        let identity = self.library.crypto_session().peer_identity()?;
        identity.downcast().ok().map(|chain| *chain)
    }

    pub(crate) fn export(&self, label: &[u8]) -> Option<[u8; 32]> {
        let mut value = [0; 32];
        let session = self.library.crypto_session();
        session
            .export_keying_material(&mut value, label, b"")
            .ok()?;
        Some(value)
    }

    pub(crate) fn end_handshake(&mut self) {
        self.sending.end_handshake();
    }

    pub(crate) fn ping(&mut self) {
        self.library.ping();
        self.sending.allow(1);
    }

    pub(crate) fn close(&mut self, now: Instant, code: CloseCode, reason: Bytes) {
        let code = VarInt::from_u64(code.to_u64()).unwrap_or(VarInt::MAX);
        self.library.close(now, code, reason);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.library.is_closed()
    }
}

/// Streams, and the credit for them.
impl QuicCarrier {
    pub(crate) fn open(&mut self) -> Option<StreamId> {
        from_library(self.library.streams().open(Dir::Bi)?)
    }

    pub(crate) fn accept(&mut self) -> Option<StreamId> {
        from_library(self.library.streams().accept(Dir::Bi)?)
    }

    pub(crate) fn stream(&mut self, id: StreamId) -> QuicStream<'_> {
        QuicStream {
            library: &mut self.library,
            id: to_library(id),
        }
    }

    pub(crate) fn prefer(&mut self, stream: StreamId, preferred: bool) {
        let mut stream = self.library.send_stream(to_library(stream));
        // An error means that the stream has ended. Then it has no frames.
        if stream.set_priority(i32::from(preferred)).is_err() {}
    }

    pub(crate) fn peer_streams(&mut self) -> u64 {
        self.library.streams().remote_open_streams(Dir::Bi)
    }

    pub(crate) fn unsettled_streams(&mut self) -> usize {
        self.library.streams().send_streams()
    }

    pub(crate) fn grant_streams(&mut self, limit: u32) {
        let limit = VarInt::from_u32(limit);
        self.library.set_max_concurrent_streams(Dir::Bi, limit);
    }

    pub(crate) fn grant(&mut self, offer: CreditOffer) {
        self.credit.grant(offer, &mut self.library);
    }

    pub(crate) fn answer_blocked(&mut self, offer: CreditOffer) {
        self.credit.answer_blocked(offer, &mut self.library);
    }

    pub(crate) fn granted(&self) -> u64 {
        self.credit.granted()
    }

    pub(crate) fn note_taken(&mut self, bytes: u64) {
        self.credit.note_taken(bytes);
    }

    pub(crate) fn forgive(&mut self) {
        self.credit.forgive();
    }

    pub(crate) fn set_kept(&mut self, bytes: u64) {
        self.library.set_send_window(bytes);
    }
}

/// DATAGRAM frames, which the library sends before streams.
impl QuicCarrier {
    pub(crate) fn max_datagram(&mut self) -> Option<usize> {
        self.library.datagrams().max_size()
    }

    pub(crate) fn send_datagram(&mut self, payload: Bytes) -> bool {
        self.library.datagrams().send(payload, true).is_ok()
    }
}

/// Sending: batches, and what limits them.
impl QuicCarrier {
    pub(crate) fn begin_filling(
        &mut self,
        now: Instant,
        sleeps: Duration,
        waiting: bool,
    ) -> Option<usize> {
        let (waiting, mtu) = (waiting && !self.is_closed(), self.library.current_mtu());
        self.sending.begin_filling(now, sleeps, waiting, mtu)
    }

    pub(crate) fn end_filling(
        &mut self,
        now: Instant,
        room: usize,
        waiting: bool,
        restrained: bool,
    ) {
        self.sending.end_filling(now, room, waiting, restrained);
    }

    pub(crate) fn note_written(&mut self, bytes: usize) {
        self.sending.note_written(bytes);
    }

    pub(crate) fn has_unsent(&self) -> bool {
        self.sending.has_unsent()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.sending.is_idle()
    }

    pub(crate) fn limit(&self) -> SendLimit {
        self.sending.limit
    }

    pub(crate) fn set_limit(&mut self, limit: SendLimit) {
        self.sending.limit = limit;
    }

    pub(crate) fn poll_transmit(
        &mut self,
        now: Instant,
        context: BatchContext,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Datagrams> {
        let library = &mut self.library;
        self.sending
            .poll(now, library, context, max_segments, buffer)
    }
}

/// The path and the peer.
impl QuicCarrier {
    pub(crate) fn in_flight(&self) -> u64 {
        self.sending.gauge.in_flight()
    }

    pub(crate) fn controller(&self) -> ControllerView {
        self.sending.gauge.view()
    }

    pub(crate) fn path(&self) -> PathView {
        PathView {
            rtt: self.library.rtt(),
            min_rtt: self.library.min_rtt(),
            window: self.sending.gauge.window(),
        }
    }

    pub(crate) fn knowledge(&self, remote: SocketAddr) -> Option<PathKnowledge> {
        // Beyond another address is another path.
        let here = self.library.remote_address() == remote;
        here.then(|| PathKnowledge {
            resume: self.sending.gauge.resume_point(),
            receive_window: 0,
            reordering: self.sending.gauge.reordering(),
        })
    }

    /// Watches the packets in flight, and records the controller's view in the trace.
    pub(crate) fn watch(&mut self, now: Instant) {
        self.sending.watch_flight(now, &self.library);
        if let Some(trace) = &mut self.trace {
            trace.note(now, &self.sending.gauge, self.sending.limit);
        }
    }

    pub(crate) fn follow_remote(&mut self) -> SocketAddr {
        let path = self.library.remote_address();
        if std::mem::replace(&mut self.path, path) != path {
            self.sending.forget_flight();
        }
        self.validated
    }

    pub(crate) fn arrivals(&self) -> u64 {
        self.datagrams_received
    }

    pub(crate) fn packet_max(&self) -> usize {
        self.packet_max
    }

    pub(crate) fn counters(&self) -> CarrierCounters {
        let stats = self.library.stats();
        let counters = self.sending.counters;
        CarrierCounters {
            mtu: Some(self.library.current_mtu()),
            congestion_window: Some(self.sending.gauge.window()),
            packets_sent: stats.path.sent_packets,
            packets_lost: stats.path.lost_packets,
            congestion_events: self.sending.gauge.events(),
            pacing_rate: self.sending.gauge.limits().rate,
            bytes_sent: stats.udp_tx.bytes,
            bytes_received: stats.udp_rx.bytes,
            batches: counters.batches,
            datagrams: counters.datagrams,
            repeated: counters.repeated,
        }
    }
}

/// Returns the library's event in the words of carriers. `None` if no carrier has such an event.
fn carrier_event(event: Event) -> Option<CarrierEvent> {
    Some(match event {
        Event::Connected => CarrierEvent::Connected,
        Event::ConnectionLost { reason } => CarrierEvent::Lost(reason_of(&reason)),
        Event::Stream(event) => match event {
            StreamEvent::Opened { .. } => CarrierEvent::Opened,
            StreamEvent::Readable { id } => CarrierEvent::Readable(from_library(id)?),
            StreamEvent::Writable { id } => CarrierEvent::Writable(from_library(id)?),
            StreamEvent::Stopped { id, error_code } => {
                CarrierEvent::Stopped(from_library(id)?, error_code.into_inner())
            }
            StreamEvent::Available { .. } => CarrierEvent::Available,
            StreamEvent::Finished { .. } => return None,
        },
        Event::HandshakeDataReady | Event::DatagramReceived | Event::DatagramsUnblocked => {
            return None;
        }
    })
}
