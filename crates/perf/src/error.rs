//! The errors of a measurement.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use quictun_engine::LossReason;
use quictun_trust::identity::IdentityError;
use quictun_trust::tls::TlsError;

use crate::plan::PlanError;

/// The reason for which a measurement failed. The message says what to do if that is known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PerfError {
    /// The plan is not possible.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The address is taken, or does not belong to this machine.
    #[error("cannot listen on {0}")]
    Listen(SocketAddr, #[source] io::Error),
    /// The server does not answer.
    #[error("cannot connect to {0}")]
    Connect(SocketAddr, #[source] io::Error),
    /// A service answers, but not with this protocol.
    #[error("the service at {0} is not a `quictun perf server` of this version")]
    Stranger(SocketAddr),
    /// The server refused the plan, with its message.
    #[error("the server refuses: {0}")]
    Refused(String),
    /// The server failed, with its message.
    #[error("the server failed: {0}")]
    Far(String),
    /// The control connection between client and server broke.
    #[error("the control connection to the server broke")]
    Control(#[source] io::Error),
    /// The kernel does not have this congestion control, or does not offer it to unprivileged programs. The second
    /// value lists the available ones.
    #[error("the kernel does not offer congestion control {0:?} to this program; it offers: {1}")]
    Congestion(String, String),
    /// The QUIC implementation does not have this congestion control.
    #[error(
        "QUIC has no congestion control {0:?} here: choose auto, cubic, newreno, background or fixed:RATE, \
         100kbit or more"
    )]
    QuicCongestion(String),
    /// A byte of a flow differs from the one sent. Offsets count from the flow's first byte.
    #[error("the payload was corrupted: byte {0} of a flow differs from the byte sent")]
    Corrupt(u64),
    /// The other end closed a flow that was not done.
    #[error("a flow ended before it was done")]
    Cut,
    /// No data moved for this many seconds.
    #[error("no data moved for {0} s: the path or one of its ends is dead")]
    Stalled(u64),
    /// A system call failed; the text names the action.
    #[error("{0}")]
    Io(&'static str, #[source] io::Error),
    /// The TLS configuration could not be built.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The server's key could not be created.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The QUIC connection could not be made, or broke.
    #[error("QUIC: {0}")]
    Quic(#[from] LossReason),
    /// A message does not fit into one datagram: its length, and the room in a datagram, in bytes.
    #[error("{0} bytes do not fit into one datagram on this path, but {1} do: make --rr smaller")]
    Datagram(u64, u64),
}

impl PerfError {
    pub(crate) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io(what, source)
    }

    pub(crate) fn flow(error: io::Error) -> Self {
        if is_closed(&error) || error.kind() == ErrorKind::Interrupted {
            Self::Cut
        } else {
            Self::io("a flow failed")(error)
        }
    }
}

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

/// Returns whether the error means that the other end closed, which it does once it has seen enough.
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
