//! Events that an engine reports to its caller.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quictun_congestion::ControllerView;
use quictun_flow::{ConnectionId, FlowId, FlowSummary};
use quictun_wire::join::{Grant, Join};
use quictun_wire::listening::{Incoming, Listen, ListenAck, ListenId};
use rustls::pki_types::CertificateDer;

use crate::loss::LossReason;
use crate::report::{
    ChoiceReason, Protocol, SendLimit, ServerId, TransferReason, TransfersOverTls,
};

/// An event of either role that the caller should act on or record.
#[derive(Debug)]
pub enum Event {
    /// A handshake has completed.
    Connected {
        /// The connection whose handshake has completed.
        connection: ConnectionId,
        /// Address of the peer.
        remote: SocketAddr,
        /// The protocol that ALPN has negotiated.
        protocol: Protocol,
        /// The peer's certificate chain, if the peer sent one.
        certificates: Option<Vec<CertificateDer<'static>>>,
    },
    /// An established connection has ended.
    Disconnected {
        /// The server that the connection led to, or `None` at a server.
        server: Option<ServerId>,
        /// The connection that ended.
        connection: ConnectionId,
        /// Address of the peer.
        remote: SocketAddr,
        /// The reason for the end.
        reason: LossReason,
        /// Number of flows that were reset with it.
        flows: usize,
        /// Number of flows whose bytes had all arrived. They end once their applications have read the bytes.
        salvaged: usize,
        /// The flows that wait for the next connection of their bond.
        waiting: Vec<FlowId>,
    },
    /// A bond has a new connection, and its flows move to it.
    Rejoined {
        /// The connection that the flows move to.
        connection: ConnectionId,
        /// Address of the peer.
        remote: SocketAddr,
        /// Number of flows that are not on it yet.
        flows: usize,
        /// Reason why the flows leave their earlier connection.
        reason: LeaveReason,
    },
    /// A flow continues on another connection.
    Moved {
        /// The flow that has moved.
        flow: FlowId,
        /// The connection that carried it before.
        from: ConnectionId,
        /// The connection that carries it now.
        connection: ConnectionId,
        /// Stream id on the new connection.
        stream_id: u64,
        /// Time during which the flow made no progress.
        without: Duration,
    },
    /// The peer has stopped answering. New flows go elsewhere, and open flows wait for it.
    Unresponsive {
        /// The connection whose peer is silent.
        connection: ConnectionId,
        /// Address of the peer.
        remote: SocketAddr,
    },
    /// An unresponsive peer answers again.
    Responsive {
        /// The connection that answers.
        connection: ConnectionId,
        /// Address of the peer.
        remote: SocketAddr,
    },
    /// The peer's address has changed, and the peer has shown that it receives at the new one.
    Migrated {
        /// The connection that has migrated.
        connection: ConnectionId,
        /// The peer's previous address.
        from: SocketAddr,
        /// The peer's current address.
        to: SocketAddr,
    },
    /// The congestion controller has entered another phase, or another factor limits sending. Reported at most once a
    /// second for each connection.
    Congestion(SendState),
    /// Both sides have agreed on a flow.
    Established {
        /// The flow that both sides have agreed on.
        flow: FlowId,
        /// Stream id of the flow.
        stream_id: u64,
    },
    /// A flow has ended. This is the only event about a flow that was refused before it was opened: of an application,
    /// or a stream of the peer whose request was not read. The summary of such a stream has no token.
    FlowClosed(FlowSummary),
}

/// An event of a client's engine.
#[derive(Debug)]
pub enum ClientEvent {
    /// An event that engines of both roles report.
    Shared(Event),
    /// The engine needs a server's addresses. Answer with [`crate::Engine::handle_resolved`].
    Resolve {
        /// The server to resolve.
        server: ServerId,
        /// The server's number among those of its place ([`crate::ServerPlace::tenant`]). The answer repeats it.
        tenant: u32,
    },
    /// The engine needs a TCP connection for a carrier. Answer with [`crate::Engine::handle_carrier_dialed`].
    DialCarrier {
        /// The connection that needs it.
        connection: ConnectionId,
        /// The server that the connection is to lead to.
        server: ServerId,
        /// The address to connect to.
        remote: SocketAddr,
        /// True if that is the address of the server's outbound proxy ([`crate::Engine::set_proxy`]). The caller asks
        /// the proxy to connect to the server before it answers.
        through_proxy: bool,
    },
    /// New flows go to another one of several servers from now on.
    Chosen {
        /// The server that new flows go to.
        server: ServerId,
        /// The server that was chosen before.
        before: Option<ServerId>,
        /// The reason for the switch.
        reason: ChoiceReason,
    },
    /// Transfers to a server use another carrier from now on.
    TransfersMoved {
        /// The server that the transfers lead to.
        server: ServerId,
        /// The rates that were measured, if TLS over TCP carries the transfers.
        over_tls: Option<TransfersOverTls>,
        /// The reason of the change.
        reason: TransferReason,
    },
    /// The server has admitted this client, or is too old to report it.
    Welcome {
        /// The server that was dialled.
        server: ServerId,
        /// The connection to that server.
        connection: ConnectionId,
        /// Address of the peer.
        remote: SocketAddr,
        /// The protocol of the connection.
        protocol: Protocol,
        /// The answer to this client's JOIN.
        grant: Option<Grant>,
        /// True if flows outlive the connection.
        bonded: bool,
        /// True if the server listens for this client. See [`crate::Engine::listen`].
        reverse: bool,
    },
    /// The server answers [`crate::Engine::listen`], or no longer listens.
    ListenAnswered {
        /// The connection that carried the request.
        connection: ConnectionId,
        /// The answer of the server.
        answer: ListenAck,
    },
    /// The server has opened a flow for a connection to one of its listeners. Answer with
    /// [`crate::Engine::handle_dialed`].
    Incoming(IncomingFlow),
    /// No connection could be made. The next attempt follows after `retry_in`.
    ConnectFailed {
        /// The server that was dialled.
        server: ServerId,
        /// The last address that was tried, if any.
        remote: Option<SocketAddr>,
        /// The reason of the last failure.
        reason: LossReason,
        /// Time until the next attempt.
        retry_in: Duration,
    },
    /// A connection is silent, and the attempt beside it is not answered either. A middlebox may drop everything that
    /// comes from this port: see [`Engine::handle_new_port`](crate::Engine::handle_new_port).
    Unanswered,
    /// A server answers again on a connection that was suspect or silent. Attempts beside the connection are given up
    /// if none of them has succeeded yet, so [`ClientEvent::Welcome`] need not follow.
    ServerAnswers {
        /// The server that the connection leads to.
        server: ServerId,
        /// Address of the server.
        remote: SocketAddr,
    },
}

/// An event of a server's engine.
#[derive(Debug)]
pub enum ServerEvent {
    /// An event that engines of both roles report.
    Shared(Event),
    /// An unknown client identifies itself, or a known client asks to join. Answer with [`crate::Engine::admit`], or
    /// close the connection.
    Hello {
        /// The connection of the client.
        connection: ConnectionId,
        /// Address of the peer.
        remote: SocketAddr,
        /// Proof of a pre-shared secret, as sent.
        proof: Option<[u8; 32]>,
        /// The JOIN of an invited client, as sent. If it is present, answer it with [`crate::Engine::answer_join`]
        /// first, even if the client is known already.
        join: Option<Join>,
    },
    /// A client did not identify itself in time, and its connection was closed.
    Unproven {
        /// The connection that was closed.
        connection: ConnectionId,
        /// Address of the peer.
        remote: SocketAddr,
    },
    /// The client asks it to listen. Answer with [`crate::Engine::answer_listen`].
    Listen {
        /// The connection of the client.
        connection: ConnectionId,
        /// Address of the peer.
        remote: SocketAddr,
        /// The listener that the client asks for.
        listen: Listen,
    },
    /// The client no longer needs these listeners.
    Unlisten {
        /// The connection of the client.
        connection: ConnectionId,
        /// The client's reverse forwards.
        ids: Vec<ListenId>,
    },
    /// The client permits more flows. See [`crate::Engine::open_incoming`].
    StreamsAvailable {
        /// The connection of the client.
        connection: ConnectionId,
    },
    /// The client of a TCP connection has named another worker, which has its bond. Take the connection there, with
    /// [`crate::Engine::take_carrier`].
    Misrouted {
        /// The connection to take.
        connection: ConnectionId,
        /// The worker that the client has named.
        worker: u8,
    },
    /// A handshake has failed.
    HandshakeFailed {
        /// Address of the peer.
        remote: SocketAddr,
        /// The reason of the failure.
        reason: LossReason,
    },
    /// A client asks for a flow. Answer with [`crate::Engine::handle_dialed`].
    Open(OpenRequest),
    /// A named client has used up its monthly quota. Each engine reports it once, until the client may use more.
    QuotaUsedUp {
        /// Name of the client.
        client: Arc<str>,
    },
}

/// An event of an engine, for callers that handle engines of both roles alike.
#[derive(Debug)]
pub enum EngineEvent {
    /// An event that engines of both roles report.
    Shared(Event),
    /// An event that only clients report.
    Client(ClientEvent),
    /// An event that only servers report.
    Server(ServerEvent),
}

impl From<Event> for EngineEvent {
    fn from(event: Event) -> Self {
        Self::Shared(event)
    }
}

impl From<ClientEvent> for EngineEvent {
    fn from(event: ClientEvent) -> Self {
        match event {
            ClientEvent::Shared(event) => Self::Shared(event),
            event => Self::Client(event),
        }
    }
}

impl From<ServerEvent> for EngineEvent {
    fn from(event: ServerEvent) -> Self {
        match event {
            ServerEvent::Shared(event) => Self::Shared(event),
            event => Self::Server(event),
        }
    }
}

/// The state of a connection's congestion control.
#[derive(Debug)]
pub struct SendState {
    /// The connection that sends differently now.
    pub connection: ConnectionId,
    /// Address of the peer.
    pub remote: SocketAddr,
    /// The controller's view of the path.
    pub controller: ControllerView,
    /// The factor that limited sending last.
    pub limit: SendLimit,
}

/// Reason why flows leave a connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaveReason {
    /// The connection was lost.
    #[error(transparent)]
    Lost(#[from] LossReason),
    /// The peer did not answer.
    #[error("it did not answer")]
    Silent,
    /// Client: a new connection replaces it.
    #[error("it was to be replaced")]
    Replaced,
    /// Server: the client has moved to another connection.
    #[error("the client left it")]
    ByClient,
}

/// A flow that a server has opened.
#[derive(Clone, Copy, Debug)]
pub struct IncomingFlow {
    /// The flow that was opened.
    pub flow: FlowId,
    /// The connection that carries it.
    pub connection: ConnectionId,
    /// Stream id of the flow.
    pub stream_id: u64,
    /// The reverse forward, and the address that has connected to it.
    pub incoming: Incoming,
}

/// A flow that a client asks for.
#[derive(Clone, Debug)]
pub struct OpenRequest {
    /// The flow that was asked for.
    pub flow: FlowId,
    /// The connection that carries it.
    pub connection: ConnectionId,
    /// Stream id of the flow.
    pub stream_id: u64,
    /// Address of the peer.
    pub remote: SocketAddr,
    /// Token or target, as sent.
    pub token: String,
    /// Proof of a pre-shared secret, as sent. Of a login by HTTP, the proof that its password makes.
    pub proof: Option<[u8; 32]>,
    /// The user of a login by HTTP.
    pub user: Option<String>,
    /// The application's address, as the client states it (PROTOCOL section 5.10).
    pub source: Option<SocketAddr>,
    /// The protocol of the connection.
    pub protocol: Protocol,
}

/// Events that the caller has not polled yet.
#[derive(Debug, Default)]
pub(crate) struct EventQueue(pub(crate) VecDeque<EngineEvent>);

impl EventQueue {
    pub(crate) fn push(&mut self, event: impl Into<EngineEvent>) {
        self.0.push_back(event.into());
    }
}
