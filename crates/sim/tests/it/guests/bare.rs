//! A QUIC client or server without a tunnel. A test writes any bytes to its streams.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use quictun_sim::{Guest, HostId, Network, OutgoingPacket, Random, config};
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig,
    Event, Incoming, ServerConfig, StreamId,
};

use super::endpoint::{depart, receive};

/// A host with nothing but one QUIC connection, which it makes as a client or accepts as a server.
#[derive(Debug)]
pub(crate) struct BarePeer {
    endpoint: Endpoint,
    /// `None` until a client has connected.
    connection: Option<(ConnectionHandle, Connection)>,
    timer: Option<Instant>,
    connected: bool,
    lost: Option<String>,
    out: Vec<OutgoingPacket>,
    notes: Vec<String>,
}

impl BarePeer {
    /// Creates a client, which connects to `server` at once.
    pub(crate) fn client(network: &Network, protocols: &[&[u8]], server: HostId) -> Self {
        let mut tls = rustls::ClientConfig::clone(&config::client_tls(protocols));
        tls.key_log = network.key_log();
        let crypto =
            QuicClientConfig::try_from(tls).expect("invariant: the simulation's TLS suits QUIC");
        let mut endpoint_config = EndpointConfig::default();
        endpoint_config.rng_seed(Some(Random::new(network.seed().value(), 4).bytes()));
        let mut endpoint = Endpoint::new(Arc::new(endpoint_config), None, true, None);
        let client_config = ClientConfig::new(Arc::new(crypto));
        let connection = endpoint
            .connect(
                network.now(),
                client_config,
                network.address(server),
                config::SERVER_NAME,
            )
            .expect("invariant: address and name are valid");
        Self::new(endpoint, Some(connection))
    }

    /// Creates a server of both protocols, which accepts the first connection.
    pub(crate) fn server(seed: u64) -> Self {
        let tls = config::server(seed).role.crypto;
        let crypto =
            QuicServerConfig::try_from(tls).expect("invariant: the simulation's TLS suits QUIC");
        let server = ServerConfig::with_crypto(Arc::new(crypto));
        let mut endpoint_config = EndpointConfig::default();
        endpoint_config.rng_seed(Some(Random::new(seed, 4).bytes()));
        let server = Some(Arc::new(server));
        let endpoint = Endpoint::new(Arc::new(endpoint_config), server, true, None);
        Self::new(endpoint, None)
    }

    fn new(endpoint: Endpoint, connection: Option<(ConnectionHandle, Connection)>) -> Self {
        Self {
            endpoint,
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

    /// Returns the connection for direct use by the test. Panics if no client has connected to a server.
    pub(crate) fn connection(&mut self) -> &mut Connection {
        let connection = self.connection.as_mut();
        &mut connection.expect("a client has connected").1
    }

    /// Opens a stream. Panics if the peer grants none.
    pub(crate) fn open(&mut self) -> StreamId {
        let opened = self.connection().streams().open(Dir::Bi);
        opened.expect("the peer grants a stream")
    }

    /// Takes a stream that the peer has opened. Panics if there is none.
    pub(crate) fn accept(&mut self) -> StreamId {
        let accepted = self.connection().streams().accept(Dir::Bi);
        accepted.expect("the peer has opened a stream")
    }

    /// Writes to a stream. Panics if flow control accepts only a part.
    pub(crate) fn write(&mut self, stream: StreamId, bytes: &[u8]) {
        let written = self.connection().send_stream(stream).write(bytes);
        assert_eq!(written, Ok(bytes.len()), "{stream}");
    }

    /// Returns everything that has arrived on a stream, and how the stream has ended: `None` if it is open, `Ok` after
    /// a FIN, or the code of its reset.
    pub(crate) fn read(&mut self, stream: StreamId) -> (Vec<u8>, Option<Result<(), u64>>) {
        let mut bytes = Vec::new();
        let mut recv = self.connection().recv_stream(stream);
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

    /// Accepts the first connection of a server.
    fn accept_connection(&mut self, now: Instant, incoming: Incoming) {
        if self.connection.is_some() {
            return self.endpoint.ignore(incoming);
        }
        let mut response = Vec::new();
        let accepted = self.endpoint.accept(incoming, now, &mut response, None);
        self.connection = accepted.ok();
    }
}

impl Guest for BarePeer {
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
            Some(DatagramEvent::ConnectionEvent(_, event)) => {
                self.connection().handle_event(event);
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.accept_connection(now, incoming),
            Some(DatagramEvent::Response(_)) | None => {}
        }
    }

    fn run(&mut self, now: Instant, out: &mut Vec<OutgoingPacket>) {
        if let Some((handle, connection)) = &mut self.connection {
            if connection.poll_timeout().is_some_and(|at| at <= now) {
                connection.handle_timeout(now);
            }
            while let Some(event) = connection.poll_endpoint_events() {
                if let Some(answer) = self.endpoint.handle_event(*handle, event) {
                    connection.handle_event(answer);
                }
            }
            while let Some(event) = connection.poll() {
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
            while let Some(transmit) = connection.poll_transmit(now, 1, &mut buffer) {
                depart(&mut self.out, &transmit, &buffer);
                buffer.clear();
            }
            self.timer = connection.poll_timeout();
        }
        out.append(&mut self.out);
    }
}
