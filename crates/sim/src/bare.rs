//! A QUIC client without a tunnel: a test writes to its streams what it likes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig,
    Event, StreamId,
};

use crate::config;
use crate::endpoint::{depart, receive};
use crate::packet::Departure;
use crate::secrets::Secrets;
use crate::seed::Random;
use crate::tls;

/// A host that is nothing but one QUIC connection to a server.
#[derive(Debug)]
pub struct Bare {
    name: String,
    address: SocketAddr,
    endpoint: Endpoint,
    handle: ConnectionHandle,
    connection: Connection,
    timer: Option<Instant>,
    connected: bool,
    lost: Option<String>,
    out: Vec<Departure>,
    notes: Vec<String>,
}

impl Bare {
    pub(crate) fn new(
        name: &str,
        address: SocketAddr,
        protocols: &[&[u8]],
        server: SocketAddr,
        seed: u64,
        now: Instant,
        secrets: Arc<Secrets>,
    ) -> Self {
        let mut tls = rustls::ClientConfig::clone(&config::client_tls(protocols));
        tls.key_log = secrets;
        let crypto =
            QuicClientConfig::try_from(tls).expect("invariant: the simulation's TLS suits QUIC");
        let mut endpoint_config = EndpointConfig::default();
        endpoint_config.rng_seed(Some(Random::new(seed, 4).bytes()));
        let mut endpoint = Endpoint::new(Arc::new(endpoint_config), None, true, None);
        let client_config = ClientConfig::new(Arc::new(crypto));
        let (handle, connection) = endpoint
            .connect(now, client_config, server, tls::SERVER_NAME)
            .expect("invariant: address and name are valid");
        Self {
            name: name.to_owned(),
            address,
            endpoint,
            handle,
            connection,
            timer: None,
            connected: false,
            lost: None,
            out: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Whether the handshake is done.
    pub fn is_connected(&self) -> bool {
        self.connected
    }

    /// Why the connection is gone, if it is.
    pub fn lost(&self) -> Option<&str> {
        self.lost.as_deref()
    }

    /// The connection, to do with as a test pleases.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Opens a stream; fails the run where the server grants none.
    pub fn open(&mut self) -> StreamId {
        self.connection
            .streams()
            .open(Dir::Bi)
            .expect("the server grants a stream")
    }

    /// Writes to a stream; fails the run where flow control takes only a part.
    pub fn write(&mut self, stream: StreamId, bytes: &[u8]) {
        let written = self.connection.send_stream(stream).write(bytes);
        assert_eq!(written, Ok(bytes.len()), "{stream}");
    }

    /// Everything that has arrived on a stream, and how it has ended: `None` while it has not, then
    /// whether it did so in order, or the code of its reset.
    pub fn read(&mut self, stream: StreamId) -> (Vec<u8>, Option<Result<(), u64>>) {
        let mut bytes = Vec::new();
        let mut recv = self.connection.recv_stream(stream);
        let Ok(mut chunks) = recv.read(true) else {
            return (bytes, None);
        };
        loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => bytes.extend_from_slice(&chunk.bytes),
                Ok(None) => return (bytes, Some(Ok(()))),
                Err(quinn_proto::ReadError::Blocked) => return (bytes, None),
                Err(quinn_proto::ReadError::Reset(code)) => {
                    return (bytes, Some(Err(code.into_inner())));
                }
            }
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn set_address(&mut self, address: SocketAddr) {
        self.address = address;
    }

    pub(crate) fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.timer
    }

    pub(crate) fn handle_datagram(
        &mut self,
        now: Instant,
        from: SocketAddr,
        ecn: Option<u8>,
        bytes: BytesMut,
    ) {
        let way = (from, None);
        let event = receive(&mut self.endpoint, &mut self.out, now, way, ecn, bytes);
        match event {
            Some(DatagramEvent::ConnectionEvent(_, event)) => self.connection.handle_event(event),
            Some(DatagramEvent::NewConnection(incoming)) => self.endpoint.ignore(incoming),
            Some(DatagramEvent::Response(_)) | None => {}
        }
    }

    /// Does all there is to do at `now`.
    pub(crate) fn run(&mut self, now: Instant, out: &mut Vec<Departure>) {
        if self.connection.poll_timeout().is_some_and(|at| at <= now) {
            self.connection.handle_timeout(now);
        }
        while let Some(event) = self.connection.poll_endpoint_events() {
            if let Some(answer) = self.endpoint.handle_event(self.handle, event) {
                self.connection.handle_event(answer);
            }
        }
        while let Some(event) = self.connection.poll() {
            match event {
                Event::Connected => self.connected = true,
                Event::ConnectionLost { reason } => {
                    self.notes.push(format!("connection is gone: {reason}"));
                    self.lost = Some(reason.to_string());
                }
                _ => {}
            }
        }
        let mut buffer = Vec::new();
        while let Some(transmit) = self.connection.poll_transmit(now, 1, &mut buffer) {
            depart(&mut self.out, &transmit, &buffer);
            buffer.clear();
        }
        self.timer = self.connection.poll_timeout();
        out.append(&mut self.out);
    }
}
