//! What an engine says about its connections and flows: plain values for REST, metrics and logs.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use quictun_flow::{FlowReport, Usage};
pub use quictun_wire::alpn::Protocol;

pub use crate::clients::OTHERS;
pub use crate::histogram::Histogram;
pub use crate::times::Times;

use quictun_congestion::View;
use quictun_flow::ConnectionId;

use crate::loss::LossReason;

/// Which end of the tunnel an engine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Opens connections and flows.
    Client,
    /// Accepts them.
    Server,
}

/// What limits a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Limit {
    /// Nothing more is to be sent.
    #[default]
    Application,
    /// The peer takes no more: its window is full.
    ReceiveWindow,
    /// The congestion controller.
    Congestion,
    /// The rate of its client, see [`Allowance`](quictun_flow::Allowance).
    Rate,
    /// This machine: neither window nor rate is used up.
    Cpu,
}

impl Limit {
    /// The word for it in reports, logs and records.
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

/// One QUIC connection.
#[derive(Clone, Debug)]
pub struct ConnectionReport {
    /// Unique within the engine's lifetime.
    pub id: ConnectionId,
    /// The peer's present address.
    pub remote: SocketAddr,
    /// Protocol; `None` before the handshake is done.
    pub protocol: Option<Protocol>,
    /// Name of the authenticated peer, where there is one.
    pub peer: Option<String>,
    /// Its bond, where flows outlive it.
    pub bond: Option<BondId>,
    /// The client is known to the server, or need not be.
    pub admitted: bool,
    /// When it was begun.
    pub opened: Instant,
    /// Flows open on it.
    pub flows: usize,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Congestion window, bytes.
    pub congestion_window: u64,
    /// Bytes in flight.
    pub in_flight: u64,
    /// How the congestion controller sees the path.
    pub controller: View,
    /// What limited the latest sending.
    pub limit: Limit,
    /// Pacing rate, bytes per second; `None` where pacing is off.
    pub pacing_bytes_per_s: Option<u64>,
    /// UDP payload size in use, bytes.
    pub mtu: u16,
    /// Packets sent and declared lost.
    pub packets_sent: u64,
    /// Packets declared lost.
    pub packets_lost: u64,
    /// Congestion events.
    pub congestion_events: u64,
    /// UDP payload bytes sent.
    pub bytes_sent: u64,
    /// UDP payload bytes received.
    pub bytes_received: u64,
    /// System calls that sent (GSO batches) and the datagrams in them: their ratio is the batch size.
    pub batches_sent: u64,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Those of them that were sent again because their acknowledgement was late.
    pub datagrams_repeated: u64,
    /// Datagrams received.
    pub datagrams_received: u64,
    /// Connection receive window granted to the peer, bytes.
    pub receive_window: u64,
    /// Whether the peer has stopped answering for longer than the liveness deadline.
    pub unresponsive: bool,
    /// Address changes of the peer that were followed.
    pub migrations: u64,
}

/// One of the servers that a client dials: its place in [`ClientRole::servers`](crate::ClientRole::servers).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub usize);

/// The reason for which new flows go to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// None was chosen before.
    First,
    /// The one before does not answer.
    Gone,
    /// It is faster than the one before.
    Faster,
    /// It is about as fast as the one before, and was written before it.
    Before,
}

impl Why {
    /// The words for it in logs and reports.
    pub fn text(self) -> &'static str {
        match self {
            Self::First => "it answered first",
            Self::Gone => "the other does not answer",
            Self::Faster => "it is faster",
            Self::Before => "as fast, and written first",
        }
    }
}

/// Client: one of the servers that it dials.
#[derive(Clone, Debug)]
pub struct ServerReport {
    /// The server.
    pub server: ServerId,
    /// New flows go to it, for this reason.
    pub chosen: Option<Why>,
    /// Connections that take flows and answer.
    pub ready: usize,
    /// Connections that are up and do not answer, or have still to be let in.
    pub unready: usize,
    /// Flows open on its connections.
    pub flows: usize,
    /// Flows that it was asked for.
    pub flows_opened: u64,
    /// Least smoothed round-trip time of its connections that answer.
    pub rtt: Option<Duration>,
    /// Bytes per second that its path has lately shown to give, where flows wanted more.
    pub bandwidth: Option<u64>,
    /// Reason for which the latest attempt or connection ended, where none has succeeded since.
    pub failure: Option<LossReason>,
}

/// The beginning of a bond's id, which both sides have, and which is enough to tell bonds apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BondId(pub [u8; 4]);

impl fmt::Display for BondId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", u32::from_be_bytes(self.0))
    }
}

/// One bond that both sides have agreed on.
#[derive(Clone, Debug)]
pub struct BondReport {
    /// Its id.
    pub id: BondId,
    /// Server: the client's name, where it has one.
    pub client: Option<String>,
    /// Open connections that belong to it: one, and for a moment two.
    pub connections: usize,
    /// Its flows, with those that wait for another connection.
    pub flows: usize,
    /// Flows that wait for another connection.
    pub detached: usize,
    /// Bytes that its flows keep, in case the peer has not got them.
    pub retained: u64,
    /// Time at which it lost its connection, if it has none.
    pub alone_since: Option<Instant>,
}

/// Counters of one engine since it was made. All grow only.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Connections begun or accepted.
    pub connections_opened: u64,
    /// Connections that ended, for any reason.
    pub connections_closed: u64,
    /// Connections that ended with an error or a time-out.
    pub connections_lost: u64,
    /// Handshakes refused or failed.
    pub handshakes_failed: u64,
    /// Flows opened (client) or accepted (server).
    pub flows_opened: u64,
    /// Flows that ended cleanly, both directions finished.
    pub flows_finished: u64,
    /// Flows that ended by a reset.
    pub flows_reset: u64,
    /// Flows the far side or the local dial refused.
    pub flows_refused: u64,
    /// Moves of flows to another connection.
    pub flows_moved: u64,
    /// Flows that clients asked to move and that could not.
    pub moves_refused: u64,
    /// Server: bonds that clients asked to go on with and that are not known, or not theirs.
    pub bonds_refused: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets declared lost.
    pub packets_lost: u64,
    /// Bytes from local applications into the tunnel.
    pub bytes_to_tunnel: u64,
    /// Bytes from the tunnel to local applications.
    pub bytes_to_app: u64,
    /// UDP datagrams received.
    pub datagrams_received: u64,
    /// UDP datagrams sent.
    pub datagrams_sent: u64,
    /// Send batches (one system call each, where GSO works).
    pub batches_sent: u64,
    /// What took how long.
    pub times: Times,
}

/// One named client, whether or not it is connected.
#[derive(Clone, Debug)]
pub struct ClientReport {
    /// Its name in the configuration, or [`OTHERS`].
    pub name: Arc<str>,
    /// Its counters.
    pub totals: ClientTotals,
    /// Its limits and what it uses of them, over all engines of the process; `None`: none was given, or it is one of many.
    pub usage: Option<Usage>,
}

/// Counters of one named client since the engine was made. All grow only.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientTotals {
    /// Bytes from targets to the client.
    pub bytes_to_tunnel: u64,
    /// Bytes from the client to targets.
    pub bytes_to_app: u64,
    /// Flows that ended cleanly, both directions finished.
    pub flows_finished: u64,
    /// Flows that ended by a reset.
    pub flows_reset: u64,
    /// Flows that were refused.
    pub flows_refused: u64,
    /// Moves of its flows to another connection.
    pub flows_moved: u64,
}
