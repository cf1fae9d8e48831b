//! Translates the ends of TLS, QMux and TCP connections to causes.

use std::io;

use quictun_mux as mux;
use quictun_tls::TlsError;

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

pub(super) fn of_tcp(error: &io::Error) -> LossReason {
    LossReason::Tcp(error.to_string())
}

fn with_source(error: &TlsError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
