//! Translates the library's errors to causes.

use quinn_proto::{ConnectError, ConnectionError};

use crate::loss::{LocalError, LossReason, ProtocolError};

/// Returns the reason why a connection has ended.
pub(super) fn reason_of(error: &ConnectionError) -> LossReason {
    use ConnectionError as E;
    match error {
        E::LocallyClosed => LossReason::ClosedLocally,
        E::TimedOut => LossReason::TimedOut,
        E::Reset => LossReason::Reset,
        E::ApplicationClosed(close) => LossReason::of_close(close.error_code.into_inner()),
        E::ConnectionClosed(close) => {
            ProtocolError::by_peer(close.error_code.into(), error.to_string()).into()
        }
        other => ProtocolError::here(other.to_string()).into(),
    }
}

/// Returns the reason why no connection has begun.
pub(super) fn not_begun(error: ConnectError) -> LocalError {
    match error {
        ConnectError::InvalidServerName(name) => LocalError::ServerName(name),
        ConnectError::InvalidRemoteAddress(address) => LocalError::Address(address),
        ConnectError::CidsExhausted => LocalError::NoConnectionId,
        // They concern configurations and versions that the endpoint does not use.
        ConnectError::EndpointStopping
        | ConnectError::NoDefaultClientConfig
        | ConnectError::UnsupportedVersion => LocalError::NotBegun,
    }
}
