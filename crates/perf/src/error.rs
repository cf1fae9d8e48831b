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
    #[error("cannot listen on {0}")]
    Listen(SocketAddr, #[source] io::Error),
    /// The server does not answer.
    #[error("cannot connect to {0}")]
    Connect(SocketAddr, #[source] io::Error),
    /// Something answers, but not what was expected.
    #[error("what answers at {0} is no `quictun perf server` of this version")]
    Stranger(SocketAddr),
    /// The server will not, in its words.
    #[error("the server refuses: {0}")]
    Refused(String),
    /// The server failed, in its words.
    #[error("at the server: {0}")]
    Far(String),
    /// The connection over which client and server agree broke.
    #[error("the control connection to the server broke")]
    Control(#[source] io::Error),
    /// The kernel has no such congestion control, or does not give it to everybody; what there is comes second.
    #[error("the kernel does not give congestion control {0:?} to this program; it has: {1}")]
    Congestion(String, String),
    /// QUIC has no such congestion control here.
    #[error(
        "QUIC has no congestion control {0:?} here: choose auto, cubic, newreno, background or fixed:RATE, \
         100kbit or more"
    )]
    QuicCongestion(String),
    /// A byte, counted from the flow's first, is not what was sent.
    #[error("the payload was corrupted: byte {0} of a flow is not what was sent")]
    Corrupt(u64),
    /// The other end closed a flow that was not done.
    #[error("a flow ended before it was done")]
    Cut,
    /// Nothing moved any more for so many seconds.
    #[error("nothing has moved for {0} s: the path is dead, or something in it")]
    Stalled(u64),
    /// Something else, with what was being done.
    #[error("{0}")]
    Io(&'static str, #[source] io::Error),
    /// No TLS configuration.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// No key.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The QUIC connection could not be made, or broke.
    #[error("QUIC: {0}")]
    Quic(#[from] LossReason),
    /// A message of so many bytes does not fit a datagram, which has room for so many.
    #[error("{0} bytes do not fit one datagram of this path, {1} do: make --rr smaller")]
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
            Self::io("on a flow")(error)
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
