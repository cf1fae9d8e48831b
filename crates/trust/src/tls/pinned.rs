//! A server known by its public key: names, dates and issuers say nothing, the handshake signature all.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme};
use thiserror::Error;

use crate::identity::pin_of;
use crate::settings::Pin;

/// The server has another key than the ones pinned: another server, a new key, or an attack.
#[derive(Clone, PartialEq, Eq, Error)]
#[error(
    "the server's key is {found}, which is not pinned: compare it with what the server prints when it starts, and pin it only if they are equal"
)]
pub struct PinMismatch {
    /// The key that the server showed.
    pub found: Pin,
}

/// For people as well: TLS and QUIC hand a verifier's error on as its debug text only.
impl std::fmt::Debug for PinMismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

#[derive(Debug)]
pub(super) struct PinnedServer {
    pins: Vec<Pin>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl PinnedServer {
    pub(super) fn new(pins: Vec<Pin>, provider: &CryptoProvider) -> Self {
        Self {
            pins,
            algorithms: provider.signature_verification_algorithms,
        }
    }
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

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
