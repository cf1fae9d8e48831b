//! Errors of keys and certificates.

use std::io;
use std::path::PathBuf;

use rustls::pki_types::pem;
use thiserror::Error;

use crate::keeper::ReadError;
use crate::settings::CertificateFiles;

/// Longest stem: one DNS label (RFC 1035 section 2.3.4).
pub(super) const MAX_STEM: usize = 63;

/// The reason why there is no identity to run with.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// The stem is not valid both as a file name and as a DNS name.
    #[error(
        "{0:?} cannot name a key: use at most {MAX_STEM} letters, digits, '-', '_' and '.', beginning with a letter or digit"
    )]
    BadStem(String),
    /// The directory cannot be created or entered.
    #[error("cannot use the directory {}: choose another or correct its owner", .0.display())]
    Directory(PathBuf, #[source] io::Error),
    /// A file cannot be written.
    #[error("cannot write {}", .0.display())]
    Write(PathBuf, #[source] io::Error),
    /// The key exists, but its certificate does not and cannot be written.
    #[error("cannot write the certificate {} beside its key", .0.display())]
    Complete(PathBuf, #[source] io::Error),
    /// A new key or certificate would replace an existing file.
    #[error("{} exists already and is never overwritten: move it away or choose another name", .0.display())]
    Exists(PathBuf),
    /// A file cannot be read.
    #[error("cannot read {}", .0.display())]
    Read(PathBuf, #[source] ReadError),
    /// A file looks like PEM but is damaged.
    #[error("{} contains damaged PEM text", .0.display())]
    Pem(PathBuf, #[source] pem::Error),
    /// The file contains no certificate.
    #[error("{} contains no certificate: a PEM block '-----BEGIN CERTIFICATE-----' is needed", .0.display())]
    NoCertificate(PathBuf),
    /// The file contains no private key.
    #[error("{} contains no private key: a PEM block '-----BEGIN PRIVATE KEY-----' is needed", .0.display())]
    NoKey(PathBuf),
    /// The private key is locked with a passphrase.
    #[error("the key in {path} is encrypted: write it out without a passphrase (openssl pkey -in {path} -out plain.key)", path = .0.display())]
    EncryptedKey(PathBuf),
    /// The PEM block is not a readable certificate.
    #[error("the first certificate in {} cannot be used", .0.display())]
    UnusableCertificate(PathBuf, #[source] UnreadableCertificate),
    /// The key is of a kind or size that is not supported.
    #[error("the key in {} cannot be used: use ECDSA (P-256, P-384, P-521), Ed25519, or RSA of 2048 bits or more", .0.display())]
    UnusableKey(PathBuf, #[source] rustls::Error),
    /// The two files belong to different pairs.
    #[error("the key {} does not belong to the certificate {}: give the pair that was made together", .0.key.display(), .0.cert.display())]
    Mismatch(CertificateFiles),
    /// The certificate exists without its key. A new key would silently change the pin that clients know.
    #[error("{} exists but its key {} is missing: restore the key, or remove the certificate to get a new identity", .0.cert.display(), .0.key.display())]
    KeyGone(CertificateFiles),
    /// The crypto library failed to make a key or certificate.
    #[error("cannot make a key and certificate")]
    Generate(#[source] rcgen::Error),
    /// The system's random number generator failed.
    #[error("cannot get random bytes from the system")]
    Random,
}

/// The bytes are not an X.509 certificate.
#[derive(Debug, Error)]
#[error("not a readable X.509 certificate")]
pub struct UnreadableCertificate(#[source] pub(super) webpki::Error);

impl IdentityError {
    /// Returns true if the directory cannot be entered or written, so that no identity can be kept there.
    ///
    /// Returns false if an identity exists but is broken: another key would change the pin without the user's consent.
    pub fn is_unusable_directory(&self) -> bool {
        matches!(self, Self::Directory(..) | Self::Write(..))
    }
}
