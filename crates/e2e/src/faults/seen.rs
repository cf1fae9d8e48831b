//! What one application saw of what it was sent.

use std::fmt;
use std::io;

/// How what it was sent came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Every byte and the end.
    Whole,
    /// ECONNRESET.
    Reset {
        /// Before it.
        bytes: u64,
    },
    /// An end like any other, and bytes are missing.
    Ended {
        /// Before it.
        bytes: u64,
    },
    /// Nothing more came in all the time there was.
    Open {
        /// Until then.
        bytes: u64,
    },
    /// ECONNREFUSED.
    Refused,
    /// It was never connected to.
    Unreached,
    /// Bytes that nobody sent, or an error that nobody expects.
    Wrong(String),
}

/// What an application saw, all in all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Of what it was sent.
    pub seen: Seen,
    /// How many bytes those were to be.
    pub expected: u64,
    /// Whether it was told, while it sent, that the connection is gone.
    pub sending_failed: bool,
}

impl Outcome {
    /// Of an application that nobody connects to.
    pub(crate) fn unreached(expected: u64) -> Self {
        Self {
            seen: Seen::Unreached,
            expected,
            sending_failed: false,
        }
    }
}

impl Outcome {
    /// Of one that could not connect.
    pub(crate) fn not_connected(expected: u64, error: &anyhow::Error) -> Self {
        Self {
            seen: Seen::failed(error, 0),
            ..Self::unreached(expected)
        }
    }

    /// Whether every byte and the end arrived.
    pub fn is_whole(&self) -> bool {
        self.seen == Seen::Whole
    }
}

impl Seen {
    /// What a failed read means after so many bytes.
    pub(crate) fn failed(error: &anyhow::Error, bytes: u64) -> Self {
        match error.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted) => {
                Self::Reset { bytes }
            }
            Some(io::ErrorKind::ConnectionRefused) => Self::Refused,
            Some(io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => Self::Open { bytes },
            _ => Self::Wrong(format!("{error:#}")),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expected = self.expected;
        match &self.seen {
            Seen::Whole if self.sending_failed => write!(f, "whole; its sending was reset"),
            Seen::Whole => write!(f, "whole"),
            Seen::Reset { bytes } => write!(f, "reset after {bytes} of {expected} bytes"),
            Seen::Ended { bytes } => write!(f, "clean end after {bytes} of {expected} bytes"),
            Seen::Open { bytes } => write!(f, "still open after {bytes} of {expected} bytes"),
            Seen::Refused => write!(f, "refused"),
            Seen::Unreached => write!(f, "never connected to"),
            Seen::Wrong(what) => write!(f, "wrong: {what}"),
        }
    }
}
