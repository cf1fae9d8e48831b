//! Error codes on the wire (PROTOCOL section 6).
//!
//! [`FlowCode`] ends one flow, in `RESET_STREAM` and `STOP_SENDING`. [`CloseCode`] ends a connection, in
//! `CONNECTION_CLOSE` of type 0x1d. [`ListenCode`] refuses or ends a listener, in `LISTEN_ACK`. Numbers are never
//! reused. An unlisted code (from a newer peer or the original) still resets; only the reason is unknown.

use std::fmt;

use crate::ack::Ack;

/// Defines an enum of codes, each with its number, label and sentence, in numerical order.
macro_rules! codes {
    ($(#[$meta:meta])* $name:ident { $($code:ident = $number:literal, $label:literal, $text:literal;)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $(#[doc = $text] $code,)+
        }

        impl $name {
            /// All codes, in numerical order.
            pub const ALL: [Self; [$($number),+].len()] = [$(Self::$code),+];

            /// Returns the number on the wire.
            pub fn to_u64(self) -> u64 {
                match self {
                    $(Self::$code => $number,)+
                }
            }

            /// Returns the code with this number, or `None` if the number is not assigned.
            pub fn from_u64(number: u64) -> Option<Self> {
                Self::ALL.into_iter().find(|code| code.to_u64() == number)
            }

            /// Returns the short `snake_case` name for metric labels and logs.
            pub fn label(self) -> &'static str {
                match self {
                    $(Self::$code => $label,)+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$code => $text,)+
                })
            }
        }
    };
}

codes! {
    /// The reason why a flow was reset.
    FlowCode {
        AppReset = 0x01, "app_reset", "the application on the other side reset its connection";
        BadOpen = 0x02, "bad_open", "the request to open the flow was malformed or names no target";
        Unreachable = 0x03, "unreachable", "the server cannot reach the target: no route to its host or network";
        Denied = 0x04, "denied", "the server's rules do not let this client reach the target";
        Unauthenticated = 0x05, "unauthenticated",
            "the server does not know this client: no accepted key, certificate or secret";
        DialTimeout = 0x06, "dial_timeout", "the target did not answer the server in time";
        Refused = 0x07, "refused", "the target refused the server's connection: nothing listens there";
        Limit = 0x08, "limit", "the other side has reached a limit and takes no more flows for now";
        ShuttingDown = 0x09, "shutting_down", "the other side is shutting down";
        NameNotFound = 0x0a, "name_not_found", "the server cannot resolve the target's name";
        Internal = 0x0b, "internal", "the other side failed by its own fault: its log says more";
        Unsupported = 0x0c, "unsupported", "the other side does not support the request";
        ConnectionLost = 0x0d, "connection_lost", "the connection that carried the flow was lost";
        NoBond = 0x0e, "no_bond", "the other side no longer knows the bond: it was restarted, or was away for too long";
        NoFlow = 0x0f, "no_flow", "the other side has no such flow any more";
        Moved = 0x10, "moved", "the flow continues on another connection";
        TooOld = 0x11, "too_old", "the other side no longer keeps the bytes that are missing";
        Revoked = 0x12, "revoked", "the server's rules were changed and no longer let this client reach the target";
        Quota = 0x13, "quota", "this client has used up its quota of bytes for this month";
    }
}

codes! {
    /// The reason why a connection was closed.
    CloseCode {
        Done = 0x00, "done", "the other side no longer needs the connection";
        ProtocolViolation = 0x01, "protocol_violation", "the other side reports that this side broke the protocol";
        NotAuthorized = 0x02, "not_authorized",
            "the server does not accept this client: no accepted key, certificate or secret";
        Shutdown = 0x03, "shutdown", "the other side is shutting down";
        TooManyConnections = 0x04, "too_many_connections", "the server has reached its largest number of connections";
        Revoked = 0x05, "revoked", "the server's configuration was changed and no longer accepts this client";
        Expired = 0x06, "expired", "this client's access to the server has expired";
        NotStored = 0x07, "not_stored", "the server cannot store this client's key: its disk is full, read-only or failing";
    }
}

codes! {
    /// The reason why a server does not listen for a client, or stopped listening (PROTOCOL section 6.3).
    ListenCode {
        BadAddress = 0x01, "bad_address", "the server cannot listen on this address";
        NotAllowed = 0x02, "not_allowed", "the server's rules do not let this client listen there";
        InUse = 0x03, "in_use", "another client or program listens there";
        TooMany = 0x04, "too_many", "the server has its largest number of listeners for this client";
        Taken = 0x05, "taken", "another process with this client's key has the listener";
        Failed = 0x06, "failed", "the server's system does not let it listen there: the server's log says more";
        Revoked = 0x07, "revoked", "the server's rules were changed and no longer let this client listen there";
        ShuttingDown = 0x08, "shutting_down", "the server is shutting down";
    }
}

impl FlowCode {
    /// Returns the number to send to a peer. A peer that can receive a code has not lost the connection, so
    /// [`FlowCode::ConnectionLost`] becomes [`FlowCode::AppReset`] (PROTOCOL CODE-2).
    pub fn to_peer(self) -> u64 {
        match self {
            Self::ConnectionLost => Self::AppReset.to_u64(),
            code => code.to_u64(),
        }
    }

    /// Returns the server's answer in the `quic-tun` protocol, which distinguishes only two failures.
    pub fn compat_ack(self) -> Ack {
        match self {
            Self::BadOpen | Self::Unsupported => Ack::CannotParseToken,
            _ => Ack::CannotReachApplication,
        }
    }
}

#[cfg(test)]
mod tests;
