//! Refuses long chains of client certificates before it looks at any certificate.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

/// Limit for the certificates of a chain. A chain has a client's certificate and one or two of intermediate authorities.
/// Each certificate costs the TLS library memory in addition to its bytes, which the engine limits.
const CHAIN_MAX: usize = 8;

/// A verifier that judges short chains as another one does.
#[derive(Debug)]
pub(super) struct ShortChain(pub(super) Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for ShortChain {
    fn offer_client_auth(&self) -> bool {
        self.0.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.0.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
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
        self.0.verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity;
    use crate::tls::client_certificate::{AcceptedCertificates, OptionalCertificate};

    // PROTOCOL AUTH-10: at the limit, and one above it.
    #[test]
    fn a_chain_of_more_than_eight_certificates_is_refused() {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let any = OptionalCertificate::new(AcceptedCertificates::Any, &provider);
        let verifier = ShortChain(Arc::new(any));
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
