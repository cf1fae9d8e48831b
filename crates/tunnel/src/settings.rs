//! What the programs run with, after flags, environment, files and defaults were merged and checked.
//!
//! The command line builds these once; nothing below it sees a flag or a file format. A value that
//! is here has been validated: what can be wrong later is only the world (a port in use, a name that
//! does not resolve).

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::transparent::Way;
use quictun_control::settings::ControlSettings;
use quictun_stackd::settings::TunSettings;
use quictun_trust::settings::{
    Access, Aead, ClientIdentity, HeaderTargets, Offer, ServerIdentity, ServerTrust,
};
use quictun_wire::listening::ListenAddress;
use quictun_wire::srv::ServiceName;
use quictun_wire::target::Target;

/// Everything `quictun-client` and `quictun client` need.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// The server to dial. Resolved again on every attempt.
    pub server: Address,
    /// Its addresses, where it is not to be resolved.
    pub server_addresses: Vec<IpAddr>,
    /// Further servers, of which one serves where this one does not, or serves better.
    pub other_servers: Vec<ServerToDial>,
    /// Local listeners and where each leads.
    pub forwards: Vec<Forward>,
    /// Users of the proxies among them, and their passwords; `None`: no proxy asks, and each serves this machine alone.
    pub proxy_users: Option<PathBuf>,
    /// Listeners of the server and where each leads, from here.
    pub reverse: Vec<Reverse>,
    /// Targets of the latter that get a PROXY header.
    pub headed: HeaderTargets,
    /// Whether the server is told from which addresses applications connect.
    pub sends_sources: bool,
    /// A TUN device whose connections are carried, each to where it wants to.
    pub tun: Option<TunSettings>,
    /// Which protocols are offered in the TLS handshake.
    pub offer: Offer,
    /// How the server is recognised.
    pub trust: ServerTrust,
    /// How this client proves who it is.
    pub identity: ClientIdentity,
    /// The data path.
    pub transport: TransportSettings,
    /// REST, metrics and logs.
    pub control: ControlSettings,
}

/// A server beside the first one, and how it is recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerToDial {
    /// The server. Resolved again on every attempt.
    pub server: Address,
    /// How it is recognised.
    pub trust: ServerTrust,
    /// How this client proves to it who it is.
    pub identity: ClientIdentity,
}

impl ClientSettings {
    /// All servers, in the order in which they were given.
    pub fn servers(&self) -> Vec<ServerToDial> {
        let first = ServerToDial {
            server: self.server.clone(),
            trust: self.trust.clone(),
            identity: self.identity.clone(),
        };
        let mut all = vec![first];
        all.extend_from_slice(&self.other_servers);
        all
    }
}

/// Everything `quictun-server` and `quictun server` need.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// UDP address to listen on.
    pub listen: SocketAddr,
    /// Where the key and certificate come from.
    pub identity: ServerIdentity,
    /// Who may reach what.
    pub access: Access,
    /// The state directory, whose `clients` have joined or are invited; `None`: nobody is invited to this server.
    pub clients_in: Option<PathBuf>,
    /// Targets that get a PROXY header.
    pub headed: HeaderTargets,
    /// How a token becomes a target.
    pub token_parser: TokenParser,
    /// How long a dial to a target may take.
    pub dial_timeout: Duration,
    /// The data path.
    pub transport: TransportSettings,
    /// REST, metrics and logs.
    pub control: ControlSettings,
}

/// Servers of a client at most, with those that records name. Each has its connections and is asked for a sign of life; chosen
/// arbitrarily, to bound both.
pub const SERVERS_MAX: usize = 16;

/// A server, or several, as a person writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// One server.
    At(HostPort),
    /// The servers that the SRV records of a service name.
    Service(ServiceName),
}

impl Address {
    /// The name that certificates have to show, and that is sent as SNI.
    pub fn name(&self) -> &str {
        match self {
            Self::At(server) => &server.host,
            Self::Service(service) => service.domain(),
        }
    }

    /// The one server; `None`: records name several.
    pub fn at(&self) -> Option<&HostPort> {
        match self {
            Self::At(server) => Some(server),
            Self::Service(_) => None,
        }
    }
}

/// Writes it as it was written: `HOST:PORT` or `srv:DOMAIN`.
impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::At(server) => server.fmt(f),
            Self::Service(service) => service.fmt(f),
        }
    }
}

/// A host name or address literal, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// A DNS name, an IPv4 literal, or an IPv6 literal without brackets.
    pub host: String,
    /// UDP port.
    pub port: u16,
}

/// Writes `HOST:PORT`, with brackets around IPv6.
impl std::fmt::Display for HostPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') {
            write!(f, "[{host}]:{port}")
        } else {
            write!(f, "{host}:{port}")
        }
    }
}

/// One local listener and what its connections are carried to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// Where local applications connect.
    pub listen: ListenOn,
    /// Where their connections lead.
    pub to: ForwardTo,
}

/// One listener of the server for this client, and what its connections are carried to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reverse {
    /// Where the server is asked to listen.
    pub listen: ListenAddress,
    /// What this client dials.
    pub target: Target,
}

/// A local address on which applications connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenOn {
    /// TCP address.
    Tcp(SocketAddr),
    /// Unix stream socket path; a stale socket file is replaced.
    Unix(PathBuf),
    /// TCP address to which the packet filter leads connections to other addresses.
    Transparent(Way, SocketAddr),
}

/// What a local connection is carried to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForwardTo {
    /// Always this target (native mode).
    Target(Target),
    /// A token source plugin decides for each connection (quic-tun's way).
    Source(TokenSource),
    /// Each connection says where it wants to go: SOCKS5, SOCKS4A or HTTP CONNECT.
    Proxy,
    /// To where the application has made it: of [`ListenOn::Transparent`] only.
    Destination,
}

/// Where the client gets the token of a new flow from (quic-tun's `--token-source-plugin`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenSource {
    /// This text, always.
    Fixed(String),
    /// A file read again for each connection: `CLIENT-ADDRESS TOKEN` lines.
    File(PathBuf),
    /// `GET <url>?addr=<client ip:port>` answering `{"token": "..."}`.
    Http(String),
}

/// How the server turns a token into a target (quic-tun's `--token-parser-plugin`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokenParser {
    /// The token is the target.
    #[default]
    Cleartext,
    /// The token is the target in standard base64 (`--token-parser-key base64`).
    Base64,
}

/// Time that flows of known clients wait for another connection.
pub const BOND_TTL: Duration = Duration::from_mins(30);

/// The same where the server does not know its clients: anyone could make it hold sockets.
pub const BOND_TTL_OPEN: Duration = Duration::from_mins(1);

/// The longest that a client waits, whatever the server lets it.
pub const BOND_TTL_MAX: Duration = Duration::from_hours(24);

/// The data path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransportSettings {
    /// Worker threads, each with one epoll loop and one UDP socket.
    pub workers: usize,
    /// Client: QUIC connections kept to the server, spread over the workers.
    pub connections: usize,
    /// Congestion controller.
    pub congestion: Congestion,
    /// Silence after which a connection is lost. Flows of a bond then wait for the next connection; others are reset.
    pub idle_timeout: Duration,
    /// Time that a flow waits for another connection; 0: it ends with its own. `None`: a client waits for as long as the server
    /// lets it, a server for [`BOND_TTL`] or [`BOND_TTL_OPEN`].
    pub bond_ttl: Option<Duration>,
    /// Silence after which the peer is asked for a sign of life.
    pub keep_alive: Duration,
    /// Memory for buffered flow data in this process, bytes.
    pub memory_budget: u64,
    /// Flows one peer may have open on one connection.
    pub max_flows: u32,
    /// Connections a server accepts at once, finished handshakes.
    pub max_connections: usize,
    /// Wanted UDP socket buffers, bytes; what the system grants is printed.
    pub udp_buffer: usize,
    /// Largest UDP payload tried by path MTU discovery, bytes; `None`: the interface's.
    pub max_udp_payload: Option<u16>,
    /// UDP segmentation offload.
    pub gso: bool,
    /// Time given to open flows after SIGTERM.
    pub drain: Duration,
    /// The library that seals packets.
    pub aead: Aead,
    /// File to which TLS secrets are appended for Wireshark. Unsafe; said at start.
    pub key_log: Option<PathBuf>,
    /// Directory for a qlog file of every connection.
    pub qlog_dir: Option<PathBuf>,
}

/// Congestion controllers behind the seam.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// Ours: fills a lossy path, shares one where loss is congestion.
    #[default]
    Auto,
    /// CUBIC (RFC 9438).
    Cubic,
    /// `NewReno` (RFC 9002 section 7).
    NewReno,
    /// So many bytes per second.
    Fixed(u64),
    /// What nobody else wants.
    Background,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What checks run with; the programs' own defaults are those of their flags.
    impl Default for TransportSettings {
        fn default() -> Self {
            Self {
                workers: 1,
                connections: 1,
                congestion: Congestion::default(),
                idle_timeout: Duration::from_mins(1),
                bond_ttl: None,
                keep_alive: Duration::from_secs(2),
                memory_budget: 1 << 30,
                max_flows: 16_384,
                max_connections: 10_000,
                udp_buffer: 8 << 20,
                max_udp_payload: None,
                gso: true,
                drain: Duration::from_secs(10),
                aead: Aead::AwsLc,
                key_log: None,
                qlog_dir: None,
            }
        }
    }
}
