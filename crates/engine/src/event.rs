//! What an engine tells its caller.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quictun_congestion::View;
use quictun_flow::{ConnectionId, FlowId, FlowSummary};
use quictun_wire::join::{Grant, Join};
use quictun_wire::listening::{Incoming, Listen, ListenAck, ListenId};
use rustls::pki_types::CertificateDer;

use crate::loss::LossReason;
use crate::report::{Limit, Protocol, ServerId, Why};

/// Something happened that the caller should act on or note.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// Client: a server's addresses are wanted; answer with [`crate::Engine::handle_resolved`].
    Resolve {
        /// The server.
        server: ServerId,
    },
    /// Client: new flows go to this one of several servers from now on.
    Chosen {
        /// The server.
        server: ServerId,
        /// The one before.
        before: Option<ServerId>,
        /// Why.
        why: Why,
    },
    /// A handshake was completed.
    Connected {
        /// The connection.
        connection: ConnectionId,
        /// The peer.
        remote: SocketAddr,
        /// What both sides speak.
        protocol: Protocol,
        /// The peer's certificate chain, where it showed one.
        certificates: Option<Vec<CertificateDer<'static>>>,
    },
    /// Server: a client that is not known yet says who it is, or one that is known joins; answer with [`crate::Engine::admit`], or close the
    /// connection.
    Hello {
        /// The connection.
        connection: ConnectionId,
        /// The peer.
        remote: SocketAddr,
        /// Proof of a pre-shared secret, as sent.
        proof: Option<[u8; 32]>,
        /// What it shows of an invitation, as sent. Then it is answered by [`crate::Engine::answer_join`] first, also where
        /// the client is known already.
        join: Option<Join>,
    },
    /// Server: a client did not say who it is in time; its connection was closed.
    Unproven {
        /// The connection.
        connection: ConnectionId,
        /// The peer.
        remote: SocketAddr,
    },
    /// Client: the server knows this client, or is too old to say so.
    Welcome {
        /// The server.
        server: ServerId,
        /// The connection.
        connection: ConnectionId,
        /// The peer.
        remote: SocketAddr,
        /// What both sides speak.
        protocol: Protocol,
        /// The answer to our JOIN.
        grant: Option<Grant>,
        /// Whether flows outlive the connection.
        bonded: bool,
        /// Whether the server listens for this client, see [`crate::Engine::listen`].
        reverse: bool,
    },
    /// Client: the answer to [`crate::Engine::listen`], or the news that the server listens no more.
    ListenAnswered {
        /// The connection.
        connection: ConnectionId,
        /// What the server says.
        answer: ListenAck,
    },
    /// Client: the server has opened a flow for what has connected to a listener; answer with
    /// [`crate::Engine::handle_dialed`].
    Incoming(Taken),
    /// Server: the client asks it to listen; answer with [`crate::Engine::answer_listen`].
    Listen {
        /// The connection.
        connection: ConnectionId,
        /// The peer.
        remote: SocketAddr,
        /// What the client asks for.
        listen: Listen,
    },
    /// Server: the client needs these listeners no more.
    Unlisten {
        /// The connection.
        connection: ConnectionId,
        /// The client's reverse forwards.
        ids: Vec<ListenId>,
    },
    /// Server: the client lets more flows be opened, see [`crate::Engine::open_incoming`].
    Room {
        /// The connection.
        connection: ConnectionId,
    },
    /// Client: no connection came about; the next attempt follows after `retry_in`.
    ConnectFailed {
        /// The server.
        server: ServerId,
        /// The last address tried, where there was one.
        remote: Option<SocketAddr>,
        /// Why.
        reason: LossReason,
        /// Time until the next attempt.
        retry_in: Duration,
    },
    /// Server: a handshake came to nothing.
    HandshakeFailed {
        /// The peer.
        remote: SocketAddr,
        /// Why.
        reason: LossReason,
    },
    /// A connection that had been established ended.
    Disconnected {
        /// Client: the server.
        server: ServerId,
        /// The connection.
        connection: ConnectionId,
        /// The peer.
        remote: SocketAddr,
        /// Why.
        reason: LossReason,
        /// Flows that were reset with it.
        flows: usize,
        /// Flows whose bytes had arrived whole: they end once their applications have read them.
        salvaged: usize,
        /// Flows of a bond: they wait for its next connection.
        detached: usize,
    },
    /// A bond has its next connection: its flows move to that.
    Rejoined {
        /// The connection.
        connection: ConnectionId,
        /// The peer.
        remote: SocketAddr,
        /// Flows that are not on it yet.
        flows: usize,
        /// Reason for which flows leave their earlier connection.
        left: Left,
    },
    /// A flow continues on another connection.
    Moved {
        /// The flow.
        flow: FlowId,
        /// The connection that carried it before.
        from: ConnectionId,
        /// The connection that carries it now.
        connection: ConnectionId,
        /// QUIC stream id there.
        stream_id: u64,
        /// For how long nothing moved.
        without: Duration,
    },
    /// The peer has stopped answering; new flows go elsewhere, open ones wait for it.
    Unresponsive {
        /// The connection.
        connection: ConnectionId,
        /// The peer.
        remote: SocketAddr,
    },
    /// Client: a connection is silent, and the one tried beside it is not answered either. What is on the way may drop all that
    /// comes from this port: see [`Engine::handle_new_port`](crate::Engine::handle_new_port).
    Unanswered,
    /// An unresponsive peer answers again.
    Responsive {
        /// The connection.
        connection: ConnectionId,
        /// The peer.
        remote: SocketAddr,
    },
    /// The peer's address changed and the connection followed.
    Migrated {
        /// The connection.
        connection: ConnectionId,
        /// Where it was.
        from: SocketAddr,
        /// Where it is.
        to: SocketAddr,
    },
    /// The congestion controller has come to another phase, or something else limits the sending; told at
    /// most once a second for each connection.
    Congestion {
        /// The connection.
        connection: ConnectionId,
        /// The peer.
        remote: SocketAddr,
        /// How the controller sees the path.
        controller: View,
        /// What limited the latest sending.
        limit: Limit,
    },
    /// Server: a client wants a flow; answer with [`crate::Engine::handle_dialed`].
    Open(Opened),
    /// Both sides have agreed on a flow.
    Established {
        /// The flow.
        flow: FlowId,
        /// QUIC stream id.
        stream_id: u64,
    },
    /// Server: a named client has used up what it may use in a month. Told once by each engine, until it may use more.
    QuotaUsedUp {
        /// Its name.
        client: Arc<str>,
    },
    /// A flow is over.
    FlowClosed(FlowSummary),
}

/// Reason for which flows leave a connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Left {
    /// It was lost.
    #[error(transparent)]
    Lost(#[from] LossReason),
    /// The peer did not answer.
    #[error("it did not answer")]
    Silent,
    /// Client: it is replaced by a new one.
    #[error("it was to be replaced")]
    Replaced,
    /// Server: the client has gone to another one.
    #[error("the client left it")]
    ByClient,
}

/// A flow that a server has opened.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// The flow.
    pub flow: FlowId,
    /// The connection that carries it.
    pub connection: ConnectionId,
    /// QUIC stream id.
    pub stream_id: u64,
    /// The reverse forward, and who has connected.
    pub incoming: Incoming,
}

/// A flow a client asks for.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The flow.
    pub flow: FlowId,
    /// The connection that carries it.
    pub connection: ConnectionId,
    /// QUIC stream id.
    pub stream_id: u64,
    /// The peer.
    pub remote: SocketAddr,
    /// Token or target, as sent.
    pub token: String,
    /// Proof of a pre-shared secret, as sent.
    pub proof: Option<[u8; 32]>,
    /// What the connection speaks.
    pub protocol: Protocol,
}
