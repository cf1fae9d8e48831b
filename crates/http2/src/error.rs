//! Reasons for the end of streams and connections, with the codes of RFC 9113 section 7.

use std::fmt;

/// An error code of HTTP/2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorCode(pub u32);

impl ErrorCode {
    /// There is no error.
    pub const NO_ERROR: Self = Self(0x0);
    /// The peer has broken a rule that has no code of its own.
    pub const PROTOCOL_ERROR: Self = Self(0x1);
    /// This side has failed.
    pub const INTERNAL_ERROR: Self = Self(0x2);
    /// The peer has sent more than it has credit for.
    pub const FLOW_CONTROL_ERROR: Self = Self(0x3);
    /// A frame follows the end of its stream.
    pub const STREAM_CLOSED: Self = Self(0x5);
    /// A frame has a length that it may not have.
    pub const FRAME_SIZE_ERROR: Self = Self(0x6);
    /// Nothing was done for the stream.
    pub const REFUSED_STREAM: Self = Self(0x7);
    /// The stream is no longer wanted.
    pub const CANCEL: Self = Self(0x8);
    /// The fields of a block cannot be decoded.
    pub const COMPRESSION_ERROR: Self = Self(0x9);
    /// The TCP connection of a CONNECT request was reset.
    pub const CONNECT_ERROR: Self = Self(0xa);
    /// The peer makes too much work.
    pub const ENHANCE_YOUR_CALM: Self = Self(0xb);
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            Self::NO_ERROR => "NO_ERROR",
            Self::PROTOCOL_ERROR => "PROTOCOL_ERROR",
            Self::INTERNAL_ERROR => "INTERNAL_ERROR",
            Self::FLOW_CONTROL_ERROR => "FLOW_CONTROL_ERROR",
            Self::STREAM_CLOSED => "STREAM_CLOSED",
            Self::FRAME_SIZE_ERROR => "FRAME_SIZE_ERROR",
            Self::REFUSED_STREAM => "REFUSED_STREAM",
            Self::CANCEL => "CANCEL",
            Self::COMPRESSION_ERROR => "COMPRESSION_ERROR",
            Self::CONNECT_ERROR => "CONNECT_ERROR",
            Self::ENHANCE_YOUR_CALM => "ENHANCE_YOUR_CALM",
            Self(code) => return write!(f, "code {code:#x}"),
        };
        f.write_str(name)
    }
}

/// A rule of the protocol that the peer has broken. The connection ends with its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{rule} ({code})")]
pub struct BrokenRule {
    /// The code that the peer receives.
    pub code: ErrorCode,
    /// The broken rule, in words.
    pub rule: &'static str,
}

impl BrokenRule {
    pub(crate) const fn new(code: ErrorCode, rule: &'static str) -> Self {
        Self { code, rule }
    }

    pub(crate) const fn protocol(rule: &'static str) -> Self {
        Self::new(ErrorCode::PROTOCOL_ERROR, rule)
    }

    pub(crate) const fn calm(rule: &'static str) -> Self {
        Self::new(ErrorCode::ENHANCE_YOUR_CALM, rule)
    }
}
