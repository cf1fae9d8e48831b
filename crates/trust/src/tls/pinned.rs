//! Verifies a server by its public key: names, dates and issuers are ignored, and the handshake signature is checked.

use std::sync::Arc;

use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, Error, OtherError};
use thiserror::Error;

use super::signatures::signature_checks;
use crate::identity::pin_of;
use crate::settings::Pin;

/// The server's key is not one of the pinned keys. It is another server, the server has a new key, or there is an
/// attack.
#[derive(Clone, PartialEq, Eq, Error)]
#[error(
    "the server's key is {found}, which is not pinned: compare it with what the server prints when it starts, and pin it only if they are equal"
)]
pub struct PinMismatch {
    /// The pin of the key that the server has shown.
    pub found: Pin,
}

/// Prints the message for users, because TLS and QUIC pass on only a verifier error's debug text.
impl std::fmt::Debug for PinMismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

#[derive(Debug)]
pub(super) struct PinnedServer {
    pub(super) pins: Vec<Pin>,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for PinnedServer {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found = pin_of(end_entity).map_err(|_| CertificateError::BadEncoding)?;
        if !self.pins.contains(&found) {
            return Err(
                CertificateError::Other(OtherError(Arc::new(PinMismatch { found }))).into(),
            );
        }
        Ok(ServerCertVerified::assertion())
    }

    signature_checks!();
}
