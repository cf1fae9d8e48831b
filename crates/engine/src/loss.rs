//! Reasons for the end of connections.

use quictun_flow::Ending;
use quictun_wire::code::{CloseCode, FlowCode};
use quinn_proto::{ConnectError, ConnectionError, TransportErrorCode};

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
#[error(transparent)]
pub struct ProtocolError(ConnectionError);

/// The engine could not carry out a request of its caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LocalError {
    /// The TLS configuration has no cipher suite for QUIC's Initial packets.
    #[error("no initial cipher suite found")]
    NoInitialCipherSuite,
    /// The library refused to start a connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A client's operation was called on a server.
    #[error("not a client")]
    NotAClient,
    /// A server's operation was called on a client.
    #[error("not a server")]
    NotAServer,
}

/// QUIC's first error code for a TLS alert (RFC 9001 section 4.8). The low byte is the alert.
const CRYPTO_ERROR: u64 = 0x100;

impl ProtocolError {
    /// Returns the TLS alert (RFC 8446 section 6) with which the peer has ended the handshake, if it has sent one.
    pub fn alert(&self) -> Option<u8> {
        let ConnectionError::ConnectionClosed(close) = &self.0 else {
            return None;
        };
        let code = u64::from(close.error_code);
        let alert = code.checked_sub(CRYPTO_ERROR)?;
        u8::try_from(alert).ok()
    }

    /// Returns whether the peer has closed the connection. The text is then the peer's, or that of a host on the path:
    /// before the handshake has ended, both can close the connection.
    pub fn is_by_peer(&self) -> bool {
        matches!(&self.0, ConnectionError::ConnectionClosed(_))
    }

    /// Returns whether the peer accepts no new connections: it ends, or has as many as it may.
    pub fn is_refused_connection(&self) -> bool {
        matches!(&self.0, ConnectionError::ConnectionClosed(close) if close.error_code == TransportErrorCode::CONNECTION_REFUSED)
    }
}

impl From<&ConnectionError> for LossReason {
    fn from(error: &ConnectionError) -> Self {
        use ConnectionError as E;
        match error {
            E::LocallyClosed => Self::ClosedLocally,
            E::TimedOut => Self::TimedOut,
            E::Reset => Self::Reset,
            E::ApplicationClosed(close) => {
                let code = close.error_code.into_inner();
                match CloseCode::from_u64(code) {
                    Some(CloseCode::NotAuthorized) => Self::NotAuthorized,
                    Some(CloseCode::Revoked) => Self::Revoked,
                    Some(CloseCode::Expired) => Self::Expired,
                    _ => Self::ClosedByPeer(code),
                }
            }
            other => ProtocolError(other.clone()).into(),
        }
    }
}

fn text_of(code: u64) -> String {
    match CloseCode::from_u64(code) {
        Some(code) => code.to_string(),
        None => format!("code {code}"),
    }
}
