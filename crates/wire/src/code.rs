//! Error codes on the wire (PROTOCOL section 6).
//!
//! [`FlowCode`] ends one flow, in `RESET_STREAM` and `STOP_SENDING`; [`CloseCode`] ends a connection, in
//! `CONNECTION_CLOSE` of type 0x1d. Numbers are never reused. A code that is not in the list (a newer peer,
//! the original) still resets: only its reason is unknown.

use std::fmt;

use crate::ack::Ack;

/// Why a flow was reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FlowCode {
    /// The application's connection at the sender's side was reset or failed.
    AppReset,
    /// The start of the stream could not be parsed, or it names no target.
    BadOpen,
    /// The target's host or network cannot be reached.
    Unreachable,
    /// The client is known, but may not reach this target.
    Denied,
    /// The client has not proven who it is.
    Unauthenticated,
    /// The target did not answer the dial in time.
    DialTimeout,
    /// The target refused the connection.
    Refused,
    /// A limit of the sender was reached: flows, memory, descriptors.
    Limit,
    /// The sender is draining and opens no more flows.
    ShuttingDown,
    /// The target's name does not resolve.
    NameNotFound,
    /// The sender failed in a way that is its own fault.
    Internal,
    /// An unknown critical option, or a network that is not carried.
    Unsupported,
    /// The QUIC connection that carried the flow was lost.
    ConnectionLost,
    /// The sender's rules allowed the flow once and no longer do.
    Revoked,
}

impl FlowCode {
    /// Every code, in numerical order.
    pub const ALL: [Self; 14] = [
        Self::AppReset,
        Self::BadOpen,
        Self::Unreachable,
        Self::Denied,
        Self::Unauthenticated,
        Self::DialTimeout,
        Self::Refused,
        Self::Limit,
        Self::ShuttingDown,
        Self::NameNotFound,
        Self::Internal,
        Self::Unsupported,
        Self::ConnectionLost,
        Self::Revoked,
    ];

    /// The number on the wire.
    pub fn to_u64(self) -> u64 {
        match self {
            Self::AppReset => 0x01,
            Self::BadOpen => 0x02,
            Self::Unreachable => 0x03,
            Self::Denied => 0x04,
            Self::Unauthenticated => 0x05,
            Self::DialTimeout => 0x06,
            Self::Refused => 0x07,
            Self::Limit => 0x08,
            Self::ShuttingDown => 0x09,
            Self::NameNotFound => 0x0a,
            Self::Internal => 0x0b,
            Self::Unsupported => 0x0c,
            Self::ConnectionLost => 0x0d,
            Self::Revoked => 0x12,
        }
    }

    /// The code with this number; `None` for a number that is not assigned.
    pub fn from_u64(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.to_u64() == number)
    }

    /// Short `snake_case` name for metric labels and logs.
    pub fn label(self) -> &'static str {
        match self {
            Self::AppReset => "app_reset",
            Self::BadOpen => "bad_open",
            Self::Unreachable => "unreachable",
            Self::Denied => "denied",
            Self::Unauthenticated => "unauthenticated",
            Self::DialTimeout => "dial_timeout",
            Self::Refused => "refused",
            Self::Limit => "limit",
            Self::ShuttingDown => "shutting_down",
            Self::NameNotFound => "name_not_found",
            Self::Internal => "internal",
            Self::Unsupported => "unsupported",
            Self::ConnectionLost => "connection_lost",
            Self::Revoked => "revoked",
        }
    }

    /// What a server answers in the `quic-tun` protocol, which knows two failures only.
    pub fn compat_ack(self) -> Ack {
        match self {
            Self::BadOpen | Self::Unsupported => Ack::CannotParseToken,
            _ => Ack::CannotReachApplication,
        }
    }
}

impl fmt::Display for FlowCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AppReset => "the application on the other side reset its connection",
            Self::BadOpen => "the request to open the flow was malformed or names no target",
            Self::Unreachable => {
                "the server cannot reach the target: no route to its host or network"
            }
            Self::Denied => "the server's rules do not let this client reach the target",
            Self::Unauthenticated => {
                "the server does not know this client: no accepted key, certificate or secret"
            }
            Self::DialTimeout => "the target did not answer the server in time",
            Self::Refused => "the target refused the server's connection: nothing listens there",
            Self::Limit => "the other side has reached a limit and takes no more flows for now",
            Self::ShuttingDown => "the other side is shutting down",
            Self::NameNotFound => "the server cannot resolve the target's name",
            Self::Internal => "the other side failed by its own fault: its log says more",
            Self::Unsupported => "the other side does not support what was asked of it",
            Self::ConnectionLost => "the QUIC connection that carried the flow was lost",
            Self::Revoked => {
                "the server's rules were changed and no longer let this client reach the target"
            }
        })
    }
}

/// Why a connection was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CloseCode {
    /// No longer needed.
    Done,
    /// The peer did what the protocol forbids.
    ProtocolViolation,
    /// The peer may not use this server.
    NotAuthorized,
    /// The sender is going away; dial again later or elsewhere.
    Shutdown,
    /// The server serves as many connections as it may.
    TooManyConnections,
    /// The server knew the peer once and no longer does.
    Revoked,
}

impl CloseCode {
    /// Every code, in numerical order.
    pub const ALL: [Self; 6] = [
        Self::Done,
        Self::ProtocolViolation,
        Self::NotAuthorized,
        Self::Shutdown,
        Self::TooManyConnections,
        Self::Revoked,
    ];

    /// The number on the wire.
    pub fn to_u64(self) -> u64 {
        match self {
            Self::Done => 0x00,
            Self::ProtocolViolation => 0x01,
            Self::NotAuthorized => 0x02,
            Self::Shutdown => 0x03,
            Self::TooManyConnections => 0x04,
            Self::Revoked => 0x05,
        }
    }

    /// The code with this number; `None` for a number that is not assigned.
    pub fn from_u64(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.to_u64() == number)
    }

    /// Short `snake_case` name for metric labels and logs.
    pub fn label(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::ProtocolViolation => "protocol_violation",
            Self::NotAuthorized => "not_authorized",
            Self::Shutdown => "shutdown",
            Self::TooManyConnections => "too_many_connections",
            Self::Revoked => "revoked",
        }
    }
}

impl fmt::Display for CloseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Done => "the other side no longer needs the connection",
            Self::ProtocolViolation => "the other side says that we broke the protocol",
            Self::NotAuthorized => {
                "the server does not let this client in: no accepted key, certificate or secret"
            }
            Self::Shutdown => "the other side is shutting down",
            Self::TooManyConnections => "the server serves as many connections as it may",
            Self::Revoked => {
                "the server's configuration was changed and no longer lets this client in"
            }
        })
    }
}

#[cfg(test)]
mod tests;
