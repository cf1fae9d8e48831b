//! Configuration that an engine takes once, when it is created.

use std::fmt;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use quictun_congestion::{Algorithm, PathMemory};
use quictun_flow::Account;
use quictun_wire::join::Join;

use crate::report::{ServerId, Side};

/// The complete configuration of an engine.
#[derive(Debug)]
pub struct EngineConfig<R> {
    /// The part that differs between client and server.
    pub role: R,
    /// Settings of the data path.
    pub transport: Transport,
    /// Index of this worker, which is the first byte of every connection id. With it, another worker can pass on a
    /// datagram that the kernel gave to the wrong socket.
    pub worker: u8,
    /// Seed of all randomness except TLS keys. Simulations use a fixed seed; otherwise it comes from the system.
    pub seed: [u8; 32],
    /// Key of the stateless reset tokens. Keep it across restarts, so that peers notice a restart at once.
    pub reset_key: [u8; 32],
}

/// Configuration of a server.
#[derive(Clone, Debug)]
pub struct ServerRole {
    /// TLS configuration: certificate, client verification, ALPN.
    pub crypto: Arc<rustls::ServerConfig>,
    /// Limit for open connections.
    pub max_connections: usize,
    /// Limit for handshakes in progress. Beyond it, the source with the most handshakes loses its oldest one.
    pub max_handshakes: usize,
    /// Number of handshakes in progress from which on the server validates addresses first (Retry).
    pub retry_above: usize,
    /// Validates the address of every client (Retry), as the original server does.
    pub always_retry: bool,
    /// Requires clients to identify themselves within [`Transport::handshake_timeout`]. Until then a client is a
    /// stranger: it gets small limits, and occupies one of the places for handshakes. See [`crate::Engine::admit`].
    pub identify: bool,
    /// Serves programs that use this server as an HTTPS proxy, by CONNECT of HTTP/1.1 in TLS over TCP.
    pub https_proxy: bool,
    /// Time within which a client must send the request of a stream that it has opened.
    pub open_timeout: Duration,
    /// Longest time that a flow waits for its client to reconnect. With 0, flows end with their connection.
    pub bond_ttl: Duration,
}

/// A server that a client dials, and the means by which the two authenticate each other.
#[derive(Clone)]
pub struct ServerToDial {
    /// TLS configuration: trust, own certificate, ALPN.
    pub crypto: Arc<rustls::ClientConfig>,
    /// The same configuration with a shorter `ClientHello`. After a timeout, every other attempt uses it: some networks
    /// lose a `ClientHello` that spans two datagrams, however it is sent.
    pub fallback: Option<Arc<rustls::ClientConfig>>,
    /// Name for SNI and certificate checks. An address literal sends no SNI.
    pub name: String,
    /// Computes the proof of a pre-shared secret from a TLS exporter value.
    pub prover: Option<Prover>,
    /// The carriers that may lead to the server.
    pub carrier: CarrierChoice,
    /// The server's place at first.
    pub place: ServerPlace,
}

/// The carriers that a client may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CarrierChoice {
    /// QUIC, and TLS over TCP where QUIC does not pass.
    Auto,
    /// QUIC and no other carrier.
    #[default]
    Quic,
    /// TLS over TCP and no other carrier.
    Tls,
}

/// The place of a server among those of a client. [`crate::Engine::set_place`] changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerPlace {
    /// True if the server is dialled and takes new flows. If false, it keeps the flows that it has, and takes new ones
    /// only until another server answers.
    pub wanted: bool,
    /// Number of the server among those that have had this place. A new number ends the flows of the previous server.
    pub tenant: u32,
    /// Rank of the server by its SRV record, or `None` if it does not belong to a service.
    pub rank: Option<Rank>,
    /// TCP port on which the server listens for TLS, or `None` if that is the port of its addresses.
    pub tls_port: Option<u16>,
}

impl Default for ServerPlace {
    fn default() -> Self {
        Self {
            wanted: true,
            tenant: 0,
            rank: None,
            tls_port: None,
        }
    }
}

/// The rank of a server among those of its service (RFC 2782).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    /// The number of the service's first server, which identifies the service.
    pub service: ServerId,
    /// The record's priority. While a server with a lower number answers, those with higher numbers are not used.
    pub priority: u16,
    /// Position among the servers of the same priority, drawn by their weights.
    pub order: usize,
}

/// Configuration of a client.
#[derive(Clone)]
pub struct ClientRole {
    /// The servers, at least one. Each has its own connections, and new flows go to the server that serves them best.
    pub servers: Vec<ServerToDial>,
    /// Number of connections to keep open to each server.
    pub connections: usize,
    /// Makes the JOIN of an invited client from a TLS exporter value.
    pub joiner: Option<Joiner>,
    /// Asks the server whether it listens for this client. See [`crate::Engine::listen`].
    pub reverse: bool,
    /// Longest time that a flow may wait for a connection.
    pub wait_timeout: Duration,
    /// Longest time that a flow waits for another connection, if the server agrees. With 0, flows end with their
    /// connection.
    pub bond_ttl: Duration,
    /// Compatibility: number of open streams on one connection at which the client opens another connection. The
    /// original server stops at 100, and leaks some.
    pub compat_streams: usize,
    /// The machine and its network, as far as they matter for the choice of carriers.
    pub surroundings: Surroundings,
}

/// Facts about a client's machine that matter for the choice of carriers.
#[derive(Clone, Default)]
pub struct Surroundings {
    /// Returns the local address from which packets to an address leave. It stands for the present network. Without it,
    /// no network is remembered.
    pub local_address: Option<LocalAddress>,
    /// True if the system grants the UDP socket small buffers only.
    pub small_buffers: bool,
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings")
            .field("small_buffers", &self.small_buffers)
            .finish_non_exhaustive()
    }
}

/// Returns the local address from which packets to an address leave, or `None` if none do.
pub type LocalAddress = Arc<dyn Fn(SocketAddr) -> Option<IpAddr> + Send + Sync>;

/// Computes the proof of a pre-shared secret from a TLS exporter value.
pub type Prover = Arc<dyn Fn(&[u8; 32]) -> [u8; 32] + Send + Sync>;

/// Makes the JOIN of an invited client from a TLS exporter value.
pub type Joiner = Arc<dyn Fn(&[u8; 32]) -> Join + Send + Sync>;

/// Returns the largest UDP payload that the first hop towards an address can carry.
pub type PathMtu = Arc<dyn Fn(SocketAddr) -> u16 + Send + Sync>;

/// Opens the writer for the trace of one connection, or returns `None` if the connection is not traced. Each call of
/// the writer writes one whole record. An error of the writer ends the trace and nothing else.
pub type Tracer = Arc<dyn Fn(SocketAddr, Side) -> Option<TraceWriter> + Send + Sync>;

/// The destination of trace records.
pub type TraceWriter = Box<dyn Write + Send + Sync>;

/// Settings of the data path, the same on both sides.
#[derive(Clone)]
pub struct Transport {
    /// The congestion control algorithm.
    pub congestion: Algorithm,
    /// Silence after which a connection is lost.
    pub idle_timeout: Duration,
    /// Silence after which the engine sends a keep-alive to the peer.
    pub keep_alive: Duration,
    /// Silence after which a datagram flow ends. Some ports have shorter times (PROTOCOL UDP-8).
    pub datagram_idle: Duration,
    /// Longest time that a handshake may take.
    pub handshake_timeout: Duration,
    /// Limit for the flows that a peer may have open on one connection.
    pub max_flows: u32,
    /// Stream receive window: bytes that a peer may send on one stream ahead of the application.
    pub stream_window: u32,
    /// The memory budget of the process. Engines that have clones of it share it.
    pub account: Account,
    /// Upper bound for path MTU discovery.
    pub path_mtu: PathMtu,
    /// Limit for the datagrams in one batch, which are the segments of one send call.
    pub max_segments: usize,
    /// Memory in which connections store what they learn about paths. Engines that have clones of it share it.
    pub memory: PathMemory,
    /// Number of ack-eliciting packets after which the peer is asked to send an acknowledgement.
    pub ack_every: u32,
    /// Opens the record (qlog) of each connection, if records are wanted.
    pub tracer: Option<Tracer>,
}

/// Default of [`Transport::ack_every`]. The standard says two, but every acknowledgement costs both sides about as much
/// as a data packet.
const ACK_EVERY: u32 = 16;

/// Default of [`Transport::stream_window`]. A packet that is lost three times blocks all later data of its stream for
/// four and a half round trips. At 600 Mbit/s and 100 ms this window covers them.
const STREAM_WINDOW: u32 = 32 << 20;

impl Transport {
    /// Returns the defaults, with path MTU discovery up to the bound that `path_mtu` returns.
    pub fn new(path_mtu: PathMtu) -> Self {
        Self {
            congestion: Algorithm::default(),
            idle_timeout: Duration::from_mins(1),
            keep_alive: Duration::from_secs(2),
            datagram_idle: Duration::from_mins(2),
            handshake_timeout: Duration::from_secs(10),
            max_flows: 16_384,
            stream_window: STREAM_WINDOW,
            account: Account::new(1 << 30),
            path_mtu,
            max_segments: 64,
            memory: PathMemory::default(),
            ack_every: ACK_EVERY,
            tracer: None,
        }
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport")
            .field("congestion", &self.congestion)
            .field("idle_timeout", &self.idle_timeout)
            .field("keep_alive", &self.keep_alive)
            .field("max_flows", &self.max_flows)
            .field("stream_window", &self.stream_window)
            .field("account", &self.account)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ServerToDial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerToDial")
            .field("name", &self.name)
            .field("prover", &self.prover.is_some())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ClientRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientRole")
            .field("servers", &self.servers)
            .field("connections", &self.connections)
            .field("joiner", &self.joiner.is_some())
            .finish_non_exhaustive()
    }
}
