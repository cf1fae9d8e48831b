//! Translates the ends of TLS, QMux and TCP connections to causes.

use std::io;

use quictun_http2::{self as http2, ErrorCode};
use quictun_mux as mux;
use quictun_tls::TlsError;
use quictun_wire::code::{CloseCode, FlowCode};

use crate::loss::{LossReason, ProtocolError};

/// QUIC's first error code for a TLS alert (RFC 9001 section 4.8). The low byte is the alert.
const CRYPTO_ERROR: u64 = 0x100;

pub(super) fn of_tls(error: &TlsError) -> LossReason {
    match error {
        TlsError::PeerAlert(alert) => {
            let code = CRYPTO_ERROR + u64::from(u8::from(*alert));
            ProtocolError::by_peer(code, error.to_string()).into()
        }
        other => ProtocolError::here(with_source(other)).into(),
    }
}

pub(super) fn of_mux(error: &mux::Error) -> LossReason {
    match error {
        mux::Error::ClosedByPeer { code, .. } => LossReason::of_close(*code),
        mux::Error::ReportedByPeer { code, .. } => {
            ProtocolError::by_peer(code.0, error.to_string()).into()
        }
        mux::Error::Violation(_) => ProtocolError::here(error.to_string()).into(),
    }
}

pub(super) fn of_http2(end: http2::End) -> LossReason {
    match end {
        http2::End::Violation(_) => {
            ProtocolError::here("the program broke HTTP/2: ".to_owned() + &end.to_string()).into()
        }
        http2::End::Done => LossReason::of_close(CloseCode::Done.to_u64()),
    }
}

/// Returns the code of HTTP/2 for the end of a flow. A program can only tell a target's reset from other reasons.
pub(super) fn of_flow(code: FlowCode) -> ErrorCode {
    match code {
        FlowCode::Internal => ErrorCode::INTERNAL_ERROR,
        FlowCode::Revoked | FlowCode::Quota | FlowCode::Limit | FlowCode::ShuttingDown => {
            ErrorCode::CANCEL
        }
        _ => ErrorCode::CONNECT_ERROR,
    }
}

/// Returns the code of HTTP/2 for the end of a connection.
pub(super) fn of_close(code: CloseCode) -> ErrorCode {
    match code {
        CloseCode::ProtocolViolation => ErrorCode::PROTOCOL_ERROR,
        CloseCode::TooManyConnections => ErrorCode::ENHANCE_YOUR_CALM,
        _ => ErrorCode::NO_ERROR,
    }
}

pub(super) fn of_tcp(error: &io::Error) -> LossReason {
    LossReason::Tcp(error.to_string())
}

fn with_source(error: &TlsError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
