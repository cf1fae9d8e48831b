//! Certificates that programs without quictun trust: read from files, or issued by an authority while the server runs.
//!
//! Each certificate is checked before a handshake presents it. A certificate that programs would refuse never replaces one
//! that they accept.

mod dates;
mod fields;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use rcgen::{
    CertificateParams, CustomExtension, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256,
};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::sign::CertifiedKey;
use thiserror::Error;
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use zeroize::Zeroizing;

pub use dates::Dates;

use crate::identity::{self, Identity, IdentityError};
use crate::settings::CertificateFiles;
use crate::tls;

/// A certificate chain with its key, ready for handshakes.
#[derive(Clone)]
pub struct PublicCertificate {
    /// The form of the TLS library.
    pub certified: Arc<CertifiedKey>,
    /// The host names in the certificate.
    pub names: Vec<String>,
    /// The time for which the certificate is valid.
    pub dates: Dates,
    /// The name by which the authority tells when to renew the certificate (RFC 9773 section 4.1), if it has one.
    pub renewal_id: Option<RenewalId>,
}

/// The parts of a certificate's name for its authority, both as in the certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenewalId {
    /// The key identifier of the authority.
    pub authority_key: Vec<u8>,
    /// The serial number of the certificate, without leading fields of DER.
    pub serial: Vec<u8>,
}

/// The reason why a certificate is not presented.
#[derive(Debug, Error)]
pub enum PublicCertificateError {
    /// The certificate or its key cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// A certificate of the chain is not issued by the next one.
    #[error("the certificates in {} are not a chain: put the server's own first, and each issuer after what it has issued (certbot: fullchain.pem)", .0.display())]
    NotAChain(PathBuf),
    /// The certificate has expired.
    #[error("the certificate in {} expired on {}: renew it", .0.display(), .1.last_day())]
    Expired(PathBuf, Dates),
    /// The certificate is not valid yet.
    #[error("the certificate in {} is not valid before {}: check this machine's clock", .0.display(), .1.first_day())]
    NotYet(PathBuf, Dates),
    /// The certificate is not for servers, or breaks a rule of certificates.
    #[error("programs would refuse the certificate in {}", .0.display())]
    Unfit(PathBuf, #[source] webpki::Error),
    /// The certificate contains no host name.
    #[error("the certificate in {} names no host: ask the authority for one with a DNS name", .0.display())]
    NoName(PathBuf),
    /// The text of the certificate or key is damaged.
    #[error("damaged PEM text")]
    Pem(#[source] pem::Error),
    /// The TLS library refuses the key.
    #[error("the TLS library refuses the key")]
    Key(#[source] rustls::Error),
}

impl PublicCertificate {
    /// Reads a certificate chain and its key, without a look at their dates.
    ///
    /// # Errors
    ///
    /// Returns the reason why no program would accept the certificate, whatever the date.
    pub fn load(files: &CertificateFiles) -> Result<Self, PublicCertificateError> {
        let identity = identity::load_files(files)?;
        Self::of(&identity, files)
    }

    /// Takes what an authority has issued for a key, both as PEM. `named` names them in errors.
    ///
    /// # Errors
    ///
    /// Returns the reason why no program would accept the certificate, whatever the date.
    pub fn from_pem(chain: &str, key: &str, named: &str) -> Result<Self, PublicCertificateError> {
        let files = CertificateFiles {
            cert: named.into(),
            key: named.into(),
        };
        let chain = CertificateDer::pem_slice_iter(chain.as_bytes());
        let chain: Vec<_> = chain
            .collect::<Result<_, _>>()
            .map_err(PublicCertificateError::Pem)?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes());
        let key = key.map_err(PublicCertificateError::Pem)?;
        let identity = identity::of_pair(chain, key, &files)?;
        Self::of(&identity, &files)
    }

    fn of(identity: &Identity, files: &CertificateFiles) -> Result<Self, PublicCertificateError> {
        let path = || files.cert.clone();
        let leaf = &identity.chain[0];
        let unfit = |cause| PublicCertificateError::Unfit(path(), cause);
        let parsed = EndEntityCert::try_from(leaf).map_err(unfit)?;
        let fields = fields::Fields::of(leaf).ok_or_else(|| unfit(webpki::Error::BadDer))?;
        let names: Vec<String> = parsed.valid_dns_names().map(str::to_owned).collect();
        if names.is_empty() {
            return Err(PublicCertificateError::NoName(path()));
        }
        check_chain(&parsed, &identity.chain[1..], &fields.dates).map_err(|cause| match cause {
            webpki::Error::UnknownIssuer | webpki::Error::InvalidSignatureForPublicKey => {
                PublicCertificateError::NotAChain(path())
            }
            cause => unfit(cause),
        })?;
        let authority_key = fields.authority_key.map(<[u8]>::to_vec);
        Ok(Self {
            certified: tls::certified(identity).map_err(PublicCertificateError::Key)?,
            names,
            dates: fields.dates,
            renewal_id: authority_key.map(|authority_key| RenewalId {
                authority_key,
                serial: fields.serial.to_vec(),
            }),
        })
    }

    /// Checks that the certificate is valid now. `files` names it in errors.
    ///
    /// # Errors
    ///
    /// Returns the date that is wrong.
    pub fn check_dates(
        &self,
        files: &CertificateFiles,
        now: SystemTime,
    ) -> Result<(), PublicCertificateError> {
        let path = files.cert.clone();
        if now > self.dates.not_after {
            return Err(PublicCertificateError::Expired(path, self.dates));
        }
        if now < self.dates.not_before {
            return Err(PublicCertificateError::NotYet(path, self.dates));
        }
        Ok(())
    }

    /// Returns whether this is the same certificate.
    pub fn is_same(&self, other: &Self) -> bool {
        self.certified.cert == other.certified.cert
    }
}

impl fmt::Debug for PublicCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublicCertificate")
            .field("names", &self.names)
            .field("dates", &self.dates)
            .finish_non_exhaustive()
    }
}

/// Checks that each certificate is issued by one of those after it, up to the last one. A single certificate passes: its
/// issuer may be known to all programs. An issuer may have expired since, and is judged at the server's own last second.
fn check_chain(
    leaf: &EndEntityCert<'_>,
    issuers: &[CertificateDer<'_>],
    dates: &Dates,
) -> Result<(), webpki::Error> {
    let Some((last, between)) = issuers.split_last() else {
        return Ok(());
    };
    let anchor = anchor_from_trusted_cert(last)?;
    let end = dates.not_after.duration_since(SystemTime::UNIX_EPOCH);
    leaf.verify_for_usage(
        default_provider().signature_verification_algorithms.all,
        &[anchor],
        between,
        UnixTime::since_unix_epoch(end.unwrap_or_default()),
        KeyUsage::server_auth(),
        None,
        None,
    )
    .map(drop)
}

/// A new key, and the request for a certificate with it.
pub struct CertificateRequest {
    /// The private key as PEM.
    pub key: Zeroizing<String>,
    /// The request in DER (RFC 2986).
    pub request: Vec<u8>,
}

impl CertificateRequest {
    /// Makes a key for these host names.
    ///
    /// # Errors
    ///
    /// Fails if a name cannot be in a certificate, or without random numbers.
    pub fn new(names: &[String]) -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = DistinguishedName::new();
        let request = params.serialize_request(&key)?;
        Ok(Self {
            key: Zeroizing::new(key.serialize_pem()),
            request: request.der().to_vec(),
        })
    }
}

impl fmt::Debug for CertificateRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateRequest").finish_non_exhaustive()
    }
}

/// Makes the certificate that answers an authority's check of a host name by TLS (RFC 8737 section 3).
///
/// # Errors
///
/// Fails if the name cannot be in a certificate, or without random numbers.
pub fn challenge_certificate(name: &str, digest: &[u8]) -> Result<Arc<CertifiedKey>, rcgen::Error> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let mut params = CertificateParams::new([name.to_owned()])?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let certificate = params.self_signed(&key)?;
    let identity = identity::of_own(&key, &certificate);
    tls::certified(&identity).map_err(|_| rcgen::Error::UnsupportedSignatureAlgorithm)
}
