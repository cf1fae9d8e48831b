//! The library's endpoint: datagrams, and the start and the end of connections.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use quictun_flow::ConnectionKey;
use quinn_proto::{
    ClientConfig, ConnectionHandle, DatagramEvent, EcnCodepoint, EndpointConfig, EndpointEvent,
    Incoming,
};
use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};

use super::cid::{LONG_HEADER, WorkerCids, is_routed, routed};
use super::config::Setup;
use super::connection::{Packet, QuicCarrier};
use super::loss::not_begun;
use super::responses::Responses;
use super::settings::{ClientCrypto, ServerSettings};
use crate::datagrams::Datagrams;
use crate::loss::LossReason;

/// Largest UDP payload that the engine accepts: the largest value that QUIC permits.
const UDP_PAYLOAD_MAX: u16 = 65_527;

pub(crate) struct Endpoint {
    library: quinn_proto::Endpoint,
    /// The key of each of the library's connections, by its handle.
    keys: Vec<Option<ConnectionKey>>,
    responses: Responses,
}

/// The recipient of a datagram.
#[derive(Debug)]
pub(crate) enum Arrival {
    Connection(ConnectionKey, Packet),
    Newcomer(Newcomer),
}

/// A client that wants to connect.
#[derive(Debug)]
pub(crate) struct Newcomer(Incoming);

/// The worker that the first connection id of a client names, and the source of the id's other bytes.
pub(crate) type Route<'a> = (u8, &'a mut ChaCha20Rng);

impl Newcomer {
    pub(crate) fn remote(&self) -> SocketAddr {
        self.0.remote_address()
    }

    /// Returns whether the client has shown that it receives at its address.
    pub(crate) fn is_validated(&self) -> bool {
        self.0.remote_address_validated()
    }

    /// Returns whether the client has named this worker.
    pub(crate) fn is_routed(&self) -> bool {
        is_routed(self.0.orig_dst_cid())
    }
}

impl Endpoint {
    /// Creates the endpoint of a worker, and a random number generator for the rest of the engine.
    pub(crate) fn new(
        worker: u8,
        seed: [u8; 32],
        reset_key: &[u8; 32],
        server: Option<&ServerSettings>,
    ) -> (Self, ChaCha20Rng) {
        let reset_key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, reset_key);
        let mut config = EndpointConfig::new(Arc::new(reset_key));
        let mut rng = ChaCha20Rng::from_seed(seed);
        let (mut endpoint_seed, mut cid_seed) = ([0; 32], [0; 32]);
        rng.fill_bytes(&mut endpoint_seed);
        rng.fill_bytes(&mut cid_seed);
        config
            .cid_generator(WorkerCids::factory(worker, cid_seed))
            .rng_seed(Some(endpoint_seed));
        config
            .max_udp_payload_size(UDP_PAYLOAD_MAX)
            .expect("invariant: 65527 is the largest legal value");
        let server = server.map(ServerSettings::config);
        let endpoint = Self {
            library: quinn_proto::Endpoint::new(Arc::new(config), server, true, None),
            keys: Vec::new(),
            responses: Responses::default(),
        };
        (endpoint, rng)
    }

    /// Handles one UDP datagram. Returns its recipient, unless the endpoint has answered or dropped it.
    #[inline]
    pub(crate) fn handle_datagram(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        local_ip: Option<IpAddr>,
        ecn: Option<u8>,
        data: BytesMut,
    ) -> Option<Arrival> {
        let length = data.len();
        // The library keeps handshake packets for long. The copy releases the receive batch, which takes up to 64 KiB.
        let data = if data.first().is_some_and(|first| first & LONG_HEADER != 0) {
            BytesMut::from(&data[..])
        } else {
            data
        };
        let mut response = Vec::new();
        let ecn = ecn.and_then(EcnCodepoint::from_bits);
        let event = self
            .library
            .handle(now, remote, local_ip, ecn, data, &mut response)?;
        match event {
            DatagramEvent::ConnectionEvent(ConnectionHandle(handle), event) => {
                let key = self.keys.get(handle).copied().flatten()?;
                Some(Arrival::Connection(key, Packet { event, length }))
            }
            DatagramEvent::NewConnection(incoming) => Some(Arrival::Newcomer(Newcomer(incoming))),
            DatagramEvent::Response(transmit) => {
                self.responses.push(&transmit, response);
                None
            }
        }
    }

    /// Asks a newcomer to show that it receives at its address (RFC 9000 section 8.1.2).
    pub(crate) fn validate(&mut self, Newcomer(incoming): Newcomer) {
        let mut response = Vec::new();
        match self.library.retry(incoming, &mut response) {
            Ok(transmit) => self.responses.push(&transmit, response),
            Err(error) => self.library.ignore(error.into_incoming()),
        }
    }

    pub(crate) fn ignore(&mut self, Newcomer(incoming): Newcomer) {
        self.library.ignore(incoming);
    }

    pub(crate) fn refuse(&mut self, Newcomer(incoming): Newcomer) {
        let mut response = Vec::new();
        let transmit = self.library.refuse(incoming, &mut response);
        self.responses.push(&transmit, response);
    }

    /// Sets the settings of handshakes that start from now on.
    pub(crate) fn set_server(&mut self, settings: &ServerSettings) {
        self.library.set_server_config(Some(settings.config()));
    }

    /// Begins the handshake of a newcomer, whose connection gets this `key`. Returns `None` if its first packet is not
    /// in order.
    pub(crate) fn accept(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        Newcomer(incoming): Newcomer,
        settings: &ServerSettings,
        setup: Setup,
    ) -> Option<QuicCarrier> {
        let config = settings.with_transport(setup.config.clone());
        let mut response = Vec::new();
        match self
            .library
            .accept(incoming, now, &mut response, Some(config))
        {
            Ok((handle, library)) => Some(self.adopt(now, key, handle, library, setup)),
            Err(error) => {
                if let Some(transmit) = error.response {
                    self.responses.push(&transmit, response);
                }
                None
            }
        }
    }

    /// Begins the handshake with a server. The connection gets this `key`.
    pub(crate) fn connect(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        (address, server_name): (SocketAddr, &str),
        ClientCrypto(crypto): &ClientCrypto,
        route: Option<Route<'_>>,
        setup: Setup,
    ) -> Result<QuicCarrier, LossReason> {
        let mut config = ClientConfig::new(crypto.clone());
        config.transport_config(setup.config.clone());
        if let Some((route, rng)) = route {
            let id = routed(route, rng);
            config.initial_dst_cid_provider(Arc::new(move || id));
        }
        let connecting = self.library.connect(now, config, address, server_name);
        let (handle, library) = connecting.map_err(not_begun)?;
        Ok(self.adopt(now, key, handle, library, setup))
    }

    fn adopt(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        handle: ConnectionHandle,
        library: quinn_proto::Connection,
        setup: Setup,
    ) -> QuicCarrier {
        if self.keys.len() <= handle.0 {
            self.keys.resize(handle.0 + 1, None);
        }
        self.keys[handle.0] = Some(key);
        QuicCarrier::new(now, handle, library, setup)
    }

    /// Exchanges events between a connection and the endpoint. Returns whether the library no longer needs the
    /// connection.
    pub(crate) fn exchange(&mut self, quic: &mut QuicCarrier) -> bool {
        while let Some(event) = quic.library.poll_endpoint_events() {
            // `forget` passes this event on: after it the endpoint may reuse the handle at once.
            if event.is_drained() {
                continue;
            }
            if let Some(answer) = self.library.handle_event(quic.handle, event) {
                quic.library.handle_event(answer);
            }
        }
        quic.library.is_drained()
    }

    /// Forgets a connection. Its peer's next packet is answered by a stateless reset.
    pub(crate) fn forget(&mut self, quic: &QuicCarrier) {
        self.keys[quic.handle.0] = None;
        let answer = self
            .library
            .handle_event(quic.handle, EndpointEvent::drained());
        debug_assert!(answer.is_none(), "the endpoint answered a drained event");
    }

    /// Drops all further packets of a connection, as if they had been lost.
    #[cfg(feature = "check")]
    pub(crate) fn mute(&mut self, quic: &QuicCarrier) {
        self.keys[quic.handle.0] = None;
    }

    /// Returns the next datagram of the endpoint itself.
    pub(crate) fn poll_response(&mut self, buffer: &mut Vec<u8>) -> Option<Datagrams> {
        self.responses.pop(buffer)
    }

    /// Returns the memory that answers take until they leave, in bytes.
    pub(crate) fn held(&self) -> usize {
        self.responses.held()
    }
}
