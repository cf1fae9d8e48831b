//! A server with the hazards of the original quic-tun, built directly on the QUIC library.
//!
//! * It demands Retry on every connection and grants 100 streams.
//! * It keeps only the last piece of a token that arrives in several pieces.
//! * It serves the requests of one connection one after the other, including their dials.
//! * It answers a failed request with the error byte again and again until the stream is stopped, and never frees the
//!   stream.
//!
//! Every target is an echo.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use quictun_sim::{Guest, OutgoingPacket, Random, SimulatedDial, config};
use quictun_wire::ack::Ack;
use quictun_wire::token::TOKEN_LEN;
use quinn_proto::crypto::rustls::QuicServerConfig;
use quinn_proto::{
    Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig, Event, Incoming,
    ReadError, ServerConfig, StreamId, TransportConfig, VarInt, WriteError,
};

use super::endpoint::{depart, receive};

/// Flow-control windows of the original, bytes.
const STREAM_WINDOW: u32 = 512 * 1024;
const CONNECTION_WINDOW: u32 = 768 * 1024;

/// Bytes per write of an endless answer.
const ENDLESS: usize = 1024;

/// Maximum bytes of an echo that wait to be sent.
const ECHO_MAX: usize = 64 * 1024;

/// The settings of an original server.
#[derive(Clone, Debug)]
pub(crate) struct OriginalOptions {
    /// Maximum number of streams of one connection.
    pub(crate) streams: u32,
    /// True if the server makes clients prove their address with a Retry.
    pub(crate) retry: bool,
    /// Time after which an unanswered dial fails.
    pub(crate) dial_timeout: Duration,
}

impl Default for OriginalOptions {
    fn default() -> Self {
        Self {
            streams: 100,
            retry: true,
            dial_timeout: Duration::from_mins(1),
        }
    }
}

/// A host that runs the original's server.
#[derive(Debug)]
pub(crate) struct OriginalServer {
    endpoint: Endpoint,
    options: OriginalOptions,
    connections: BTreeMap<usize, ServedConnection>,
    targets: BTreeMap<String, SimulatedDial>,
    out: Vec<OutgoingPacket>,
    notes: Vec<String>,
    accepted: u64,
    established: u64,
    refused: u64,
    mangled: u64,
}

#[derive(Debug)]
struct ServedConnection {
    quic: Connection,
    /// Streams whose request has not been read yet.
    waiting: VecDeque<StreamId>,
    request: Option<Request>,
    echoes: Vec<EchoStream>,
    /// The library's next deadline, as of the last round of work.
    timer: Option<Instant>,
}

/// The only request that a connection serves at a time.
#[derive(Debug)]
enum Request {
    Token {
        stream: StreamId,
        read: usize,
        last: Vec<u8>,
    },
    Dialing {
        stream: StreamId,
        until: Instant,
        ack: Ack,
    },
    Endless {
        stream: StreamId,
        ack: Ack,
    },
}

#[derive(Debug)]
struct EchoStream {
    stream: StreamId,
    pending: VecDeque<Bytes>,
    held: usize,
    ended: bool,
}

impl OriginalServer {
    pub(crate) fn new(options: OriginalOptions, seed: u64) -> Self {
        let tls = rustls::ServerConfig::clone(&config::compat_server_tls());
        let crypto =
            QuicServerConfig::try_from(tls).expect("invariant: the simulation's TLS suits QUIC");
        let mut transport = TransportConfig::default();
        transport
            .max_concurrent_bidi_streams(VarInt::from_u32(options.streams))
            .max_concurrent_uni_streams(VarInt::from_u32(0))
            .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
            .receive_window(VarInt::from_u32(CONNECTION_WINDOW));
        let mut server = ServerConfig::with_crypto(Arc::new(crypto));
        server.transport_config(Arc::new(transport));
        let mut endpoint = EndpointConfig::default();
        endpoint.rng_seed(Some(Random::new(seed, 3).bytes()));
        Self {
            endpoint: Endpoint::new(Arc::new(endpoint), Some(Arc::new(server)), true, None),
            options,
            connections: BTreeMap::new(),
            targets: BTreeMap::new(),
            out: Vec::new(),
            notes: Vec::new(),
            accepted: 0,
            established: 0,
            refused: 0,
            mangled: 0,
        }
    }

    /// Sets the result of the dial for a token. All other tokens count as unparsable.
    pub(crate) fn serve(&mut self, token: &str, dial: SimulatedDial) {
        self.targets.insert(token.to_owned(), dial);
    }

    /// Returns the number of accepted connections so far.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Returns the number of granted requests so far.
    pub(crate) fn established(&self) -> u64 {
        self.established
    }

    /// Returns the number of refused requests so far.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns the number of tokens that arrived in several pieces and were corrupted.
    pub(crate) fn mangled(&self) -> u64 {
        self.mangled
    }

    fn accept(&mut self, now: Instant, incoming: Incoming) {
        let mut response = Vec::new();
        if self.options.retry && !incoming.remote_address_validated() {
            if let Ok(transmit) = self.endpoint.retry(incoming, &mut response) {
                depart(&mut self.out, &transmit, &response);
            }
            return;
        }
        match self.endpoint.accept(incoming, now, &mut response, None) {
            Ok((handle, quic)) => {
                self.accepted += 1;
                let peer = ServedConnection {
                    quic,
                    waiting: VecDeque::new(),
                    request: None,
                    echoes: Vec::new(),
                    timer: None,
                };
                self.connections.insert(handle.0, peer);
            }
            Err(error) => {
                if let Some(transmit) = error.response {
                    depart(&mut self.out, &transmit, &response);
                }
            }
        }
    }

    /// Does one round of work on a connection. Returns true if there may be more work.
    fn run_connection(&mut self, now: Instant, handle: usize) -> bool {
        let Some(peer) = self.connections.get_mut(&handle) else {
            return false;
        };
        let mut worked = false;
        if peer.quic.poll_timeout().is_some_and(|at| at <= now) {
            peer.quic.handle_timeout(now);
            worked = true;
        }
        while let Some(event) = peer.quic.poll_endpoint_events() {
            if let Some(answer) = self.endpoint.handle_event(ConnectionHandle(handle), event) {
                peer.quic.handle_event(answer);
            }
        }
        while let Some(event) = peer.quic.poll() {
            if let Event::ConnectionLost { reason } = event {
                self.notes
                    .push(format!("connection {handle} is gone: {reason}"));
            }
        }
        if peer.quic.is_drained() {
            self.connections.remove(&handle);
            return false;
        }
        while let Some(stream) = peer.quic.streams().accept(Dir::Bi) {
            peer.waiting.push_back(stream);
        }
        worked |= self.serve_requests(now, handle);
        let Some(peer) = self.connections.get_mut(&handle) else {
            return false;
        };
        peer.run_echoes();
        let mut buffer = Vec::new();
        while let Some(transmit) = peer.quic.poll_transmit(now, 1, &mut buffer) {
            depart(&mut self.out, &transmit, &buffer);
            buffer.clear();
            worked = true;
        }
        peer.timer = peer.quic.poll_timeout();
        worked
    }

    /// Serves requests one after the other. Returns true if any work was done.
    fn serve_requests(&mut self, now: Instant, handle: usize) -> bool {
        let mut worked = false;
        loop {
            let Some(peer) = self.connections.get_mut(&handle) else {
                return worked;
            };
            let Some(request) = peer.request.take().or_else(|| peer.next_request()) else {
                return worked;
            };
            let (request, done) = match request {
                Request::Token { stream, read, last } => {
                    self.read_token(now, handle, stream, read, last)
                }
                Request::Dialing { stream, until, ack } if until <= now => {
                    self.answer(handle, stream, ack)
                }
                Request::Dialing { .. } => (Some(request), false),
                Request::Endless { stream, ack } => self.answer_endlessly(handle, stream, ack),
            };
            worked |= done;
            if let Some(peer) = self.connections.get_mut(&handle) {
                peer.request = request;
            }
            if !done {
                return worked;
            }
        }
    }

    /// Reads until 512 bytes have arrived, and keeps only the last piece.
    fn read_token(
        &mut self,
        now: Instant,
        handle: usize,
        stream: StreamId,
        mut read: usize,
        mut last: Vec<u8>,
    ) -> (Option<Request>, bool) {
        let Some(peer) = self.connections.get_mut(&handle) else {
            return (None, false);
        };
        let mut recv = peer.quic.recv_stream(stream);
        let Ok(mut chunks) = recv.read(true) else {
            return (None, true);
        };
        while read < TOKEN_LEN {
            match chunks.next(TOKEN_LEN - read) {
                Ok(Some(chunk)) => {
                    read += chunk.bytes.len();
                    last = chunk.bytes.to_vec();
                }
                Err(ReadError::Blocked) => {
                    return (Some(Request::Token { stream, read, last }), false);
                }
                Ok(None) | Err(ReadError::Reset(_)) => return (None, true),
            }
        }
        if last.len() < TOKEN_LEN {
            self.mangled += 1;
        }
        last.retain(|&byte| byte != 0);
        let token = String::from_utf8_lossy(&last);
        let (after, ack) = match self.targets.get(token.as_ref()) {
            None => (Duration::ZERO, Ack::CannotParseToken),
            Some(SimulatedDial::Connects { after }) => (*after, Ack::Ok),
            Some(SimulatedDial::Fails { after, .. }) => (*after, Ack::CannotReachApplication),
            Some(SimulatedDial::Never) => (self.options.dial_timeout, Ack::CannotReachApplication),
        };
        self.notes
            .push(format!("request for {token:?}: {ack:?} after {after:?}"));
        let until = now + after;
        (Some(Request::Dialing { stream, until, ack }), true)
    }

    fn answer(&mut self, handle: usize, stream: StreamId, ack: Ack) -> (Option<Request>, bool) {
        if ack != Ack::Ok {
            self.refused += 1;
            return (Some(Request::Endless { stream, ack }), true);
        }
        self.established += 1;
        if let Some(peer) = self.connections.get_mut(&handle) {
            peer.echoes.push(EchoStream {
                stream,
                pending: VecDeque::from([Bytes::copy_from_slice(&[ack.to_byte()])]),
                held: 1,
                ended: false,
            });
        }
        (None, true)
    }

    /// Writes the error byte until the peer stops the stream. The stream is forgotten after that, not freed.
    fn answer_endlessly(
        &mut self,
        handle: usize,
        stream: StreamId,
        ack: Ack,
    ) -> (Option<Request>, bool) {
        let Some(peer) = self.connections.get_mut(&handle) else {
            return (None, false);
        };
        let mut send = peer.quic.send_stream(stream);
        while let Ok(None) = send.stopped() {
            if send.write(&[ack.to_byte(); ENDLESS]).is_err() {
                return (Some(Request::Endless { stream, ack }), false);
            }
        }
        // The original's library resets a stopped stream by itself.
        end(send.reset(VarInt::from_u32(0)));
        (None, true)
    }
}

impl Guest for OriginalServer {
    fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.connections
            .values()
            .filter_map(ServedConnection::next_timeout)
            .min()
    }

    fn handle_datagram(
        &mut self,
        now: Instant,
        from: SocketAddr,
        to: SocketAddr,
        ecn: u8,
        bytes: BytesMut,
    ) {
        let way = (from, Some(to.ip()));
        let event = receive(&mut self.endpoint, &mut self.out, now, way, ecn, bytes);
        match event {
            Some(DatagramEvent::Response(_)) | None => {}
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(peer) = self.connections.get_mut(&handle.0) {
                    peer.quic.handle_event(event);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.accept(now, incoming),
        }
    }

    fn run(&mut self, now: Instant, out: &mut Vec<OutgoingPacket>) {
        let handles: Vec<usize> = self.connections.keys().copied().collect();
        for handle in handles {
            while self.run_connection(now, handle) {}
        }
        out.append(&mut self.out);
    }
}

impl ServedConnection {
    fn next_request(&mut self) -> Option<Request> {
        let stream = self.waiting.pop_front()?;
        Some(Request::Token {
            stream,
            read: 0,
            last: Vec::new(),
        })
    }

    fn next_timeout(&self) -> Option<Instant> {
        let dialing = match &self.request {
            Some(Request::Dialing { until, .. }) => Some(*until),
            _ => None,
        };
        [dialing, self.timer].into_iter().flatten().min()
    }

    fn run_echoes(&mut self) {
        let quic = &mut self.quic;
        self.echoes.retain_mut(|echo| echo.run(quic));
    }
}

impl EchoStream {
    /// Moves as much data as possible. Returns true if the flow continues.
    fn run(&mut self, quic: &mut Connection) -> bool {
        loop {
            if !self.ended && self.held < ECHO_MAX {
                match self.read(quic) {
                    Ok(()) => {}
                    Err(_code) => return false,
                }
            }
            let before = self.held;
            while let Some(front) = self.pending.front_mut() {
                let length = front.len();
                match quic
                    .send_stream(self.stream)
                    .write_chunks(std::slice::from_mut(front))
                {
                    Ok(_) => self.held -= length - front.len(),
                    Err(WriteError::Blocked) => break,
                    Err(WriteError::Stopped(_) | WriteError::ClosedStream) => {
                        end(quic.send_stream(self.stream).reset(VarInt::from_u32(0)));
                        end(quic.recv_stream(self.stream).stop(VarInt::from_u32(0)));
                        return false;
                    }
                }
                if front.is_empty() {
                    self.pending.pop_front();
                }
            }
            if self.ended && self.pending.is_empty() {
                end(quic.send_stream(self.stream).finish());
                return false;
            }
            if self.held == before || self.ended {
                return true;
            }
        }
    }

    fn read(&mut self, quic: &mut Connection) -> Result<(), VarInt> {
        let mut recv = quic.recv_stream(self.stream);
        let Ok(mut chunks) = recv.read(true) else {
            return Err(VarInt::from_u32(0));
        };
        while self.held < ECHO_MAX {
            match chunks.next(ECHO_MAX) {
                Ok(Some(chunk)) => {
                    self.held += chunk.bytes.len();
                    self.pending.push_back(chunk.bytes);
                }
                Ok(None) => {
                    self.ended = true;
                    break;
                }
                Err(ReadError::Blocked) => break,
                Err(ReadError::Reset(code)) => return Err(code),
            }
        }
        Ok(())
    }
}

/// Ignores the result of ending a stream, which may have ended already.
fn end<E>(result: Result<(), E>) {
    drop(result);
}
