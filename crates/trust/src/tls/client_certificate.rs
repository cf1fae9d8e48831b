//! Client certificates on a server that names its clients: asked for, optional, key possession proven.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use crate::identity::pin_of;
use crate::settings::Pin;

/// Accepts clients without a certificate, and certificates whose key the client holds.
#[derive(Debug)]
pub(super) struct OptionalCertificate {
    accepted: Accepted,
    algorithms: WebPkiSupportedAlgorithms,
}

#[derive(Debug)]
enum Accepted {
    Any,
    Known {
        authorities: Arc<dyn ClientCertVerifier>,
        pins: Vec<Pin>,
    },
}

impl OptionalCertificate {
    /// Accepts every certificate; access control looks at the key.
    pub(super) fn any(provider: &CryptoProvider) -> Self {
        Self {
            accepted: Accepted::Any,
            algorithms: provider.signature_verification_algorithms,
        }
    }

    /// Accepts certificates that `authorities` accepts, and any with one of these keys.
    pub(super) fn known(
        authorities: Arc<dyn ClientCertVerifier>,
        pins: Vec<Pin>,
        provider: &CryptoProvider,
    ) -> Self {
        Self {
            accepted: Accepted::Known { authorities, pins },
            algorithms: provider.signature_verification_algorithms,
        }
    }
}

impl ClientCertVerifier for OptionalCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// None: a client would keep back a self-signed certificate that no hinted authority signed.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let found = pin_of(end_entity).map_err(|_| CertificateError::BadEncoding)?;
        match &self.accepted {
            Accepted::Any => Ok(ClientCertVerified::assertion()),
            Accepted::Known { pins, .. } if pins.contains(&found) => {
                Ok(ClientCertVerified::assertion())
            }
            Accepted::Known { authorities, .. } => {
                authorities.verify_client_cert(end_entity, intermediates, now)
            }
        }
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
