//! Reports about connections and flows: plain values for REST, metrics and logs.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use quictun_flow::{ClientUsage, FlowReport};
pub use quictun_wire::alpn::Protocol;

pub use crate::clients::OTHERS;
pub use crate::durations::DurationHistograms;
pub use crate::histogram::Histogram;

use quictun_congestion::{ControllerView, PeerKey};
use quictun_flow::ConnectionId;
pub use quictun_flow::Side;

use crate::loss::LossReason;

/// The flows of a process, counted by their fate if another process took its place now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestartCost {
    /// Flows that would continue.
    pub continuing: usize,
    /// Flows that would be reset because they belong to no bond: those of quic-tun, and of programs without quictun.
    pub without_bond: usize,
    /// Flows that would be reset because one of their directions was reset.
    pub half_reset: usize,
    /// Flows whose target has not answered, or whose server has not answered the request for a bond. Clients of a server ask
    /// for them again unless bytes were sent.
    pub unanswered: usize,
    /// Flows that would be reset because only this process can use their sockets
    /// ([`stays_with_process`](quictun_flow::Socket::stays_with_process)).
    pub own_socket: usize,
}

impl RestartCost {
    /// Returns the number of flows that would be reset.
    pub fn reset(&self) -> usize {
        self.without_bond + self.half_reset + self.unanswered + self.own_socket
    }
}

/// Returns the key under which `side` remembers the path to the peer at `remote`.
pub(crate) fn peer_key(side: Side, remote: SocketAddr) -> PeerKey {
    match side {
        Side::Client => PeerKey::Server(remote),
        Side::Server => PeerKey::Client(remote.ip()),
    }
}

/// The factor that limits a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SendLimit {
    /// The application: there is nothing more to send.
    #[default]
    Application,
    /// The peer's receive window, which is full.
    ReceiveWindow,
    /// The congestion controller's window or rate.
    Congestion,
    /// The rate limit of the client, see [`Allowance`](quictun_flow::Allowance).
    Rate,
    /// This machine: neither the window nor the rate is used up.
    Cpu,
}

impl SendLimit {
    /// Returns the name for reports, logs and records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Application => "application",
            Self::ReceiveWindow => "receive window",
            Self::Congestion => "congestion",
            Self::Rate => "rate",
            Self::Cpu => "cpu",
        }
    }
}

/// A kind of carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CarrierKind {
    /// QUIC, in UDP datagrams.
    Quic,
    /// QMux, in TLS 1.3 over a TCP connection.
    Tls,
}

impl CarrierKind {
    /// Returns the name for reports, logs and settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quic => "quic",
            Self::Tls => "tls",
        }
    }
}

/// Whether QUIC passes the network between a client and a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuicState {
    /// Nothing is known of the present network.
    Unknown,
    /// The latest connection is by QUIC, or one by QUIC answers.
    Works,
    /// QUIC was silent while TLS over TCP connected.
    Blocked,
}

/// The reason why transfers have changed their carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferReason {
    /// TLS is faster on a path where the processor limits QUIC.
    Cheaper,
    /// The network slows QUIC down, and lets TLS pass.
    Throttled,
    /// Back to QUIC: the path loses packets.
    Loss,
    /// Back to QUIC: TLS has become slower than QUIC was.
    Slower,
    /// Back to QUIC: the connection over TLS was lost.
    Lost,
    /// Back to QUIC, which may no longer be slowed down.
    TriedAgain,
}

impl TransferReason {
    /// Returns the words for logs and reports.
    pub fn text(self) -> &'static str {
        match self {
            Self::Cheaper => "TLS is faster, because it costs less processor time",
            Self::Throttled => "the network throttles QUIC",
            Self::Loss => "the path loses packets",
            Self::Slower => "TLS has become slower",
            Self::Lost => "the connection over TLS was lost",
            Self::TriedAgain => "the network may have ceased to throttle it",
        }
    }
}

/// Client: the measurement by which TLS over TCP carries the transfers to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransfersOverTls {
    /// The reason for which TLS was tried.
    pub reason: TransferReason,
    /// The rate of QUIC, in bytes per second.
    pub quic: u64,
    /// The rate of TLS, in bytes per second.
    pub tls: u64,
}

/// The state of one connection.
#[derive(Clone, Debug)]
pub struct ConnectionReport {
    /// Id of the connection, unique within the engine's lifetime.
    pub id: ConnectionId,
    /// The peer's latest address at which it has shown that it receives.
    pub remote: SocketAddr,
    /// The kind of its carrier. Over TLS, the system's TCP counts packets, and this report has none.
    pub carrier: CarrierKind,
    /// The negotiated protocol. `None` before the handshake has completed.
    pub protocol: Option<Protocol>,
    /// Name of the authenticated peer, if known.
    pub peer: Option<String>,
    /// The bond of the connection, if its flows outlive it.
    pub bond: Option<BondId>,
    /// True if the client is known to the server, or need not identify itself.
    pub admitted: bool,
    /// Time at which the handshake began.
    pub opened: Instant,
    /// Number of open flows.
    pub flows: usize,
    /// The smoothed round-trip time.
    pub rtt: Duration,
    /// Congestion window, in bytes. `None` over TLS.
    pub congestion_window: Option<u64>,
    /// Bytes sent and not yet acknowledged or lost.
    pub in_flight: u64,
    /// The congestion controller's view of the path.
    pub controller: ControllerView,
    /// The factor that limited sending last.
    pub limit: SendLimit,
    /// Pacing rate, in bytes per second. `None` if pacing is off.
    pub pacing_bytes_per_s: Option<u64>,
    /// Current UDP payload size, in bytes. `None` over TLS.
    pub mtu: Option<u16>,
    /// Number of packets sent.
    pub packets_sent: u64,
    /// Number of packets declared lost.
    pub packets_lost: u64,
    /// Number of congestion events.
    pub congestion_events: u64,
    /// UDP payload bytes sent.
    pub bytes_sent: u64,
    /// UDP payload bytes received.
    pub bytes_received: u64,
    /// Number of send calls (GSO batches). `datagrams_sent` divided by this is the mean batch size.
    pub batches_sent: u64,
    /// Number of datagrams sent.
    pub datagrams_sent: u64,
    /// The part of `datagrams_sent` that repeats an earlier datagram: copies of the handshake, and datagrams whose
    /// acknowledgement was late.
    pub datagrams_repeated: u64,
    /// Number of datagrams received.
    pub datagrams_received: u64,
    /// Connection receive window granted to the peer, in bytes.
    pub receive_window: u64,
    /// True if the peer has been silent for longer than the liveness deadline.
    pub unresponsive: bool,
    /// Number of address changes of the peer that the connection has followed.
    pub migrations: u64,
}

/// One of the servers that a client dials: its index in [`ClientRole::servers`](crate::ClientRole::servers).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub usize);

/// Reason why new flows go to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChoiceReason {
    /// No server was chosen before.
    FirstAnswer,
    /// The server that was chosen before does not answer.
    NoAnswer,
    /// No record names the server that was chosen before any more.
    NoRecord,
    /// The server that was chosen before shuts down.
    Draining,
    /// The server is faster than the one before.
    Faster,
    /// The server is about as fast as the one before, and precedes it in the configuration.
    ListedFirst,
    /// No server was chosen before, and the server is the first of its service by priority and weight.
    FirstRecord,
    /// The server's record has a lower priority number than that of the server before.
    Priority,
}

impl ChoiceReason {
    /// Returns the words for logs and reports.
    pub fn text(self) -> &'static str {
        match self {
            Self::FirstAnswer => "it answered first",
            Self::NoAnswer => "the other does not answer",
            Self::NoRecord => "no record names the other any more",
            Self::Draining => "the other shuts down",
            Self::Faster => "it is faster",
            Self::ListedFirst => "as fast, and written first",
            Self::FirstRecord => "first by priority and weight",
            Self::Priority => "its priority comes first",
        }
    }
}

/// Client: the state of one of the servers that it dials.
#[derive(Clone, Debug)]
pub struct ServerReport {
    /// The server that this report is about.
    pub server: ServerId,
    /// The reason why new flows go to this server, if they do.
    pub chosen: Option<ChoiceReason>,
    /// Number of connections that answer and take flows.
    pub ready: usize,
    /// Number of established connections that do not answer, or that the server has not admitted yet.
    pub unready: usize,
    /// Number of its open flows, including those that wait for a connection.
    pub flows: usize,
    /// Number of flows that the client has opened at this server.
    pub flows_opened: u64,
    /// Lowest smoothed round-trip time of the connections that answer.
    pub rtt: Option<Duration>,
    /// Bytes per second that the path has recently delivered while flows wanted more.
    pub bandwidth: Option<u64>,
    /// Reason why the latest attempt or connection ended, if none has succeeded since.
    pub failure: Option<LossReason>,
    /// Whether QUIC passes the present network.
    pub quic: QuicState,
    /// Time until QUIC is tried again beside TLS.
    pub probe_in: Option<Duration>,
    /// The measurement by which TLS carries the transfers, if it does so beside QUIC.
    pub transfers: Option<TransfersOverTls>,
    /// The server shuts down, and keeps the flows that it has.
    pub draining: bool,
}

/// The first four bytes of a bond's id. Both sides know it, and it suffices to distinguish bonds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BondId(pub [u8; 4]);

impl QuicState {
    /// Returns the name for reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Works => "works",
            Self::Blocked => "blocked",
        }
    }
}

impl fmt::Display for BondId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", u32::from_be_bytes(self.0))
    }
}

/// The state of one bond that both sides have agreed on.
#[derive(Clone, Debug)]
pub struct BondReport {
    /// Short id of the bond.
    pub id: BondId,
    /// Server: the client's name, if it has one.
    pub client: Option<String>,
    /// Number of open connections of the bond: one, or two while flows move or transfers have one of their own.
    pub connections: usize,
    /// Number of flows, including those that wait for another connection.
    pub flows: usize,
    /// Number of flows that wait for another connection.
    pub detached: usize,
    /// Bytes that the flows retain until the peer has confirmed them.
    pub retained: u64,
    /// Time at which the bond lost its last connection, if it has none.
    pub alone_since: Option<Instant>,
}

/// Counters of one engine since its creation. They only grow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Connections started or accepted.
    pub connections_opened: u64,
    /// Connections that ended, for any reason.
    pub connections_closed: u64,
    /// Connections that ended with an error or a timeout, or that the peer closed while flows were open.
    pub connections_lost: u64,
    /// Handshakes that were refused or have failed.
    pub handshakes_failed: u64,
    /// Flows opened (client) or accepted (server).
    pub flows_opened: u64,
    /// Flows that ended cleanly: both directions finished.
    pub flows_finished: u64,
    /// Flows that ended by a reset.
    pub flows_reset: u64,
    /// Flows that the remote side or the local dial refused.
    pub flows_refused: u64,
    /// Moves of flows to another connection.
    pub flows_moved: u64,
    /// Server: moves that clients asked for and that were refused.
    pub moves_refused: u64,
    /// Number of datagrams of ended datagram flows that this side has dropped.
    pub flow_datagrams_dropped: u64,
    /// Server: bonds that clients asked for and that were refused.
    pub bonds_refused: u64,
    /// Packets sent on all connections.
    pub packets_sent: u64,
    /// Packets declared lost on all connections.
    pub packets_lost: u64,
    /// Bytes from local applications into the tunnel.
    pub bytes_to_tunnel: u64,
    /// Bytes from the tunnel to local applications.
    pub bytes_to_app: u64,
    /// UDP datagrams received, valid or not.
    pub datagrams_received: u64,
    /// UDP datagrams sent, including answers outside connections.
    pub datagrams_sent: u64,
    /// Send batches: with GSO, each is one system call.
    pub batches_sent: u64,
    /// Histograms of the durations that the engine measures.
    pub times: DurationHistograms,
}

/// The state of one named client, connected or not.
#[derive(Clone, Debug)]
pub struct ClientReport {
    /// The client's name in the configuration, or [`OTHERS`].
    pub name: Arc<str>,
    /// The counters of the client.
    pub totals: ClientTotals,
    /// The client's limits and its use of them, over all engines of the process. `None` if it has no limits, or if the
    /// report is that of [`OTHERS`].
    pub usage: Option<ClientUsage>,
}

/// Counters of one named client since the engine's creation. They only grow.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientTotals {
    /// Bytes from targets to the client.
    pub bytes_to_tunnel: u64,
    /// Bytes from the client to targets.
    pub bytes_to_app: u64,
    /// Flows that ended cleanly: both directions finished.
    pub flows_finished: u64,
    /// Flows that ended by a reset.
    pub flows_reset: u64,
    /// Flows that were refused.
    pub flows_refused: u64,
    /// Moves of the client's flows to another connection.
    pub flows_moved: u64,
}
