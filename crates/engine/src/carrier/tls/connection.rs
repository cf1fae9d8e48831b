//! One TLS connection over TCP, and the streams in it.

mod socket;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use quictun_congestion::ControllerView;
use quictun_flow::{Side, StreamId};
use quictun_http2 as http2;
use quictun_mux::{self as mux, Mux};
use quictun_tls::{TlsLimits, TlsStream};
use quictun_wire::code::{CloseCode, FlowCode};
use rustls::pki_types::{CertificateDer, ServerName};

use super::hello::HelloReader;
use super::layer::{Layer, LayerStream};
use super::loss::{of_http2, of_mux, of_tls};
use super::rtt::Rtt;
use super::settings::{TlsClient, TlsServer};
use super::single_stream::SingleStream;
use super::unsent::UnsentLimit;
use crate::carrier::interface::{CarrierCounters, CarrierEvent, CreditOffer, PathView};
use crate::config::Transport;
use crate::grants::InitialGrants;
use crate::loss::{LocalError, LossReason};
use crate::report::{Protocol, SendLimit};

pub(crate) use socket::WRITE_MAX;

/// The window that bounds what is kept until the peer confirms it. The system's TCP has its own.
const WINDOW: u64 = 4 << 20;

/// Time that a closed connection gets to send its last records.
const LINGER: Duration = Duration::from_secs(3);

/// A connection whose TCP connection may still be dialled.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub(crate) struct TlsCarrier {
    remote: SocketAddr,
    tls: TlsStream,
    layer: Layer,
    /// Server: clients may speak HTTP.
    serves_http: bool,
    phase: Phase,
    /// The sending direction of the socket has ended.
    finished: bool,
    /// The reason for the end, until it is reported.
    failure: Option<LossReason>,
    /// The socket has bytes to read, and room to write.
    readable: bool,
    /// The socket has failed, which reading tells unless nothing is read any more.
    socket_failed: bool,
    writable: bool,
    /// Server: reads the client's first message.
    hello: Option<Box<HelloReader>>,
    /// Server: the worker that the client has named.
    worker: Option<u8>,
    /// Bytes of an incomplete record.
    received: BytesMut,
    /// Records that wait for room in the socket.
    out: Vec<u8>,
    rtt: Rtt,
    /// The handshake was not reported. QMux reports it itself.
    unreported: bool,
    /// The limits with which any layer begins.
    limits: mux::Config,
    idle_timeout: Duration,
    heard: Instant,
    reads: u64,
    /// Bytes of streams written since the peer was last heard.
    unanswered: u64,
    limit: SendLimit,
    unsent: UnsentLimit,
    counters: ByteCounters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Client: the caller dials.
    Dialling,
    /// Server: the client's first message has to arrive.
    Hello,
    /// Server: the first message waits for its turn, or for the worker that it names.
    Queued,
    /// The TCP connection carries records.
    Open,
    /// Only the last records are to leave, until this time.
    Closing(Instant),
    /// Only an alert is to leave, until this time.
    Failed(Instant),
    /// The TCP connection is to be reset, once the peer's system has what was sent before, or at this time. Whether it has
    /// is looked up at the second time.
    Aborting(Instant, Instant),
    Over,
}

#[derive(Clone, Copy, Debug, Default)]
struct ByteCounters {
    sent: u64,
    received: u64,
    calls: u64,
}

/// The life of a connection.
impl TlsCarrier {
    /// Begins a connection to a server. The caller has to dial `remote`.
    pub(crate) fn client(
        now: Instant,
        remote: SocketAddr,
        server_name: &str,
        tls: &TlsClient,
        route: Option<u8>,
        transport: &Transport,
        first: InitialGrants,
    ) -> Result<Self, LossReason> {
        let name = ServerName::try_from(server_name.to_owned())
            .map_err(|_| LocalError::ServerName(server_name.to_owned()))?;
        let config = tls.for_worker(route);
        let tls = TlsStream::client(&config, name, TlsLimits::CLIENT);
        let tls = tls.map_err(|error| of_tls(&error))?;
        let phase = Phase::Dialling;
        Ok(Self::new(
            now,
            Side::Client,
            remote,
            tls,
            phase,
            transport,
            first,
        ))
    }

    /// Takes a connection that the caller has accepted, and that has `received` these bytes.
    pub(crate) fn server(
        now: Instant,
        (remote, received): (SocketAddr, &[u8]),
        tls: &TlsServer,
        transport: &Transport,
        first: InitialGrants,
    ) -> Result<Self, LossReason> {
        let serves_http = tls.serves_http;
        let tls = TlsStream::server(&tls.config, TlsLimits::SERVER);
        let tls = tls.map_err(|error| of_tls(&error))?;
        let phase = Phase::Hello;
        let mut new = Self::new(now, Side::Server, remote, tls, phase, transport, first);
        new.serves_http = serves_http;
        if !received.is_empty() {
            new.handle_bytes(now, received);
        }
        Ok(new)
    }

    fn new(
        now: Instant,
        side: Side,
        remote: SocketAddr,
        tls: TlsStream,
        phase: Phase,
        transport: &Transport,
        first: InitialGrants,
    ) -> Self {
        let config = mux::Config {
            window: first.window,
            stream_window: u64::from(transport.stream_window),
            streams: if side == Side::Server { first.flows } else { 0 },
            kept: quictun_flow::window::send_window(0, 0),
            datagram_frame_max: u64::from(u16::MAX),
        };
        Self {
            remote,
            tls,
            layer: Layer::Mux(Mux::new(side, config)),
            serves_http: false,
            phase,
            finished: false,
            failure: None,
            readable: false,
            socket_failed: false,
            writable: true,
            hello: None,
            worker: None,
            received: BytesMut::new(),
            out: Vec::new(),
            rtt: Rtt::default(),
            unreported: false,
            limits: config,
            idle_timeout: transport.idle_timeout,
            heard: now,
            reads: 0,
            unanswered: 0,
            limit: SendLimit::default(),
            unsent: UnsentLimit::new(),
            counters: ByteCounters::default(),
        }
    }

    /// Takes the result of the dial.
    pub(crate) fn handle_dialed(&mut self, now: Instant, result: Result<(), LossReason>) {
        if self.phase != Phase::Dialling {
            return;
        }
        self.heard = now;
        match result {
            Ok(()) => {
                self.phase = Phase::Open;
                self.handle_ready(true, true, false);
            }
            Err(reason) => self.fail(reason),
        }
    }

    /// Notes that the socket may have bytes to read, or room to write, or has failed.
    pub(crate) fn handle_ready(&mut self, readable: bool, writable: bool, failed: bool) {
        // A failure is handled once the bytes that arrived before it are read.
        self.readable |= readable || failed;
        self.writable |= writable;
        self.socket_failed |= failed;
        self.follow_failure();
    }

    pub(crate) fn poll_event(&mut self) -> Option<CarrierEvent> {
        let mux = match &mut self.layer {
            Layer::Mux(mux) => mux,
            Layer::Single(single) => {
                let event = single.poll_event();
                return event.or_else(|| self.failure.take().map(CarrierEvent::Lost));
            }
            Layer::Http2(_) => return self.poll_http2(),
        };
        while let Some(event) = mux.poll_event() {
            return Some(match event {
                // The same bytes have closed it. No stream opens any more, as if the peer permitted none.
                mux::Event::Connected if mux.is_closed() => continue,
                mux::Event::Connected => {
                    // Until its answer, nothing is known of the round-trip time.
                    mux.ping();
                    CarrierEvent::Connected
                }
                mux::Event::Opened => CarrierEvent::Opened,
                mux::Event::Readable(stream) => CarrierEvent::Readable(stream),
                mux::Event::Writable(stream) => CarrierEvent::Writable(stream),
                mux::Event::Stopped(stream, code) => CarrierEvent::Stopped(stream, code),
                mux::Event::Available => CarrierEvent::Available,
                mux::Event::Pong(time) => {
                    self.rtt.note(time);
                    continue;
                }
                mux::Event::Lost(error) => {
                    self.failure = Some(of_mux(&error));
                    continue;
                }
                mux::Event::Datagram(payload) => CarrierEvent::Datagram(payload),
            });
        }
        self.failure.take().map(CarrierEvent::Lost)
    }

    fn poll_http2(&mut self) -> Option<CarrierEvent> {
        if std::mem::take(&mut self.unreported) {
            return Some(CarrierEvent::Connected);
        }
        if let Layer::Http2(http2) = &mut self.layer {
            while let Some(event) = http2.poll_event() {
                return Some(match event {
                    http2::Event::Opened => CarrierEvent::Opened,
                    http2::Event::Readable(stream) => CarrierEvent::Readable(stream),
                    http2::Event::Writable(stream) => CarrierEvent::Writable(stream),
                    http2::Event::Stopped(stream) => {
                        CarrierEvent::Stopped(stream, FlowCode::AppReset.to_u64())
                    }
                    http2::Event::RoundTrip(time) => {
                        self.rtt.note(time);
                        continue;
                    }
                    http2::Event::Lost(end) => {
                        self.failure = Some(of_http2(end));
                        continue;
                    }
                });
            }
        }
        self.failure.take().map(CarrierEvent::Lost)
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        match self.phase {
            Phase::Closing(until) | Phase::Failed(until) => Some(until),
            Phase::Aborting(_, next) => Some(next),
            // The system probes the client of a proxy.
            Phase::Open if self.layer.single().is_some_and(SingleStream::is_answered) => None,
            Phase::Open if self.tls.is_established() => {
                // While an HTTP/2 connection has streams, TCP keep-alives probe its client.
                let since = match self.layer.http2() {
                    Some(http2) => http2.idle_since()?.max(self.heard),
                    None => self.heard,
                };
                Some(since + self.idle_timeout)
            }
            _ => None,
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if matches!(self.phase, Phase::Aborting(..)) {
            // The caller writes next.
            return;
        }
        if self.next_timeout().is_some_and(|at| at <= now) {
            if self.phase == Phase::Open {
                self.failure = Some(LossReason::TimedOut);
                if self.layer.http2().is_some() {
                    // The program need not have an error: it has used the connection, or may use it later.
                    return self.close(now, CloseCode::Done, Bytes::new());
                }
            }
            self.phase = Phase::Over;
        }
    }

    /// Returns whether the connection is one stream alone.
    pub(crate) fn is_single(&self) -> bool {
        self.layer.single().is_some()
    }

    /// Returns whether the end of the connection is still to be reported.
    pub(crate) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Returns whether the connection needs its socket no more.
    pub(crate) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    pub(crate) fn protocol(&self) -> Protocol {
        if self.is_single() {
            Protocol::Http
        } else {
            Protocol::of_alpn(self.tls.alpn())
        }
    }

    pub(crate) fn certificates(&self) -> Option<Vec<CertificateDer<'static>>> {
        self.tls.certificates().map(<[_]>::to_vec)
    }

    pub(crate) fn export(&self, label: &[u8]) -> Option<[u8; 32]> {
        self.tls.export(label)
    }

    pub(crate) fn ping(&mut self) {
        self.layer.ping();
    }

    pub(crate) fn close(&mut self, now: Instant, code: CloseCode, reason: Bytes) {
        if self.is_closed() {
            return;
        }
        let tells = self.layer.close(code, reason);
        self.phase = if !self.tls.is_established() {
            Phase::Over
        } else if !tells {
            // Nothing else tells that the bytes are incomplete.
            Phase::Aborting(now + LINGER, now)
        } else {
            Phase::Closing(now + LINGER)
        };
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.layer.is_closed() || self.is_ending()
    }

    fn is_ending(&self) -> bool {
        matches!(
            self.phase,
            Phase::Closing(_) | Phase::Failed(_) | Phase::Aborting(..) | Phase::Over
        )
    }

    fn fail(&mut self, reason: LossReason) {
        if !self.is_ending() {
            self.failure = Some(reason);
        }
        self.phase = Phase::Over;
    }
}

/// Streams, and the credit for them.
impl TlsCarrier {
    pub(crate) fn open(&mut self) -> Option<StreamId> {
        self.layer.open()
    }

    pub(crate) fn accept(&mut self) -> Option<StreamId> {
        self.layer.accept()
    }

    pub(crate) fn stream(&mut self, id: StreamId) -> LayerStream<'_> {
        LayerStream {
            layer: &mut self.layer,
            id,
        }
    }

    pub(crate) fn prefer(&mut self, stream: StreamId, preferred: bool) {
        self.layer.prefer(stream, preferred);
    }

    pub(crate) fn peer_streams(&self) -> u64 {
        self.layer.peer_streams()
    }

    pub(crate) fn unsettled_streams(&self) -> usize {
        self.layer.unsettled_streams()
    }

    pub(crate) fn grant_streams(&mut self, limit: u32) {
        self.layer.grant_streams(limit);
    }

    pub(crate) fn grant(&mut self, offer: CreditOffer) {
        self.layer.set_window(offer.left);
    }

    pub(crate) fn granted(&self) -> u64 {
        self.layer.granted()
    }

    pub(crate) fn set_kept(&mut self, bytes: u64) {
        self.layer.set_kept(bytes);
    }

    pub(crate) fn note_held(&mut self, stream: StreamId, bytes: u64) {
        self.layer.note_held(stream, bytes);
    }

    pub(crate) fn drain(&mut self) {
        self.layer.drain();
    }
}

/// DATAGRAM frames, which leave before the data of streams.
impl TlsCarrier {
    pub(crate) fn max_datagram(&self) -> Option<usize> {
        self.layer.max_datagram()
    }

    pub(crate) fn datagrams_queued(&self) -> usize {
        self.layer.datagrams_queued()
    }

    pub(crate) fn send_datagram(&mut self, payload: Bytes) -> bool {
        self.layer.send_datagram(payload)
    }
}

/// Sending, and what limits it.
impl TlsCarrier {
    /// Returns the number of bytes that flows may hand over now.
    pub(crate) fn begin_filling(&mut self, waiting: bool) -> Option<usize> {
        self.limit = match (waiting, self.writable) {
            (true, false) => SendLimit::Congestion,
            (true, true) => SendLimit::Cpu,
            (false, _) if self.limit == SendLimit::ReceiveWindow => SendLimit::ReceiveWindow,
            (false, _) => SendLimit::Application,
        };
        let ready = waiting && self.tls.is_established() && !self.is_closed();
        let room = self.layer.room(self.batch());
        Some(room).filter(|&room| ready && self.writable && self.out.is_empty() && room > 0)
    }

    pub(crate) fn note_written(&mut self, bytes: usize) {
        // A program need not answer what it receives.
        if matches!(self.layer, Layer::Mux(_)) {
            self.unanswered += bytes as u64;
        }
    }

    pub(crate) fn has_unsent(&self) -> bool {
        !self.out.is_empty() || !self.layer.is_idle()
    }

    pub(crate) fn is_idle(&self) -> bool {
        !self.has_unsent() && self.unanswered == 0
    }

    pub(crate) fn limit(&self) -> SendLimit {
        self.limit
    }

    pub(crate) fn set_limit(&mut self, limit: SendLimit) {
        self.limit = limit;
    }
}

/// The path and the peer.
impl TlsCarrier {
    pub(crate) fn in_flight(&self) -> u64 {
        self.unanswered
    }

    pub(crate) fn controller(&self) -> ControllerView {
        ControllerView {
            mode: "tcp",
            phase: "kernel",
            starting: false,
            even: false,
            bandwidth: 0.0,
            min_rtt: self.rtt.is_known().then(|| self.rtt.min()),
            loss_floor: 0.0,
            trust: 0.0,
        }
    }

    pub(crate) fn path(&self) -> PathView {
        PathView {
            rtt: self.rtt.smoothed(),
            min_rtt: self.rtt.min(),
            window: WINDOW,
        }
    }

    pub(crate) fn remote(&self) -> SocketAddr {
        self.remote
    }

    pub(crate) fn arrivals(&self) -> u64 {
        self.reads
    }

    pub(crate) fn counters(&self) -> CarrierCounters {
        CarrierCounters {
            mtu: None,
            congestion_window: None,
            packets_sent: 0,
            packets_lost: 0,
            congestion_events: 0,
            pacing_rate: None,
            bytes_sent: self.counters.sent,
            bytes_received: self.counters.received,
            batches: self.counters.calls,
            datagrams: 0,
            repeated: 0,
        }
    }
}
