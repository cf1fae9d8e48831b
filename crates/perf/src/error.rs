//! Why there is no measurement, or none that counts.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use quictun_engine::LossReason;
use quictun_trust::identity::IdentityError;
use quictun_trust::tls::TlsError;

use crate::plan::PlanError;

/// Why a measurement failed. Each message says what to do where that is known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PerfError {
    /// The plan cannot be done.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The address is taken, or not this machine's.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// Nobody answers there.
    #[error("cannot connect to {address}")]
    Connect {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// Something answers, but not what was expected.
    #[error("what answers at {address} is no `quictun perf server` of this version")]
    Stranger {
        /// The address.
        address: SocketAddr,
    },
    /// The server will not.
    #[error("the server refuses: {why}")]
    Refused {
        /// In its words.
        why: String,
    },
    /// The server failed.
    #[error("at the server: {why}")]
    Far {
        /// In its words.
        why: String,
    },
    /// The connection over which client and server agree broke.
    #[error("the control connection to the server broke")]
    Control(#[source] io::Error),
    /// The kernel has no such congestion control, or does not give it to everybody.
    #[error(
        "the kernel does not give congestion control {name:?} to this program; it has: {available}"
    )]
    Congestion {
        /// As asked for.
        name: String,
        /// What there is.
        available: String,
    },
    /// Neither has QUIC here.
    #[error(
        "QUIC has no congestion control {name:?} here: choose auto, cubic, newreno, background or fixed:RATE, \
         100kbit or more"
    )]
    QuicCongestion {
        /// As asked for.
        name: String,
    },
    /// A byte is not what was sent.
    #[error("the payload was corrupted: byte {offset} of a flow is not what was sent")]
    Corrupt {
        /// Counted from the flow's first.
        offset: u64,
    },
    /// The other end closed a flow that was not done.
    #[error("a flow ended before it was done")]
    Cut,
    /// Nothing moved any more.
    #[error("nothing has moved for {seconds} s: the path is dead, or something in it")]
    Stalled {
        /// For how long.
        seconds: u64,
    },
    /// Something else on a flow's socket.
    #[error("{what}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// No TLS configuration.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// No key.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The QUIC connection could not be made, or broke.
    #[error("QUIC: {0}")]
    Quic(#[from] LossReason),
    /// A message does not fit a datagram.
    #[error("{size} bytes do not fit one datagram of this path, {room} do: make --rr smaller")]
    Datagram {
        /// As asked for.
        size: u64,
        /// What fits.
        room: u64,
    },
}

impl PerfError {
    /// For `map_err`.
    pub(crate) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, source }
    }

    /// What a broken flow means.
    pub(crate) fn flow(error: io::Error) -> Self {
        if is_closed(&error) || error.kind() == ErrorKind::Interrupted {
            Self::Cut
        } else {
            Self::io("on a flow")(error)
        }
    }
}

/// An error and its causes in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}

/// Whether the other end has closed: what it does when it has seen enough.
pub(crate) fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset
            | ErrorKind::BrokenPipe
            | ErrorKind::ConnectionAborted
            | ErrorKind::UnexpectedEof
            | ErrorKind::NotConnected
    )
}
