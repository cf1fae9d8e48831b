//! Loads certificate authorities from a PEM file or from the system.
//!
//! An empty set of authorities is always an error. The original continued with an empty pool. Its server then trusted
//! no client or, worse, did not check although the user believed that it did.

use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject};
use rustls_native_certs::CertificateResult;
use thiserror::Error;

use crate::keeper::{self, ReadError};

/// The reason why there are no authorities.
#[derive(Debug, Error)]
pub enum AuthoritiesError {
    /// The file cannot be read.
    #[error("cannot read the certificate authorities {}", .0.display())]
    Read(PathBuf, #[source] ReadError),
    /// The file looks like PEM but is damaged.
    #[error("the file of certificate authorities {} contains damaged PEM text", .0.display())]
    Pem(PathBuf, #[source] pem::Error),
    /// The file contains no certificate.
    #[error("{} contains no certificate authority: a PEM block '-----BEGIN CERTIFICATE-----' is needed", .0.display())]
    Empty(PathBuf),
    /// A certificate in the file, counted from 1, cannot be an authority.
    #[error("certificate {number} in {} cannot be used as an authority", .0.display(), number = .1)]
    Unusable(PathBuf, usize, #[source] rustls::Error),
    /// The system has no certificate authorities.
    #[error(
        "this system has no certificate authorities{}: install the package ca-certificates, or name a file with --ca",
        .0.as_ref().map(|fault| format!(" ({fault})")).unwrap_or_default()
    )]
    System(Option<rustls_native_certs::Error>),
}

/// Loads the authorities in a PEM file, or those of the system if `ca` is `None`. The set is never empty.
///
/// Every certificate of a given file must be usable. Unusable certificates of the system are left out.
pub(super) fn load(ca: Option<&Path>) -> Result<RootCertStore, AuthoritiesError> {
    match ca {
        Some(path) => from_file(path),
        None => from_system(rustls_native_certs::load_native_certs()),
    }
}

fn from_file(path: &Path) -> Result<RootCertStore, AuthoritiesError> {
    let pem = keeper::read(path, MAX_CA_FILE)
        .map_err(|cause| AuthoritiesError::Read(path.to_owned(), cause))?;
    let mut roots = RootCertStore::empty();
    for (index, certificate) in CertificateDer::pem_slice_iter(&pem).enumerate() {
        let certificate =
            certificate.map_err(|cause| AuthoritiesError::Pem(path.to_owned(), cause))?;
        roots
            .add(certificate)
            .map_err(|cause| AuthoritiesError::Unusable(path.to_owned(), index + 1, cause))?;
    }
    if roots.is_empty() {
        return Err(AuthoritiesError::Empty(path.to_owned()));
    }
    Ok(roots)
}

fn from_system(found: CertificateResult) -> Result<RootCertStore, AuthoritiesError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err(AuthoritiesError::System(found.errors.into_iter().next()));
    }
    Ok(roots)
}

/// Maximum number of bytes read. The bundle of all public authorities has a quarter of a megabyte.
const MAX_CA_FILE: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_without_authorities_is_an_error() {
        let error = from_system(CertificateResult::default()).expect_err("nothing to trust");
        assert_eq!(
            error.to_string(),
            "this system has no certificate authorities: install the package ca-certificates, or name a file with --ca"
        );
    }

    #[test]
    fn unusable_system_authorities_are_left_out() {
        let key = rcgen::KeyPair::generate().expect("a key");
        let good = rcgen::CertificateParams::default()
            .self_signed(&key)
            .expect("a certificate");
        let mut found = CertificateResult::default();
        found.certs = vec![CertificateDer::from(vec![0x30, 0x00]), good.der().clone()];
        assert_eq!(from_system(found).expect("one authority").len(), 1);
    }
}
