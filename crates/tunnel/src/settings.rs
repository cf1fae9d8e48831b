//! The settings of the programs, after flags, environment, files and defaults were merged and checked.
//!
//! The command line builds these once; no code below it sees a flag or a file format. All values have been validated,
//! so later errors come only from the environment: a port in use, a name that does not resolve.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use quictun_control::log::shown_url;
use quictun_control::settings::ControlSettings;
pub use quictun_engine::{Algorithm as Congestion, CarrierChoice};
pub use quictun_io::poller::CARRIER_LISTENERS_MAX;
use quictun_stackd::settings::TunSettings;
use quictun_trust::settings::{
    Access, Aead, CertificateFiles, ClientIdentity, HeaderTargets, Offer, ServerIdentity,
    ServerTrust,
};
use quictun_wire::listening::ListenAddress;
use quictun_wire::srv::ServiceName;
use quictun_wire::target::{Family, Target};

use crate::outbound_proxy::OutboundProxy;

/// The settings of `quictun-client` and `quictun client`.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// The server to dial. Its name is resolved again on every attempt.
    pub server: Address,
    /// The addresses of the server. If not empty, its name is not resolved.
    pub server_addresses: Vec<IpAddr>,
    /// The TCP port of the server for flows in TLS, if it is another one than that of its address.
    pub tls_port: Option<u16>,
    /// Further servers. One of them is used if the first one does not answer, or if it serves better.
    pub other_servers: Vec<RemoteServer>,
    /// The proxy through which TLS over TCP leads to the servers.
    pub outbound_proxy: Option<OutboundProxy>,
    /// Local listeners and the destinations of their connections.
    pub forwards: Vec<Forward>,
    /// File with the users of the proxies and their passwords. If `None`, no proxy asks for a password, and each serves
    /// this machine only.
    pub proxy_users: Option<PathBuf>,
    /// Listeners of the server, and the local targets of their connections.
    pub reverse: Vec<Reverse>,
    /// Targets of reverse forwards that get a PROXY header.
    pub header_targets: HeaderTargets,
    /// True if the server learns the addresses from which applications connect.
    pub sends_sources: bool,
    /// A TUN device. Each connection through it is carried to its original destination.
    pub tun: Option<TunSettings>,
    /// Takes the flows and listeners of the client that runs with the same state directory.
    pub take_over: bool,
    /// The directory of the socket at which the next process takes over. If `None`, none can.
    pub state_dir: Option<PathBuf>,
    /// True if the settings do not name that directory. Another client may have its socket there.
    pub state_dir_is_default: bool,
    /// The protocols offered in the TLS handshake.
    pub offer: Offer,
    /// The way in which the server is recognised.
    pub trust: ServerTrust,
    /// The way in which this client proves its identity.
    pub identity: ClientIdentity,
    /// Workers, connections, buffers and time-outs of the data path.
    pub transport: TransportSettings,
    /// REST, metrics and logs.
    pub control: ControlSettings,
}

/// A server beside the first one, and how it is recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteServer {
    /// The server to dial. Its name is resolved again on every attempt.
    pub server: Address,
    /// The TCP port of the server for flows in TLS, if it is another one than that of its address.
    pub tls_port: Option<u16>,
    /// The way in which this server is recognised.
    pub trust: ServerTrust,
    /// The way in which this client proves its identity to this server.
    pub identity: ClientIdentity,
}

impl ClientSettings {
    /// Returns all servers, in the order given.
    pub fn servers(&self) -> Vec<RemoteServer> {
        let first = RemoteServer {
            server: self.server.clone(),
            tls_port: self.tls_port,
            trust: self.trust.clone(),
            identity: self.identity.clone(),
        };
        let mut all = vec![first];
        all.extend_from_slice(&self.other_servers);
        all
    }
}

/// The settings of `quictun-server` and `quictun server`.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// UDP address to listen on.
    pub listen: SocketAddr,
    /// TCP addresses to listen on for flows in TLS. `None` means the UDP address, if the system permits it.
    pub listen_tls: Option<Vec<SocketAddr>>,
    /// Serves programs that use this server as an HTTPS proxy, on the TCP addresses.
    pub https_proxy: bool,
    /// Takes the flows and sockets of the server that runs with the same state directory.
    pub take_over: bool,
    /// The source of the key and certificate.
    pub identity: ServerIdentity,
    /// The source of the certificate that programs without quictun see. If `None`, they see that of `identity`.
    pub certificate: Option<CertificateSource>,
    /// The clients and the targets that they may reach.
    pub access: Access,
    /// The state directory, whose `clients` holds the clients that have joined or are invited. If `None`, no client can
    /// be invited.
    pub clients_in: Option<PathBuf>,
    /// Targets that get a PROXY header.
    pub header_targets: HeaderTargets,
    /// The way in which a token becomes a target.
    pub token_parser: TokenParser,
    /// Time limit of a dial to a target.
    pub dial_timeout: Duration,
    /// Time for which a client's listeners wait while the client does not answer.
    pub reverse_grace: Duration,
    /// The address family of dials to targets.
    pub dial_family: Family,
    /// Workers, connections, buffers and time-outs of the data path.
    pub transport: TransportSettings,
    /// REST, metrics and logs.
    pub control: ControlSettings,
}

/// The source of the certificate that programs without quictun see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateSource {
    /// A chain and its key in files, which another program renews.
    Files(CertificateFiles),
    /// An authority issues it (ACME, RFC 8555).
    Acme(AcmeSettings),
}

/// How an authority issues a certificate. Its terms are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeSettings {
    /// Host names of the certificate, the first of which is shown in logs.
    pub names: Vec<String>,
    /// URL of the authority's directory.
    pub directory: String,
    /// Address for the authority's mails, if it may send any.
    pub contact: Option<String>,
    /// TCP address for the authority's checks by HTTP. If `None`, it checks by TLS.
    pub listen_http: Option<SocketAddr>,
}

/// Limit of a client's servers, those that records name included. Each has its own connections and keep-alives. The
/// number is arbitrary; it bounds both.
pub const SERVERS_MAX: usize = 16;

/// The address of one server or of a service, as a person writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A single server, by host and port.
    At(HostPort),
    /// The servers that the SRV records of a service name.
    Service(ServiceName),
}

impl Address {
    /// Returns the name that certificates must contain, and that is sent as SNI.
    pub fn name(&self) -> &str {
        match self {
            Self::At(server) => server.name(),
            Self::Service(service) => service.domain(),
        }
    }

    /// Returns the address for TLS over TCP, if it has another port than this one.
    pub fn tls_address(&self, tls_port: Option<u16>) -> Option<String> {
        let at = HostPort {
            host: self.at()?.host.clone(),
            port: tls_port?,
        };
        Some(at.to_string())
    }

    /// Returns the one server, or `None` if records name several.
    pub fn at(&self) -> Option<&HostPort> {
        match self {
            Self::At(server) => Some(server),
            Self::Service(_) => None,
        }
    }
}

/// Formats the address as it was written: `HOST:PORT` or `srv:DOMAIN`.
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
    /// The UDP port of the host.
    pub port: u16,
}

impl HostPort {
    /// Returns the host without the zone of a link-local address, which only this machine knows: the name that
    /// certificates must contain, and that is sent as SNI.
    pub fn name(&self) -> &str {
        let address = self.host.split_once('%').map(|(address, _)| address);
        address.unwrap_or(&self.host)
    }
}

/// Formats `HOST:PORT`, with brackets around an IPv6 address.
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

/// A local listener and the destination of its connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// The local address to listen on.
    pub listen: ListenOn,
    /// The destination of its connections.
    pub to: ForwardTo,
}

impl Forward {
    /// Returns whether answers are sent from addresses of other hosts.
    pub(crate) fn is_for_other_hosts(&self) -> bool {
        matches!(self.listen, ListenOn::TransparentUdp(_))
    }
}

/// A listener of the server for this client, and the target of its connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reverse {
    /// The address that the server is asked to listen on.
    pub listen: ListenAddress,
    /// The target that this client dials.
    pub target: Target,
}

/// A local address on which applications connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenOn {
    /// A TCP address to bind.
    Tcp(SocketAddr),
    /// A TCP port of 127.0.0.1 and of `::1`, or of 127.0.0.1 alone if the machine has no IPv6.
    Loopback(u16),
    /// A UDP address to bind. The datagrams of each source are a flow.
    Udp(SocketAddr),
    /// The path of a Unix stream socket. A stale socket file is replaced.
    Unix(PathBuf),
    /// A TCP address to which the packet filter redirects connections to other addresses.
    Transparent(DivertMethod, SocketAddr),
    /// A UDP address to which the packet filter leads datagrams to other addresses, which they keep.
    TransparentUdp(SocketAddr),
}

/// The way in which connections are diverted to this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DivertMethod {
    /// NAT rewrites the destination.
    Redirect,
    /// The packets keep their destination.
    Tproxy,
}

impl ListenOn {
    /// Returns whether both cannot listen at once. Port 0 is another port each time.
    pub fn clashes_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Tcp(at) | Self::Udp(at), _) if at.port() == 0 => false,
            (Self::Loopback(0), _) => false,
            (Self::Loopback(port), Self::Tcp(at)) | (Self::Tcp(at), Self::Loopback(port)) => {
                let loopback = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
                *port == at.port() && loopback.contains(&at.ip())
            }
            _ => self == other,
        }
    }
}

/// Formats the address as a forward names it.
impl std::fmt::Display for ListenOn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(at) | Self::Transparent(_, at) => at.fmt(f),
            Self::Loopback(port) => port.fmt(f),
            Self::Udp(at) | Self::TransparentUdp(at) => write!(f, "udp:{at}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The destination of a local connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForwardTo {
    /// Always this target (native mode).
    Target(Target),
    /// A token source plugin decides for each connection (quic-tun's way).
    Source(TokenSource),
    /// Each connection names its destination: by SOCKS5, SOCKS4A or HTTP CONNECT.
    Proxy,
    /// The address that the application connected to; only for [`ListenOn::Transparent`].
    Destination,
}

/// Formats the destination for people.
impl std::fmt::Display for ForwardTo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Target(target) => target.fmt(f),
            Self::Proxy => f.write_str("anywhere (SOCKS5, SOCKS4a, HTTP CONNECT)"),
            Self::Destination => f.write_str("wherever connections are made to"),
            Self::Source(TokenSource::Fixed(token)) => f.write_str(token),
            Self::Source(TokenSource::File(path)) => path.display().fmt(f),
            Self::Source(TokenSource::Http(url)) => f.write_str(&shown_url(url)),
        }
    }
}

/// The source of a new flow's token on the client (quic-tun's `--token-source-plugin`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenSource {
    /// The same text for every connection.
    Fixed(String),
    /// A file of `CLIENT-ADDRESS TOKEN` lines, read again for each connection.
    File(PathBuf),
    /// An HTTP server: `GET <url>?addr=<client ip:port>` returns `{"token": "..."}`.
    Http(String),
}

/// The way in which the server turns a token into a target (quic-tun's `--token-parser-plugin`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokenParser {
    /// The token is the target.
    #[default]
    Cleartext,
    /// The token is the target in standard base64 (`--token-parser-key base64`).
    Base64,
}

/// Default time that flows of known clients wait for another connection.
pub const BOND_TTL: Duration = Duration::from_mins(30);

/// Default of [`BOND_TTL`] on a server that does not know its clients: anyone could make it hold sockets.
pub const BOND_TTL_OPEN: Duration = Duration::from_mins(1);

/// Limit of the time that a client waits, even if the server allows more.
pub const BOND_TTL_MAX: Duration = Duration::from_hours(24);

/// The settings of the data path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransportSettings {
    /// Worker threads, each with one epoll loop and one UDP socket.
    pub workers: usize,
    /// On a client: the number of connections kept to the server, spread over the workers.
    pub connections: usize,
    /// The carriers that a client uses.
    pub carrier: CarrierChoice,
    /// The system's congestion control of TCP connections that carry flows. `None` means BBR where the system has it.
    pub tcp_congestion: Option<String>,
    /// The congestion controller of each connection.
    pub congestion: Congestion,
    /// Silence after which a connection is lost. Flows of a bond then wait for the next connection; others are reset.
    pub idle_timeout: Duration,
    /// Time that a flow waits for another connection; with 0 it ends with its own connection. `None` means that a
    /// client waits for as long as the server allows, and a server for [`BOND_TTL`] or [`BOND_TTL_OPEN`].
    pub bond_ttl: Option<Duration>,
    /// Silence after which a keep-alive is sent to the peer.
    pub keep_alive: Duration,
    /// Silence after which a datagram flow ends. Some ports have shorter times.
    pub datagram_idle: Duration,
    /// Memory for buffered flow data in this process, bytes. `None` means a part of what the system allows, at most
    /// 1 GiB.
    pub memory_budget: Option<u64>,
    /// Limit of the flows that one peer may have open on one connection.
    pub max_flows: u32,
    /// Limit of a server's connections with a finished handshake.
    pub max_connections: usize,
    /// Requested size of the UDP socket buffers, bytes. The size that the system grants is printed.
    pub udp_buffer: usize,
    /// Largest UDP payload that path MTU discovery tries, bytes. `None` means the interface's limit.
    pub max_udp_payload: Option<u16>,
    /// True if UDP segmentation offload is used.
    pub gso: bool,
    /// Time for open flows to finish after SIGTERM.
    pub drain: Duration,
    /// The cryptographic library that seals packets.
    pub aead: Aead,
    /// File to which TLS secrets are appended for Wireshark. Unsafe, so the start prints a warning.
    pub key_log: Option<PathBuf>,
    /// Directory for a qlog file of every connection.
    pub qlog_dir: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The defaults of tests. The programs' own defaults are those of their flags.
    impl Default for TransportSettings {
        fn default() -> Self {
            Self {
                workers: 1,
                connections: 1,
                carrier: CarrierChoice::Quic,
                tcp_congestion: None,
                congestion: Congestion::default(),
                idle_timeout: Duration::from_mins(1),
                bond_ttl: None,
                keep_alive: Duration::from_secs(2),
                datagram_idle: Duration::from_mins(2),
                memory_budget: Some(1 << 30),
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
