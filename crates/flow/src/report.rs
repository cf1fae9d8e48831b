//! Reports of an engine about its flows.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::close::Ending;
use crate::ids::{ConnectionId, FlowId};

/// The state of one open flow.
#[derive(Clone, Debug)]
pub struct FlowReport {
    /// Id of the flow, unique within the engine's lifetime.
    pub id: FlowId,
    /// The connection that carries the flow.
    pub connection: ConnectionId,
    /// Id of the stream.
    pub stream_id: u64,
    /// Address of the peer.
    pub remote: SocketAddr,
    /// The token or target that the flow was opened with.
    pub token: String,
    /// Address of the application on the client, if known.
    pub client_app: String,
    /// Address of the application on the server, if known.
    pub server_app: String,
    /// Time at which the flow was opened.
    pub opened: Instant,
    /// Bytes read from the local application and accepted by the stream.
    pub bytes_to_tunnel: u64,
    /// Bytes taken from the stream and written to the local application.
    pub bytes_to_app: u64,
    /// True if the peer has accepted the flow.
    pub established: bool,
    /// True if the server opened the flow, for an application that connected to one of its listeners. `token` then
    /// names the listener on the server.
    pub incoming: bool,
    /// Time at which bytes stopped moving, if the flow waits for another connection.
    pub detached_since: Option<Instant>,
    /// First bytes that the local application sent, at most 1024. Empty unless they are kept for a protocol classifier.
    pub head_from_app: Vec<u8>,
    /// First bytes that the local application received, under the same conditions.
    pub head_to_app: Vec<u8>,
}

/// Summary of a flow's life, for one log line.
#[derive(Clone, Debug)]
pub struct FlowSummary {
    /// Id of the flow.
    pub flow: FlowId,
    /// The connection, if the flow ever had one.
    pub connection: Option<ConnectionId>,
    /// Stream id, if the flow ever had a connection.
    pub stream_id: Option<u64>,
    /// Address of the peer, if the flow ever had a connection.
    pub remote: Option<SocketAddr>,
    /// The token or target that the flow was opened with.
    pub token: String,
    /// The application's address on the client, if known.
    pub client_app: String,
    /// The application's address on the server, if known.
    pub server_app: String,
    /// The way in which the flow ended.
    pub ending: Ending,
    /// True if both sides had agreed on the flow.
    pub established: bool,
    /// True if the server opened the flow, for an application that connected to one of its listeners. `token` then
    /// names the listener on the server.
    pub incoming: bool,
    /// Bytes from the local application into the tunnel.
    pub bytes_to_tunnel: u64,
    /// Bytes from the tunnel to the local application.
    pub bytes_to_app: u64,
    /// Time from open to end.
    pub elapsed: Duration,
}
