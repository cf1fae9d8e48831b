//! Reasons for the end of connections.

use std::net::SocketAddr;

use quictun_flow::Ending;
use quictun_wire::code::{CloseCode, FlowCode};

/// The reason why a connection has ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LossReason {
    /// This side closed the connection.
    #[error("closed by us")]
    ClosedLocally,
    /// This side closed the connection, because a client with fewer connections needed its place.
    #[error("closed by us: another client needed its place (--max-connections, --memory-budget)")]
    GaveWay,
    /// This side closed the connection, because another process takes the place of this one.
    #[error("closed by us: another process takes over")]
    HandedOver,
    /// The peer closed the connection with this code, which may be one of PROTOCOL section 6.
    #[error("closed by the peer: {}", text_of(*.0))]
    ClosedByPeer(u64),
    /// The peer closed the connection because this side may not use it at all. Only an operator can help.
    #[error("closed by the peer: {}", CloseCode::NotAuthorized)]
    NotAuthorized,
    /// The peer closed the connection because it once admitted this side and no longer may. Only an operator can help.
    #[error("closed by the peer: {}", CloseCode::Revoked)]
    Revoked,
    /// The peer closed the connection because this side's admission has expired. Only an operator can help.
    #[error("closed by the peer: {}", CloseCode::Expired)]
    Expired,
    /// Nothing was received for the idle timeout, or the handshake took too long.
    #[error("timed out")]
    TimedOut,
    /// The peer has lost the connection's state, because it was restarted.
    #[error("the peer has restarted (stateless reset)")]
    Reset,
    /// The peer broke the protocol.
    #[error("the peer broke the protocol: {0}")]
    Violation(&'static str),
    /// The TCP connection could not be made, or has failed. The text is the system's.
    #[error("the TCP connection failed: {0}")]
    Tcp(String),
    /// A program that used the server as an HTTPS proxy has ended its TCP connection without `close_notify`, as browsers
    /// do.
    #[error("the program has ended its connection")]
    ProgramLeft,
    /// The outbound proxy has not connected to the server. The text is the caller's.
    #[error("no way through the outbound proxy: {0}")]
    OutboundProxy(String),
    /// TLS or QUIC has failed.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The server's name did not resolve. The text is the resolver's.
    #[error("{0}")]
    Resolve(String),
    /// The engine could not start the attempt.
    #[error(transparent)]
    Local(#[from] LocalError),
}

impl LossReason {
    /// Returns the reason for the end of a connection that the peer has closed with this code.
    pub(crate) fn of_close(code: u64) -> Self {
        match CloseCode::from_u64(code) {
            Some(CloseCode::NotAuthorized) => Self::NotAuthorized,
            Some(CloseCode::Revoked) => Self::Revoked,
            Some(CloseCode::Expired) => Self::Expired,
            _ => Self::ClosedByPeer(code),
        }
    }

    /// Returns whether the peer does not admit this side, so that only an operator can help (PROTOCOL CODE-3).
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::NotAuthorized | Self::Revoked | Self::Expired)
    }

    /// Returns whether the peer has closed the connection because it no longer needs it, or because it ends.
    pub(crate) fn is_orderly_close(&self) -> bool {
        let Self::ClosedByPeer(code) = self else {
            return false;
        };
        matches!(
            CloseCode::from_u64(*code),
            Some(CloseCode::Done | CloseCode::Shutdown)
        )
    }

    /// Returns the reason with which flows end because of this one.
    pub(crate) fn of_flows(&self) -> Ending {
        let lost = Ending::Abandoned(FlowCode::ConnectionLost);
        match self {
            Self::NotAuthorized => FlowCode::Unauthenticated.into(),
            Self::Revoked => FlowCode::Revoked.into(),
            Self::Expired => Ending::PeerClosed(CloseCode::Expired),
            Self::ClosedByPeer(code) => CloseCode::from_u64(*code).map_or(lost, Ending::PeerClosed),
            _ => lost,
        }
    }
}

/// A failure of TLS or QUIC.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct ProtocolError {
    text: String,
    /// The code with which the peer has closed the connection (RFC 9000 section 20.1).
    close_code: Option<u64>,
}

/// The engine could not carry out a request of its caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LocalError {
    /// The TLS configuration has no cipher suite for QUIC's Initial packets.
    #[error("no initial cipher suite found")]
    NoInitialCipherSuite,
    /// TLS cannot verify a server of this name.
    #[error("invalid server name: {0}")]
    ServerName(String),
    /// No connection can lead to this address.
    #[error("invalid remote address: {0}")]
    Address(SocketAddr),
    /// All connection ids are in use.
    #[error("CIDs exhausted")]
    NoConnectionId,
    /// The QUIC library refused to begin a connection.
    #[error("the QUIC library begins no connection")]
    NotBegun,
}

/// QUIC's first error code for a TLS alert (RFC 9001 section 4.8). The low byte is the alert.
const CRYPTO_ERROR: u64 = 0x100;

/// QUIC's error code of a server that accepts no new connections (RFC 9000 section 20.1).
const CONNECTION_REFUSED: u64 = 0x2;

impl ProtocolError {
    /// Makes the error of a connection that the peer has closed with this code of QUIC.
    pub fn by_peer(code: u64, text: String) -> Self {
        Self {
            text,
            close_code: Some(code),
        }
    }

    /// Makes the error of a connection that this side has given up.
    pub fn here(text: String) -> Self {
        Self {
            text,
            close_code: None,
        }
    }

    /// Returns the TLS alert (RFC 8446 section 6) with which the peer has ended the handshake, if it has sent one.
    pub fn alert(&self) -> Option<u8> {
        let alert = self.close_code?.checked_sub(CRYPTO_ERROR)?;
        u8::try_from(alert).ok()
    }

    /// Returns whether the peer has closed the connection. The text is then the peer's, or that of a host on the path:
    /// before the handshake has ended, both can close the connection.
    pub fn is_by_peer(&self) -> bool {
        self.close_code.is_some()
    }

    /// Returns whether the peer accepts no new connections: it ends, or has as many as it may.
    pub fn is_refused_connection(&self) -> bool {
        self.close_code == Some(CONNECTION_REFUSED)
    }
}

fn text_of(code: u64) -> String {
    match CloseCode::from_u64(code) {
        Some(code) => code.to_string(),
        None => format!("code {code}"),
    }
}
