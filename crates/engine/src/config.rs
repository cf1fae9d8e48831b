//! What an engine is told once.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quictun_congestion::{Algorithm, PathMemory};
use quictun_flow::Account;
use quictun_wire::join::Join;

use crate::trace::Tracer;

/// Everything an engine needs to know before it starts.
#[derive(Debug)]
pub struct EngineConfig<R> {
    /// What differs between client and server.
    pub role: R,
    /// The data path.
    pub transport: Transport,
    /// Index of this worker; the first byte of every connection id, so that a datagram which the
    /// kernel gave to another worker's socket can be handed over.
    pub worker: u8,
    /// Seed of everything random but TLS keys. Fixed in simulations, from the system otherwise.
    pub seed: [u8; 32],
    /// Key of stateless reset tokens. The same after a restart, so that peers learn of it at once.
    pub reset_key: [u8; 32],
}

/// A server's part.
#[derive(Clone, Debug)]
pub struct ServerRole {
    /// TLS: certificate, client verification, ALPN.
    pub crypto: Arc<rustls::ServerConfig>,
    /// Connections accepted at once.
    pub max_connections: usize,
    /// Handshakes in progress at once; beyond it the oldest gives way.
    pub max_handshakes: usize,
    /// Handshakes in progress from which on addresses are validated first (Retry).
    pub retry_above: usize,
    /// Ask every client to prove its address, as the original server does.
    pub always_retry: bool,
    /// Clients have to show who they are, within [`Transport::handshake_timeout`]: until then they are strangers, get
    /// little, and hold one of the places for handshakes. See [`crate::Engine::admit`].
    pub identify: bool,
    /// Time for a client to say what a stream is for.
    pub open_timeout: Duration,
    /// Time that a flow waits for its client to come again; 0: flows end with their connection.
    pub bond_ttl: Duration,
}

/// A server that a client dials, and how the two recognise each other.
#[derive(Clone)]
pub struct ServerToDial {
    /// TLS: trust, own certificate, ALPN.
    pub crypto: Arc<rustls::ClientConfig>,
    /// The same configuration with a shorter `ClientHello`, for every other attempt after one has timed out: some networks lose a
    /// `ClientHello` that spans two datagrams, whichever way it is sent.
    pub fallback: Option<Arc<rustls::ClientConfig>>,
    /// Name for SNI and certificate checks; an address literal sends no SNI.
    pub name: String,
    /// Makes the proof of a pre-shared secret from a TLS exporter value.
    pub prover: Option<Prover>,
}

/// A client's part.
#[derive(Clone)]
pub struct ClientRole {
    /// The servers, at least one: each has its connections, and new flows go to the one that serves them best.
    pub servers: Vec<ServerToDial>,
    /// Connections to keep to each server.
    pub connections: usize,
    /// Makes the JOIN of a client that has been invited from a TLS exporter value.
    pub joiner: Option<Joiner>,
    /// The server is to be asked whether it listens for this client, see [`crate::Engine::listen`].
    pub reverse: bool,
    /// How long a flow may wait for a connection.
    pub wait_timeout: Duration,
    /// Longest time that a flow waits for another connection, where the server agrees; 0: flows end with their connection.
    pub bond_ttl: Duration,
    /// Compatibility: open streams on one connection from which on another is made. The original
    /// server stops at 100 and leaks some.
    pub compat_streams: usize,
}

/// Makes the proof of a pre-shared secret from a TLS exporter value.
pub type Prover = Arc<dyn Fn(&[u8; 32]) -> [u8; 32] + Send + Sync>;

/// Makes the JOIN of a client that has been invited from a TLS exporter value.
pub type Joiner = Arc<dyn Fn(&[u8; 32]) -> Join + Send + Sync>;

/// Tells the largest UDP payload the first hop towards an address carries.
pub type PathMtu = Arc<dyn Fn(SocketAddr) -> u16 + Send + Sync>;

/// The data path, both sides.
#[derive(Clone)]
pub struct Transport {
    /// Congestion controller.
    pub congestion: Algorithm,
    /// Silence after which a connection is dead.
    pub idle_timeout: Duration,
    /// Silence after which the peer is asked for a sign of life.
    pub keep_alive: Duration,
    /// Time for a handshake.
    pub handshake_timeout: Duration,
    /// Flows a peer may have open on one connection.
    pub max_flows: u32,
    /// Most bytes a peer may send on one stream ahead of the application.
    pub stream_window: u32,
    /// The memory of the process; engines with clones of it share that.
    pub account: Account,
    /// Upper bound of path MTU discovery.
    pub path_mtu: PathMtu,
    /// Datagrams in one batch: the segments of one send call.
    pub max_segments: usize,
    /// Where connections leave what they learn of paths. Engines with clones of it share that.
    pub memory: PathMemory,
    /// Packets after which the peer is asked to acknowledge.
    pub ack_every: u32,
    /// Records what connections do.
    pub tracer: Option<Tracer>,
}

/// Packets after which the peer acknowledges. Two in the standard; every acknowledgement costs both sides
/// about as much as a data packet.
const ACK_EVERY: u32 = 16;

/// A packet that is lost three times holds back all that follows it for four and a half round trips: so long are these
/// at 600 Mbit/s and 100 ms.
const STREAM_WINDOW: u32 = 32 << 20;

impl Transport {
    /// The defaults, with path MTU discovery up to what `path_mtu` says.
    pub fn new(path_mtu: PathMtu) -> Self {
        Self {
            congestion: Algorithm::default(),
            idle_timeout: Duration::from_mins(1),
            keep_alive: Duration::from_secs(2),
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
