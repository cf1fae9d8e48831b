//! What the programs run with, after flags, environment, files and defaults were merged and checked.
//!
//! The command line builds these once; nothing below it sees a flag or a file format. A value that
//! is here has been validated: what can be wrong later is only the world (a port in use, a name that
//! does not resolve).

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use quictun_wire::target::Target;

/// Everything `quictun-client` and `quictun client` need.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// The server to dial. Resolved again on every attempt.
    pub server: HostPort,
    /// Its addresses, where it is not to be resolved.
    pub server_addresses: Vec<IpAddr>,
    /// Local listeners and where each leads.
    pub forwards: Vec<Forward>,
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

/// Everything `quictun-server` and `quictun server` need.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// UDP address to listen on.
    pub listen: SocketAddr,
    /// Where the key and certificate come from.
    pub identity: ServerIdentity,
    /// Who may reach what.
    pub access: Access,
    /// How a token becomes a target.
    pub token_parser: TokenParser,
    /// How long a dial to a target may take.
    pub dial_timeout: Duration,
    /// The data path.
    pub transport: TransportSettings,
    /// REST, metrics and logs.
    pub control: ControlSettings,
}

/// A TUN device whose connections are carried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunSettings {
    /// Where it comes from.
    pub device: TunDevice,
    /// The name server that is asked whatever is asked of any, through the tunnel; `None`: nobody is.
    pub dns: Option<IpAddr>,
    /// The network stack is in the client's own process. Otherwise a device of ours has one of its own for it.
    pub one_process: bool,
    /// A device of ours goes, and its routes, where it is not confirmed within this time.
    pub confirm: Option<Duration>,
    /// One command is behind the device, and it has ended when this drains: connections without an answer are refused.
    pub for_command: bool,
}

/// Where a TUN device comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TunDevice {
    /// This descriptor, which somebody else owns.
    Inherited(i32),
    /// The process that has it, and a network stack, is at the other end of this descriptor, a socket.
    Apart(i32),
    /// It is made, what is for some networks is led into it, and all of that ends with us.
    Own(Routes),
}

/// What a TUN device of ours gets to carry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes {
    /// These networks; empty: everything.
    pub include: Vec<IpNet>,
    /// But not these.
    pub exclude: Vec<IpNet>,
    /// Traffic leaves beside the tunnel when the device is gone.
    pub fail_open: bool,
}

/// A host name or address literal, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// A DNS name, an IPv4 literal, or an IPv6 literal without brackets.
    pub host: String,
    /// UDP port.
    pub port: u16,
}

/// One local listener and what its connections are carried to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// Where local applications connect.
    pub listen: ListenOn,
    /// Where their connections lead.
    pub to: ForwardTo,
}

/// A local address on which applications connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenOn {
    /// TCP address.
    Tcp(SocketAddr),
    /// Unix stream socket path; a stale socket file is replaced.
    Unix(PathBuf),
}

/// What a local connection is carried to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForwardTo {
    /// Always this target (native mode).
    Target(Target),
    /// A token source plugin decides for each connection (quic-tun's way).
    Source(TokenSource),
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

/// Protocols offered by the client, best first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offer {
    /// `quictun/1`, then `quic-tun`.
    #[default]
    Both,
    /// `quictun/1` only: native mode, where the server enforces who may reach what.
    Native,
    /// `quic-tun` only.
    Compat,
}

/// How the client recognises its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerTrust {
    /// Anyone will do (quic-tun's default). Unsafe; said at start.
    Insecure,
    /// Only these public keys.
    Pins(Vec<Pin>),
    /// A certificate chain to one of the file's authorities, or to the system's where `None`.
    Authorities(Option<PathBuf>),
}

/// SHA-256 of a DER `SubjectPublicKeyInfo`, written `sha256:` and 43 characters of unpadded base64url.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pin(pub [u8; 32]);

/// How the client proves who it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientIdentity {
    /// Certificate and private key, PEM.
    pub certificate: Option<CertificateFiles>,
    /// File holding a pre-shared secret; proven by an HMAC over the TLS exporter, never sent.
    pub psk_file: Option<PathBuf>,
}

/// A PEM certificate chain and its PEM private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// Certificate chain, leaf first.
    pub cert: PathBuf,
    /// PKCS#8, PKCS#1 or SEC1 key.
    pub key: PathBuf,
}

/// Where the server's key comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerIdentity {
    /// Given files.
    Files(CertificateFiles),
    /// `server.key` and `server.crt` in this directory, made on the first run.
    State(PathBuf),
}

/// Who may reach what.
#[derive(Clone, Debug)]
pub enum Access {
    /// quic-tun's way: whoever connects may reach any target, but for what `guard` closes.
    Open {
        /// Client certificates must chain to these authorities, where given.
        ca: Option<PathBuf>,
        /// Which kinds of target stay closed.
        guard: Guard,
    },
    /// Deny by default: only named clients, each to its own targets.
    Named {
        /// The clients.
        clients: Vec<NamedClient>,
        /// Authorities for clients known by certificate name.
        ca: Option<PathBuf>,
    },
}

/// Targets that open mode refuses unless told otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guard {
    /// Allow `unix:` targets.
    pub allow_unix: bool,
    /// Allow link-local addresses (169.254.0.0/16, `fe80::/10`: cloud metadata lives there).
    pub allow_link_local: bool,
}

/// A client the server knows, and what it may reach.
#[derive(Clone, Debug)]
pub struct NamedClient {
    /// Its name in logs, metrics and REST; with a CA, the DNS name in its certificate.
    pub name: String,
    /// How it proves itself. Any one of them suffices.
    pub proofs: Vec<ClientProof>,
    /// Targets it may reach. Empty: none.
    pub allow: Vec<TargetRule>,
}

/// A way in which a client proves itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientProof {
    /// The public key of its certificate.
    Pin(Pin),
    /// A certificate from the configured authorities that carries the client's name.
    CertificateName,
    /// Knowledge of the secret in this file.
    PskFile(PathBuf),
}

/// A pattern of targets: `HOST:PORT`, `CIDR:PORT`, `*:PORT`, `HOST:*`, `unix:/path`, `unix:/dir/*`, `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetRule(pub String);

/// The data path.
#[derive(Clone, Debug)]
pub struct TransportSettings {
    /// Worker threads, each with one epoll loop and one UDP socket.
    pub workers: usize,
    /// Client: QUIC connections kept to the server, spread over the workers.
    pub connections: usize,
    /// Congestion controller.
    pub congestion: Congestion,
    /// A connection silent for this long is dead and its flows are reset.
    pub idle_timeout: Duration,
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

/// REST, metrics and logs.
#[derive(Clone, Debug)]
pub struct ControlSettings {
    /// Where the HTTP interface listens; `None`: off.
    pub httpd: Option<HttpListen>,
    /// `httpd` was not chosen by the user: where it is taken, go on without it and say so.
    pub httpd_is_default: bool,
    /// Names in `Host` headers that the HTTP interface answers to, beside addresses and `localhost`.
    pub http_names: Vec<String>,
    /// Keep the original's two misspellings in SPICE properties.
    pub compat_json: bool,
    /// Give up rights, files and system calls once everything listens.
    pub confine: bool,
    /// Logs.
    pub log: LogSettings,
}

/// Where the HTTP interface listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpListen {
    /// TCP address.
    Tcp(SocketAddr),
    /// Unix stream socket; a stale socket file is replaced.
    Unix {
        /// Its path.
        path: PathBuf,
        /// Permissions of the socket: who may connect.
        mode: u32,
    },
}

impl std::fmt::Display for HttpListen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix { path, .. } => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
impl ControlSettings {
    /// Without the HTTP interface, with logs to `outputs`.
    pub(crate) fn for_tests(outputs: &[String]) -> Self {
        Self {
            httpd: None,
            httpd_is_default: false,
            http_names: Vec::new(),
            compat_json: false,
            confine: false,
            log: LogSettings {
                level: "info".to_owned(),
                format: LogFormat::Text,
                outputs: outputs.to_vec(),
                phrases: Phrases::default(),
            },
        }
    }
}

/// Logs.
#[derive(Clone, Debug)]
pub struct LogSettings {
    /// A `tracing` filter: `info`, `debug`, `quictun_engine=trace`.
    pub level: String,
    /// Text or JSON.
    pub format: LogFormat,
    /// `stdout`, `stderr` or file paths.
    pub outputs: Vec<String>,
    /// How lines about single flows are worded.
    pub phrases: Phrases,
}

/// How lines about single flows are worded, and at which level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phrases {
    /// One line at the end of each flow; its other lines are at debug level.
    #[default]
    Own,
    /// quic-tun's: several lines for each flow at info level, word for word.
    Original,
}

/// Log line formats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// The settings that differ and that a running server does not change, by their keys in its configuration file.
pub(crate) fn restart_keys(old: &ServerSettings, new: &ServerSettings) -> Vec<&'static str> {
    let (t, u) = (&old.transport, &new.transport);
    let (c, d) = (&old.control, &new.control);
    let settings = [
        ("listen", old.listen != new.listen),
        (
            "transport.dial_timeout",
            old.dial_timeout != new.dial_timeout,
        ),
        ("transport.workers", t.workers != u.workers),
        ("transport.congestion", t.congestion != u.congestion),
        ("transport.idle_timeout", t.idle_timeout != u.idle_timeout),
        ("transport.keep_alive", t.keep_alive != u.keep_alive),
        (
            "transport.memory_budget",
            t.memory_budget != u.memory_budget,
        ),
        ("transport.max_flows", t.max_flows != u.max_flows),
        (
            "transport.max_connections",
            t.max_connections != u.max_connections,
        ),
        ("transport.udp_buffer", t.udp_buffer != u.udp_buffer),
        (
            "transport.max_udp_payload",
            t.max_udp_payload != u.max_udp_payload,
        ),
        ("transport.gso", t.gso != u.gso),
        ("transport.drain", t.drain != u.drain),
        ("transport.key_log", t.key_log != u.key_log),
        ("transport.qlog_dir", t.qlog_dir != u.qlog_dir),
        ("control.http", c.httpd != d.httpd),
        ("control.http_names", c.http_names != d.http_names),
        ("control.compat_json", c.compat_json != d.compat_json),
        ("log.level", c.log.level != d.log.level),
        ("log.format", c.log.format != d.log.format),
        ("log.output", c.log.outputs != d.log.outputs),
    ];
    let differ = settings.into_iter().filter(|(_, differs)| *differs);
    differ.map(|(key, _)| key).collect()
}

impl Default for TransportSettings {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            workers: cores,
            connections: cores,
            congestion: Congestion::default(),
            idle_timeout: Duration::from_mins(1),
            keep_alive: Duration::from_secs(2),
            memory_budget: 1 << 30,
            max_flows: 16_384,
            max_connections: 10_000,
            udp_buffer: 8 << 20,
            max_udp_payload: None,
            gso: true,
            drain: Duration::from_secs(10),
            key_log: None,
            qlog_dir: None,
        }
    }
}

impl std::fmt::Debug for Pin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}
