//! A QUIC client without a tunnel. A test writes any bytes to its streams.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use quictun_sim::{Guest, HostId, Network, OutgoingPacket, Random, config};
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig,
    Event, StreamId,
};

use super::endpoint::{depart, receive};

/// A host with nothing but one QUIC connection to a server.
#[derive(Debug)]
pub(crate) struct BareClient {
    endpoint: Endpoint,
    handle: ConnectionHandle,
    connection: Connection,
    timer: Option<Instant>,
    connected: bool,
    lost: Option<String>,
    out: Vec<OutgoingPacket>,
    notes: Vec<String>,
}

impl BareClient {
    pub(crate) fn new(network: &Network, protocols: &[&[u8]], server: HostId) -> Self {
        let mut tls = rustls::ClientConfig::clone(&config::client_tls(protocols));
        tls.key_log = network.key_log();
        let crypto =
            QuicClientConfig::try_from(tls).expect("invariant: the simulation's TLS suits QUIC");
        let mut endpoint_config = EndpointConfig::default();
        endpoint_config.rng_seed(Some(Random::new(network.seed().value(), 4).bytes()));
        let mut endpoint = Endpoint::new(Arc::new(endpoint_config), None, true, None);
        let client_config = ClientConfig::new(Arc::new(crypto));
        let (handle, connection) = endpoint
            .connect(
                network.now(),
                client_config,
                network.address(server),
                config::SERVER_NAME,
            )
            .expect("invariant: address and name are valid");
        Self {
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

    /// Returns true once the handshake is complete.
    pub(crate) fn is_connected(&self) -> bool {
        self.connected
    }

    /// Returns the reason for which the connection was lost, if it was.
    pub(crate) fn lost(&self) -> Option<&str> {
        self.lost.as_deref()
    }

    /// Returns the connection for direct use by the test.
    pub(crate) fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Opens a stream. Panics if the server grants none.
    pub(crate) fn open(&mut self) -> StreamId {
        self.connection
            .streams()
            .open(Dir::Bi)
            .expect("the server grants a stream")
    }

    /// Writes to a stream. Panics if flow control accepts only a part.
    pub(crate) fn write(&mut self, stream: StreamId, bytes: &[u8]) {
        let written = self.connection.send_stream(stream).write(bytes);
        assert_eq!(written, Ok(bytes.len()), "{stream}");
    }

    /// Returns everything that has arrived on a stream, and how the stream has ended: `None` if it is open, `Ok` after
    /// a FIN, or the code of its reset.
    pub(crate) fn read(&mut self, stream: StreamId) -> (Vec<u8>, Option<Result<(), u64>>) {
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
}

impl Guest for BareClient {
    fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.timer
    }

    fn handle_datagram(
        &mut self,
        now: Instant,
        from: SocketAddr,
        _to: SocketAddr,
        ecn: u8,
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

    fn run(&mut self, now: Instant, out: &mut Vec<OutgoingPacket>) {
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
