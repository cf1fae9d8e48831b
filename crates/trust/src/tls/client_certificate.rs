//! Verifies client certificates. Their key must sign the handshake. A chain that is too long is refused before any
//! certificate of it is read.

use std::sync::Arc;

use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DistinguishedName, Error};

use webpki::EndEntityCert;

use super::signatures::signature_checks;
use crate::identity::pin_of;
use crate::settings::Pin;

/// Limit for the certificates of a chain. A chain has a client's certificate and one or two of intermediate authorities.
/// Each certificate costs the TLS library memory in addition to its bytes, which the engine limits.
const CHAIN_MAX: usize = 8;

/// Accepts clients that hold the key of an accepted certificate.
#[derive(Debug)]
pub(super) struct ClientCertificate {
    pub(super) accepted: AcceptedCertificates,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
}

/// Each kind except `Required` also accepts clients without a certificate.
#[derive(Debug)]
pub(super) enum AcceptedCertificates {
    /// Accepts every certificate: access control judges the key later.
    Any,
    /// Accepts certificates that these authorities accept.
    Required(Arc<dyn ClientCertVerifier>),
    /// Accepts certificates that `authorities` accepts, certificates with one of these keys, and self-issued ones. A
    /// self-issued certificate shows only its key, by which an invited client can join.
    Known {
        authorities: Arc<dyn ClientCertVerifier>,
        pins: Vec<Pin>,
    },
}

impl ClientCertVerifier for ClientCertificate {
    fn client_auth_mandatory(&self) -> bool {
        matches!(self.accepted, AcceptedCertificates::Required(_))
    }

    /// Returns hints only if every certificate must be from an authority: with hints, a client would withhold a
    /// self-signed certificate that no hinted authority has signed.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        match &self.accepted {
            AcceptedCertificates::Required(authorities) => authorities.root_hint_subjects(),
            AcceptedCertificates::Any | AcceptedCertificates::Known { .. } => &[],
        }
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if intermediates.len() >= CHAIN_MAX {
            let count = intermediates.len() + 1;
            return Err(Error::General(format!(
                "the client's chain has {count} certificates, more than {CHAIN_MAX}"
            )));
        }
        let found = || pin_of(end_entity).map_err(|_| CertificateError::BadEncoding);
        match &self.accepted {
            AcceptedCertificates::Any => {
                found()?;
                Ok(ClientCertVerified::assertion())
            }
            AcceptedCertificates::Required(authorities) => {
                authorities.verify_client_cert(end_entity, intermediates, now)
            }
            AcceptedCertificates::Known { authorities, pins } => {
                if pins.contains(&found()?) {
                    return Ok(ClientCertVerified::assertion());
                }
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

#[cfg(test)]
mod tests {
    use rustls::crypto::aws_lc_rs;

    use super::*;
    use crate::identity;

    // PROTOCOL AUTH-10: at the limit, and one above it.
    #[test]
    fn a_chain_of_more_than_eight_certificates_is_refused() {
        let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
        let verifier = ClientCertificate {
            accepted: AcceptedCertificates::Any,
            algorithms,
        };
        let own = identity::ephemeral().expect("a key").chain.remove(0);
        let verify = |more: usize| {
            let intermediates = vec![own.clone(); more];
            let verified = verifier.verify_client_cert(&own, &intermediates, UnixTime::now());
            verified.map(|_| ())
        };
        assert_eq!(verify(CHAIN_MAX - 1), Ok(()));
        let error = verify(CHAIN_MAX).expect_err("one more");
        assert!(error.to_string().contains("has 9 certificates"), "{error}");
    }
}
