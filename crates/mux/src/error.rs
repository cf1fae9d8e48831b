//! Reasons for the end of a connection, with the codes of RFC 9000 section 20.1.

use std::fmt;

use bytes::Bytes;

/// An error code of the transport (RFC 9000 section 20.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportCode(pub u64);

impl TransportCode {
    /// The peer has sent more than it has credit for.
    pub const FLOW_CONTROL_ERROR: Self = Self(0x3);
    /// The peer has opened more streams than it may.
    pub const STREAM_LIMIT_ERROR: Self = Self(0x4);
    /// The state of the stream does not permit the frame.
    pub const STREAM_STATE_ERROR: Self = Self(0x5);
    /// The length of a stream has changed after its end.
    pub const FINAL_SIZE_ERROR: Self = Self(0x6);
    /// A frame is malformed, unknown or prohibited.
    pub const FRAME_ENCODING_ERROR: Self = Self(0x7);
    /// A transport parameter is malformed, prohibited or out of range.
    pub const TRANSPORT_PARAMETER_ERROR: Self = Self(0x8);
    /// The peer has broken a rule that has no code of its own.
    pub const PROTOCOL_VIOLATION: Self = Self(0xa);
}

impl fmt::Display for TransportCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            Self::FLOW_CONTROL_ERROR => "FLOW_CONTROL_ERROR",
            Self::STREAM_LIMIT_ERROR => "STREAM_LIMIT_ERROR",
            Self::STREAM_STATE_ERROR => "STREAM_STATE_ERROR",
            Self::FINAL_SIZE_ERROR => "FINAL_SIZE_ERROR",
            Self::FRAME_ENCODING_ERROR => "FRAME_ENCODING_ERROR",
            Self::TRANSPORT_PARAMETER_ERROR => "TRANSPORT_PARAMETER_ERROR",
            Self::PROTOCOL_VIOLATION => "PROTOCOL_VIOLATION",
            Self(code) => return write!(f, "code {code:#x}"),
        };
        f.write_str(name)
    }
}

/// A rule of the protocol that the peer has broken. The connection closes with its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{rule} ({code})")]
pub struct Violation {
    /// The code that the peer receives.
    pub code: TransportCode,
    /// The broken rule, in words.
    pub rule: &'static str,
}

impl Violation {
    pub(crate) const fn new(code: TransportCode, rule: &'static str) -> Self {
        Self { code, rule }
    }

    pub(crate) const fn encoding(rule: &'static str) -> Self {
        Self::new(TransportCode::FRAME_ENCODING_ERROR, rule)
    }

    pub(crate) const fn protocol(rule: &'static str) -> Self {
        Self::new(TransportCode::PROTOCOL_VIOLATION, rule)
    }
}

/// The reason why the peer, or its behaviour, has ended the connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The peer's application has closed the connection.
    #[error("closed by the peer's application with code {code:#x}")]
    ClosedByPeer {
        /// The code, whose meaning the application defines.
        code: u64,
        /// The peer's words, which need not be text.
        reason: Bytes,
    },
    /// The peer reports an error of the protocol.
    #[error("the peer reports an error: {code}")]
    ReportedByPeer {
        /// The code of the error.
        code: TransportCode,
        /// The peer's words, which need not be text.
        reason: Bytes,
    },
    /// The peer has broken the protocol.
    #[error("the peer broke the protocol: {0}")]
    Violation(#[from] Violation),
}

/// The reason why a datagram was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatagramError {
    /// The peer takes no datagrams, or the connection is not established.
    #[error("the peer takes no datagrams")]
    Unsupported,
    /// The datagram is longer than [`Mux::max_datagram`](crate::Mux::max_datagram).
    #[error("the datagram is longer than {0} bytes")]
    TooLong(usize),
    /// The queue of datagrams is full.
    #[error("the queue of datagrams is full")]
    QueueFull,
}
