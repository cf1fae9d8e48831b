//! Ends of connections, and why.

use quictun_wire::code::CloseCode;

/// Why a connection is no more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LossReason {
    /// We closed it.
    #[error("closed by us")]
    ClosedLocally,
    /// The peer closed it, with a code of PROTOCOL section 6.
    #[error("closed by the peer: {0}")]
    ClosedByPeer(String),
    /// The peer closed it because we may not use it at all: only an operator can help.
    #[error("closed by the peer: {}", CloseCode::NotAuthorized)]
    NotAuthorized,
    /// The peer let us in once and was told to do so no longer: only an operator can help.
    #[error("closed by the peer: {}", CloseCode::Revoked)]
    Revoked,
    /// Nothing was heard for the idle timeout, or the handshake took too long.
    #[error("timed out")]
    TimedOut,
    /// The peer has lost the connection's state: it was restarted.
    #[error("the peer has restarted (stateless reset)")]
    Reset,
    /// The peer broke the protocol.
    #[error("the peer broke the protocol: {0}")]
    Violation(&'static str),
    /// TLS or QUIC failed.
    #[error("{0}")]
    Protocol(String),
    /// The server's name did not resolve.
    #[error("{0}")]
    Resolve(String),
    /// The engine could not start the attempt.
    #[error("{0}")]
    Local(String),
}

impl From<&quinn_proto::ConnectionError> for LossReason {
    fn from(error: &quinn_proto::ConnectionError) -> Self {
        use quinn_proto::ConnectionError as E;
        match error {
            E::LocallyClosed => Self::ClosedLocally,
            E::TimedOut => Self::TimedOut,
            E::Reset => Self::Reset,
            E::ApplicationClosed(close) => {
                let code = close.error_code.into_inner();
                match CloseCode::from_u64(code) {
                    Some(CloseCode::NotAuthorized) => Self::NotAuthorized,
                    Some(CloseCode::Revoked) => Self::Revoked,
                    Some(known) => Self::ClosedByPeer(known.to_string()),
                    None => Self::ClosedByPeer(format!("code {code}")),
                }
            }
            other => Self::Protocol(other.to_string()),
        }
    }
}

impl From<quinn_proto::ConnectError> for LossReason {
    fn from(error: quinn_proto::ConnectError) -> Self {
        Self::Local(error.to_string())
    }
}
