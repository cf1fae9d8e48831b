//! Flows as their engine tells of them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::close::Ending;
use crate::ids::{ConnectionId, FlowId};

/// One open flow.
#[derive(Clone, Debug)]
pub struct FlowReport {
    /// Unique within the engine's lifetime.
    pub id: FlowId,
    /// The connection that carries it.
    pub connection: ConnectionId,
    /// QUIC stream id.
    pub stream_id: u64,
    /// The peer at the other end of the tunnel.
    pub remote: SocketAddr,
    /// The token or target it was opened with.
    pub token: String,
    /// Name of the application's address on this side, where known (client: who connected).
    pub client_app: String,
    /// Address of the application the server dialled, where known.
    pub server_app: String,
    /// When it was opened.
    pub opened: Instant,
    /// Bytes read from the local application and accepted by the stream.
    pub bytes_to_tunnel: u64,
    /// Bytes taken from the stream and written to the local application.
    pub bytes_to_app: u64,
    /// Whether the far side has accepted it.
    pub established: bool,
    /// Whether the server has opened it, for what has connected to a listener; `token` names that on the server.
    pub incoming: bool,
    /// Time since which nothing moves, where it waits for another connection.
    pub detached_since: Option<Instant>,
    /// First bytes the local application sent, where they may be of a known protocol (at most 1024).
    pub head_from_app: Vec<u8>,
    /// First bytes the local application was sent, likewise.
    pub head_to_app: Vec<u8>,
}

/// A flow's life in one line of a log.
#[derive(Clone, Debug)]
pub struct FlowSummary {
    /// The flow.
    pub flow: FlowId,
    /// The connection, if the flow ever had one.
    pub connection: Option<ConnectionId>,
    /// QUIC stream id, if it ever had one.
    pub stream_id: Option<u64>,
    /// The peer, if it ever had one.
    pub remote: Option<SocketAddr>,
    /// Token or target.
    pub token: String,
    /// The application's address on the client, where known.
    pub client_app: String,
    /// The application's address on the server, where known.
    pub server_app: String,
    /// How it ended.
    pub ending: Ending,
    /// Whether both sides had agreed on it.
    pub established: bool,
    /// Whether the server had opened it, for what had connected to a listener; `token` names that on the server.
    pub incoming: bool,
    /// Bytes from the local application into the tunnel.
    pub bytes_to_tunnel: u64,
    /// Bytes from the tunnel to the local application.
    pub bytes_to_app: u64,
    /// From open to end.
    pub elapsed: Duration,
}
