//! Verifies client certificates on a server with named clients. A certificate is requested but optional, and its key
//! must sign the handshake.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DistinguishedName, Error};

use webpki::EndEntityCert;

use super::signatures::signature_checks;
use crate::identity::pin_of;
use crate::settings::Pin;

/// Accepts clients without a certificate, and clients that hold the key of an accepted certificate.
#[derive(Debug)]
pub(super) struct OptionalCertificate {
    accepted: AcceptedCertificates,
    algorithms: WebPkiSupportedAlgorithms,
}

#[derive(Debug)]
pub(super) enum AcceptedCertificates {
    /// Accepts every certificate: access control judges the key later.
    Any,
    /// Accepts certificates that `authorities` accepts, certificates with one of these keys, and self-issued ones. A
    /// self-issued certificate shows only its key, by which an invited client can join.
    Known {
        authorities: Arc<dyn ClientCertVerifier>,
        pins: Vec<Pin>,
    },
}

impl OptionalCertificate {
    pub(super) fn new(accepted: AcceptedCertificates, provider: &CryptoProvider) -> Self {
        Self {
            accepted,
            algorithms: provider.signature_verification_algorithms,
        }
    }
}

impl ClientCertVerifier for OptionalCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// Returns no hints: with hints, a client would withhold a self-signed certificate that no hinted authority has
    /// signed.
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
            AcceptedCertificates::Any => Ok(ClientCertVerified::assertion()),
            AcceptedCertificates::Known { pins, .. } if pins.contains(&found) => {
                Ok(ClientCertVerified::assertion())
            }
            AcceptedCertificates::Known { authorities, .. } => {
                match authorities.verify_client_cert(end_entity, intermediates, now) {
                    Err(error)
                        if error == CertificateError::UnknownIssuer.into()
                            && is_of_its_own(end_entity) =>
                    {
                        Ok(ClientCertVerified::assertion())
                    }
                    other => other,
                }
            }
        }
    }

    signature_checks!();
}

/// Returns true if the certificate names its own subject as its issuer.
fn is_of_its_own(certificate: &CertificateDer<'_>) -> bool {
    EndEntityCert::try_from(certificate).is_ok_and(|parsed| parsed.issuer() == parsed.subject())
}
