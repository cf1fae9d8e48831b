//! Certificate authorities: from a PEM file, or the system's.
//!
//! No authority at all is always an error. The original went on with an empty pool and so with a
//! server that either trusted nobody or, worse, was believed to check.

use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject};
use rustls_native_certs::CertificateResult;
use thiserror::Error;

use crate::keeper::{self, ReadError};

/// Why there are no authorities.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AuthoritiesError {
    /// The file cannot be read.
    #[error("cannot read the certificate authorities {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        source: ReadError,
    },
    /// The file looks like PEM but is damaged.
    #[error("the certificate authorities {} are damaged PEM text", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// Where it is damaged.
        source: pem::Error,
    },
    /// There is no certificate in the file.
    #[error(
        "{} holds no certificate authority: a PEM block '-----BEGIN CERTIFICATE-----' is needed",
        path.display()
    )]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A certificate in the file cannot be an authority.
    #[error("certificate {number} in {} cannot be used as an authority", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Which certificate in it, from 1.
        number: usize,
        /// What the TLS library says.
        source: rustls::Error,
    },
    /// The system has none.
    #[error(
        "this system has no certificate authorities{}: install the package ca-certificates, or name a file with --ca",
        first_fault.as_ref().map(|e| format!(" ({e})")).unwrap_or_default()
    )]
    System {
        /// The first of the reasons found.
        first_fault: Option<rustls_native_certs::Error>,
    },
}

/// Loads the authorities in a PEM file, or the system's where `None`; never an empty set.
///
/// Every certificate of a given file must be usable; of the system's, those that are not are left out.
pub(super) fn load(ca: Option<&Path>) -> Result<RootCertStore, AuthoritiesError> {
    match ca {
        Some(path) => from_file(path),
        None => from_system(rustls_native_certs::load_native_certs()),
    }
}

fn from_file(path: &Path) -> Result<RootCertStore, AuthoritiesError> {
    let path = path.to_owned();
    let pem = match keeper::read(&path, MAX_CA_FILE) {
        Ok(pem) => pem,
        Err(source) => return Err(AuthoritiesError::Read { path, source }),
    };
    let mut roots = RootCertStore::empty();
    for (index, certificate) in CertificateDer::pem_slice_iter(&pem).enumerate() {
        let certificate = match certificate {
            Ok(certificate) => certificate,
            Err(source) => return Err(AuthoritiesError::Pem { path, source }),
        };
        if let Err(source) = roots.add(certificate) {
            return Err(AuthoritiesError::Unusable {
                path,
                number: index + 1,
                source,
            });
        }
    }
    if roots.is_empty() {
        return Err(AuthoritiesError::Empty { path });
    }
    Ok(roots)
}

fn from_system(found: CertificateResult) -> Result<RootCertStore, AuthoritiesError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err(AuthoritiesError::System {
            first_fault: found.errors.into_iter().next(),
        });
    }
    Ok(roots)
}

/// The bundle of all public authorities has a quarter of a megabyte.
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
