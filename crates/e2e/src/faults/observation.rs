//! The data that one application received, and how the connection ended.

use std::fmt;
use std::io;

/// The end of the data sent to an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataEnd {
    /// Every byte and the FIN arrived.
    Whole,
    /// The connection was reset (ECONNRESET).
    Reset {
        /// Bytes received before the reset.
        bytes: u64,
    },
    /// A clean end arrived although bytes are missing.
    Ended {
        /// Bytes received before the end.
        bytes: u64,
    },
    /// No more data arrived before the timeout.
    Open {
        /// Bytes received before the timeout.
        bytes: u64,
    },
    /// The connection was refused (ECONNREFUSED).
    Refused,
    /// No connection reached the application.
    Unreached,
    /// Bytes that were not sent, or an unexpected error.
    Wrong(String),
}

/// Everything that an application saw of its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The end of the data sent to the application.
    pub seen: DataEnd,
    /// The number of bytes that it should receive.
    pub expected: u64,
    /// True if a write failed because the connection was gone.
    pub sending_failed: bool,
}

impl Observation {
    /// Returns the outcome of an application that no connection reached.
    pub(crate) fn unreached(expected: u64) -> Self {
        Self {
            seen: DataEnd::Unreached,
            expected,
            sending_failed: false,
        }
    }
}

impl Observation {
    /// Returns the outcome of an application that could not connect.
    pub(crate) fn not_connected(expected: u64, error: &anyhow::Error) -> Self {
        Self {
            seen: DataEnd::failed(error, 0),
            ..Self::unreached(expected)
        }
    }

    /// Returns true if every byte and the FIN arrived.
    pub fn is_whole(&self) -> bool {
        self.seen == DataEnd::Whole
    }
}

impl DataEnd {
    /// Interprets the error of a read after `bytes` bytes.
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

impl fmt::Display for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expected = self.expected;
        match &self.seen {
            DataEnd::Whole if self.sending_failed => write!(f, "whole; its sending was reset"),
            DataEnd::Whole => write!(f, "whole"),
            DataEnd::Reset { bytes } => write!(f, "reset after {bytes} of {expected} bytes"),
            DataEnd::Ended { bytes } => write!(f, "clean end after {bytes} of {expected} bytes"),
            DataEnd::Open { bytes } => write!(f, "still open after {bytes} of {expected} bytes"),
            DataEnd::Refused => write!(f, "refused"),
            DataEnd::Unreached => write!(f, "never connected to"),
            DataEnd::Wrong(what) => write!(f, "wrong: {what}"),
        }
    }
}
