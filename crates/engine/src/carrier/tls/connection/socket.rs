//! The socket of a connection: bytes that arrive, and records that leave.

use std::io::{self, IoSlice};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use quictun_flow::{Socket, window};
use quictun_http2::{self as http2, Http2};
use quictun_tls::{SendBuffer, TlsError};
use quictun_wire::alpn;
use quictun_wire::code::CloseCode;

use super::super::hello::{Hello, HelloReader};
use super::super::layer::Layer;
use super::super::loss::{of_tcp, of_tls};
use super::super::single_stream::{SingleStream, StreamEnd};
use super::{LINGER, Phase, TlsCarrier};
use crate::loss::{LossReason, ProtocolError};

/// Bytes that one call reads from a socket, and the number of calls in one turn.
const READ_MAX: usize = 128 * 1024;
const READS: usize = 8;

/// Bytes that one call reads from a peer that has no answer yet.
const READ_FIRST: usize = 16 * 1024;

/// Bytes of records that are written together. More would delay what has to leave first.
pub(crate) const WRITE_MAX: usize = 256 * 1024;

/// Interval at which a connection that is to be reset looks whether its last bytes have left the system.
const LOOK_EVERY: Duration = Duration::from_millis(10);

impl TlsCarrier {
    /// Reads what has arrived, into `scratch` at first. Returns whether anything has.
    pub(crate) fn read(
        &mut self,
        now: Instant,
        socket: &mut impl Socket,
        scratch: &mut Vec<u8>,
    ) -> bool {
        let before = self.reads;
        for _ in 0..READS {
            if !self.is_readable() {
                break;
            }
            let mut first = Vec::new();
            let buffer = if self.is_begun() {
                scratch.clear();
                scratch.reserve(READ_MAX);
                &mut *scratch
            } else {
                first.reserve_exact(READ_FIRST);
                &mut first
            };
            match socket.read(buffer) {
                Ok(0) => {
                    self.readable = false;
                    self.handle_end(now);
                }
                Ok(count) => {
                    self.readable = !socket.is_drained();
                    self.handle_bytes(now, &buffer[..count]);
                }
                Err(error) => {
                    self.readable = false;
                    if error.kind() != io::ErrorKind::WouldBlock {
                        self.fail_tcp(&error);
                    }
                }
            }
        }
        self.follow_failure();
        let arrived = self.reads > before;
        if arrived {
            // The rest is a record in part. It would keep the memory of all records that arrived with it.
            self.received = BytesMut::from(&*self.received);
        }
        arrived
    }

    /// Ends a connection whose socket has failed, and whose only stream takes no bytes any more: no read would return
    /// the socket's error.
    pub(super) fn follow_failure(&mut self) {
        let has_ended = self.layer.single().is_some_and(SingleStream::has_arrived);
        if self.socket_failed && self.phase == Phase::Open && has_ended {
            self.fail(LossReason::ProgramLeft);
        }
    }

    /// Returns whether the handshake is complete, and a client that speaks HTTP has an answer.
    fn is_begun(&self) -> bool {
        let single = self.layer.single();
        self.tls.is_established() && single.is_none_or(SingleStream::is_answered)
    }

    pub(super) fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) {
        self.heard = now;
        self.reads += 1;
        // The peer has yet to answer the bytes that fill the socket.
        let fills = !self.writable && matches!(self.layer, Layer::Mux(_));
        self.unanswered = u64::from(fills);
        self.counters.received += bytes.len() as u64;
        // A copy has the length of what has arrived. A flow that is slow to take a byte of it keeps no more than that.
        self.received.extend_from_slice(bytes);
        if self.phase == Phase::Hello {
            let reader = self.hello.get_or_insert_with(Box::<HelloReader>::default);
            match reader.read(&self.received) {
                Hello::Incomplete => return,
                Hello::Complete(worker) => self.worker = worker,
                Hello::Invalid => {}
            }
            self.hello = None;
            self.phase = Phase::Queued;
            return;
        }
        self.open_records(now);
    }

    /// Server: returns whether the client's first message has arrived, and waits to be answered.
    pub(crate) fn is_queued(&self) -> bool {
        self.phase == Phase::Queued
    }

    /// Server: returns the worker that the client has named.
    pub(crate) fn worker(&self) -> Option<u8> {
        self.worker
    }

    /// Server: takes the bytes that have arrived, for another worker.
    pub(crate) fn take_received(&mut self) -> BytesMut {
        self.phase = Phase::Over;
        std::mem::take(&mut self.received)
    }

    /// Server: answers the client's first message, whose turn it is.
    pub(crate) fn answer_client_hello(&mut self, now: Instant) {
        if self.phase == Phase::Queued {
            self.phase = Phase::Open;
            self.open_records(now);
        }
    }

    fn open_records(&mut self, now: Instant) {
        loop {
            let polled = match self.tls.poll_received(&mut self.received) {
                Ok(polled) => polled,
                Err(error) => return self.fail_tls(now, &error),
            };
            if self.tls.is_established() && !self.follow_protocol(now) {
                return self.end_other_protocol(now);
            }
            match polled {
                Some(plaintext) => self.layer.handle_bytes(now, plaintext),
                None => break,
            }
        }
        if self.layer.is_closed() && self.phase == Phase::Open {
            // The peer has closed the connection, or has broken the protocol: it must learn that.
            self.phase = Phase::Closing(now + LINGER);
        }
        if self.tls.is_peer_closed() {
            self.handle_end(now);
        }
    }

    /// Begins the layer of the protocol that was negotiated. Returns false if it is none that this side speaks. Some
    /// programs offer a proxy no protocol: they speak HTTP/1.1 (PROTOCOL PROXY-1).
    fn follow_protocol(&mut self, now: Instant) -> bool {
        match (&self.layer, self.tls.alpn()) {
            (Layer::Single(_) | Layer::Http2(_), _) | (_, Some(alpn::MUX)) => true,
            (Layer::Mux(mux), Some(alpn::HTTP_1) | None) if self.serves_http => {
                let single = SingleStream::new(mux.granted(), window::send_window(0, 0));
                self.layer = Layer::Single(single);
                true
            }
            (Layer::Mux(mux), Some(alpn::HTTP_2)) if self.serves_http => {
                let limits = &self.limits;
                let config = http2::Config {
                    window: mux.granted(),
                    stream_window: limits.stream_window,
                    streams: limits.streams,
                    kept: limits.kept,
                };
                self.layer = Layer::Http2(Box::new(Http2::new(now, config)));
                self.unreported = true;
                true
            }
            _ => false,
        }
    }

    /// Handles the end of what the peer sends. Without a frame that closes the connection, it is a failure. One stream
    /// alone ends with it.
    fn handle_end(&mut self, now: Instant) {
        if let Err(error) = self.tls.handle_end() {
            let reason = self.program_left();
            return self.fail_and_tell(now, reason.unwrap_or_else(|| of_tls(&error)));
        }
        if let Layer::Single(single) = &mut self.layer
            && self.phase == Phase::Open
        {
            single.handle_end();
        } else if self.is_closed() {
            self.phase = Phase::Over;
        } else if let Some(reason) = self.program_left() {
            // Streams that are open have no end.
            self.failure = Some(reason);
            self.layer.close(CloseCode::Done, Bytes::new());
            self.phase = Phase::Closing(now + LINGER);
        } else {
            self.fail_tls(now, &TlsError::Truncated);
        }
    }

    /// Returns the reason for the end of a connection by a program that uses the proxy. Without streams, it is in order.
    fn program_left(&self) -> Option<LossReason> {
        match &self.layer {
            Layer::Mux(_) => None,
            Layer::Http2(http2) if http2.idle_since().is_some() => {
                Some(LossReason::of_close(CloseCode::Done.to_u64()))
            }
            Layer::Single(_) | Layer::Http2(_) => Some(LossReason::ProgramLeft),
        }
    }

    fn fail_tcp(&mut self, error: &io::Error) {
        let reason = self.program_left();
        self.fail(reason.unwrap_or_else(|| of_tcp(error)));
    }

    /// Ends a connection whose handshake has selected another protocol than QMux, or none: TLS lets a peer that offers, or
    /// selects, no protocol at all pass (PROTOCOL TCP-1).
    fn end_other_protocol(&mut self, now: Instant) {
        let reason = if self.tls.alpn() == Some(alpn::ACME) {
            // The authority has seen the certificate, and wants nothing else (RFC 8737 section 3).
            LossReason::ClosedLocally
        } else {
            let error = "the peer does not speak QMux: check the port";
            ProtocolError::here(error.to_owned()).into()
        };
        self.fail_and_tell(now, reason);
    }

    fn fail_tls(&mut self, now: Instant, error: &TlsError) {
        self.fail_and_tell(now, of_tls(error));
    }

    /// Ends the connection with an error of TLS, of which the peer learns by an alert.
    fn fail_and_tell(&mut self, now: Instant, reason: LossReason) {
        let is_first = !self.is_closed();
        self.fail(reason);
        if !is_first {
            return;
        }
        self.phase = if self.layer.single().is_some() {
            Phase::Aborting(now + LINGER, now)
        } else {
            Phase::Failed(now + LINGER)
        };
    }

    /// Writes records until the socket is full or nothing is left. Seals them in `scratch`. Returns whether anything has
    /// left.
    pub(crate) fn write(
        &mut self,
        now: Instant,
        socket: &mut impl Socket,
        scratch: &mut SendBuffer,
    ) -> bool {
        self.follow_failure();
        if matches!(
            self.phase,
            Phase::Dialling | Phase::Hello | Phase::Queued | Phase::Over
        ) {
            return false;
        }
        let before = self.counters.sent;
        let waiting = std::mem::take(&mut self.out);
        self.out = self.give(socket, &waiting).to_vec();
        if self.out.is_empty() && !matches!(self.phase, Phase::Aborting(..)) {
            self.seal(now, scratch);
            self.out = self.give(socket, scratch.as_slice()).to_vec();
            scratch.advance(scratch.len());
        }
        if let Some(most) = self.unsent.handle_sent(now, self.counters.sent - before) {
            socket.set_unsent_max(most);
        }
        self.follow_single_stream(now, socket);
        if let Phase::Failed(_) = self.phase
            && self.out.is_empty()
        {
            socket.close();
            self.phase = Phase::Over;
        }
        if let Phase::Closing(_) = self.phase
            && !self.has_unsent()
            && !std::mem::replace(&mut self.finished, true)
        {
            // The system would answer further bytes of the peer with a reset, which destroys the last records. So the socket
            // is read to its end.
            socket.close();
            if socket.finish().is_err() {
                self.phase = Phase::Over;
            }
        }
        self.counters.sent > before
    }

    /// Ends the connection in the way in which its only stream has ended, if it has one.
    fn follow_single_stream(&mut self, now: Instant, socket: &mut impl Socket) {
        let Some(single) = self.layer.single() else {
            return;
        };
        let end = single.end();
        if self.phase == Phase::Open {
            if end == StreamEnd::Reset {
                self.failure = Some(LossReason::ClosedLocally);
                self.phase = Phase::Aborting(now + LINGER, now);
            } else if single.is_finished() && self.out.is_empty() {
                self.finish_stream(now, socket, end);
            }
        }
        if let Phase::Aborting(until, _) = self.phase {
            if until <= now || (self.out.is_empty() && socket.unsent() == 0) {
                socket.abort();
                self.phase = Phase::Over;
            } else {
                self.phase = Phase::Aborting(until, now + LOOK_EVERY);
            }
        }
    }

    /// Ends the sending direction of TCP behind that of TLS. Nothing is left of a stream whose both directions have ended.
    fn finish_stream(&mut self, now: Instant, socket: &mut impl Socket, end: StreamEnd) {
        if end != StreamEnd::Open {
            socket.close();
            self.failure = Some(LossReason::of_close(CloseCode::Done.to_u64()));
            // Bytes that arrive are read until the client ends its side, too: see `write`.
            self.phase = match end {
                StreamEnd::Left => Phase::Closing(now + LINGER),
                _ => Phase::Over,
            };
        }
        if !std::mem::replace(&mut self.finished, true) && socket.finish().is_err() {
            self.phase = Phase::Over;
        }
    }

    /// Writes `bytes` to the socket. Returns those that it has no room for.
    fn give<'a>(&mut self, socket: &mut impl Socket, mut bytes: &'a [u8]) -> &'a [u8] {
        while !bytes.is_empty() && self.writable {
            match socket.write(&[IoSlice::new(bytes)]) {
                Ok(count) => {
                    bytes = &bytes[count..];
                    self.counters.sent += count as u64;
                    self.counters.calls += 1;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable = false,
                Err(error) => {
                    self.fail_tcp(&error);
                    return &[];
                }
            }
        }
        bytes
    }

    /// Returns the number of bytes of records that are made together.
    pub(crate) fn batch(&self) -> usize {
        WRITE_MAX.min(self.unsent.most() as usize)
    }

    /// Appends what is to be sent to `out`, about a [batch](Self::batch) at most.
    fn seal(&mut self, now: Instant, out: &mut SendBuffer) {
        self.tls.poll_transmit(out);
        if let Phase::Failed(_) = self.phase {
            self.tls.close();
            self.tls.poll_transmit(out);
            return;
        }
        while out.len() < self.batch() {
            let layer = &mut self.layer;
            match self.tls.seal(out, |slot| layer.poll_transmit(now, slot)) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => {
                    self.fail_tls(now, &error);
                    break;
                }
            }
        }
        if self.phase == Phase::Open && self.layer.http2().is_some_and(Http2::is_closed) {
            // The connection's last stream has ended after GOAWAY.
            self.phase = Phase::Closing(now + LINGER);
        }
        let finish = match &mut self.layer {
            Layer::Single(single) => single.take_finish(),
            layer => matches!(self.phase, Phase::Closing(_)) && layer.is_idle(),
        };
        if finish {
            self.tls.close();
            self.tls.poll_transmit(out);
        }
    }

    /// Returns the number of bytes that were read and written.
    pub(crate) fn moved(&self) -> u64 {
        self.counters.sent + self.counters.received
    }

    /// Returns whether the socket has room.
    pub(crate) fn is_writable(&self) -> bool {
        self.writable
    }

    /// Returns whether the socket has bytes that were not read.
    pub(crate) fn is_readable(&self) -> bool {
        let reads = match self.phase {
            Phase::Open => self.layer.single().is_none_or(SingleStream::takes_bytes),
            Phase::Hello | Phase::Closing(_) => true,
            _ => false,
        };
        self.readable && reads
    }

    /// Returns the memory of bytes that wait to be opened or to leave.
    pub(crate) fn held(&self) -> usize {
        self.received.len() + self.out.len() + self.layer.held()
    }
}
