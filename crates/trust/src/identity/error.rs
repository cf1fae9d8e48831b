//! What can be wrong with keys and certificates.

use std::io;
use std::path::PathBuf;

use rustls::pki_types::pem;
use thiserror::Error;

use crate::keeper::ReadError;
use crate::settings::CertificateFiles;

/// Longest stem: one DNS label, RFC 1035 section 2.3.4.
pub(super) const MAX_STEM: usize = 63;

/// Why there is no identity to run with.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// The stem would not do as a file name and as a DNS name.
    #[error(
        "{0:?} cannot name a key: use at most {MAX_STEM} letters, digits, '-', '_' and '.', beginning with a letter or digit"
    )]
    BadStem(String),
    /// The directory cannot be made or entered.
    #[error("cannot use the directory {}: choose another or correct its owner", .0.display())]
    Directory(PathBuf, #[source] io::Error),
    /// A file cannot be written.
    #[error("cannot write {}", .0.display())]
    Write(PathBuf, #[source] io::Error),
    /// The key is there, its certificate is not and cannot be written.
    #[error("cannot write the certificate {} beside its key", .0.display())]
    Complete(PathBuf, #[source] io::Error),
    /// A new key or certificate would replace one that is there.
    #[error("{} is there already and is never overwritten: move it away or choose another name", .0.display())]
    Exists(PathBuf),
    /// A file cannot be read.
    #[error("cannot read {}", .0.display())]
    Read(PathBuf, #[source] ReadError),
    /// A file looks like PEM but is damaged.
    #[error("{} is damaged PEM text", .0.display())]
    Pem(PathBuf, #[source] pem::Error),
    /// There is no certificate in the file.
    #[error("{} holds no certificate: a PEM block '-----BEGIN CERTIFICATE-----' is needed", .0.display())]
    NoCertificate(PathBuf),
    /// There is no private key in the file.
    #[error("{} holds no private key: a PEM block '-----BEGIN PRIVATE KEY-----' is needed", .0.display())]
    NoKey(PathBuf),
    /// The private key is locked with a passphrase.
    #[error("the key in {path} is encrypted: write it out without a passphrase (openssl pkey -in {path} -out plain.key)", path = .0.display())]
    EncryptedKey(PathBuf),
    /// The block is a certificate by name only.
    #[error("the first certificate in {} cannot be used", .0.display())]
    UnusableCertificate(PathBuf, #[source] UnreadableCertificate),
    /// The key is of a kind or size that is not supported.
    #[error("the key in {} cannot be used: ECDSA (P-256, P-384, P-521), Ed25519 and RSA of 2048 bits or more can", .0.display())]
    UnusableKey(PathBuf, #[source] rustls::Error),
    /// The two files belong to different pairs.
    #[error("the key {} does not belong to the certificate {}: give the pair that was made together", .0.key.display(), .0.cert.display())]
    Mismatch(CertificateFiles),
    /// A certificate without its key: a new key would change the pin behind the clients' backs.
    #[error("{} is there but its key {} is gone: restore the key, or remove the certificate to get a new identity", .0.cert.display(), .0.key.display())]
    KeyGone(CertificateFiles),
    /// The crypto library made no key or certificate.
    #[error("cannot make a key and certificate")]
    Generate(#[source] rcgen::Error),
    /// The system gave no randomness.
    #[error("the system gave no random bytes")]
    Random,
}

/// The bytes are no X.509 certificate.
#[derive(Debug, Error)]
#[error("not a readable X.509 certificate")]
pub struct UnreadableCertificate(#[source] pub(super) webpki::Error);

impl IdentityError {
    /// Whether the directory cannot be entered or written, so that no identity can be kept there.
    ///
    /// False where an identity is there but broken: another key would change the pin unasked.
    pub fn is_unusable_directory(&self) -> bool {
        matches!(self, Self::Directory(..) | Self::Write(..))
    }
}
