//! What can be wrong with keys and certificates.

use std::io;
use std::path::PathBuf;

use rustls::pki_types::pem;
use thiserror::Error;

use super::MAX_STEM;
use crate::keeper::ReadError;

/// Why there is no identity to run with.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The stem would not do as a file name and as a DNS name.
    #[error(
        "{stem:?} cannot name a key: use at most {MAX_STEM} letters, digits, '-', '_' and '.', beginning with a letter or digit"
    )]
    BadStem {
        /// The stem as given.
        stem: String,
    },
    /// The directory cannot be made or entered.
    #[error("cannot use the directory {}: choose another or correct its owner", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The key is there, its certificate is not and cannot be written.
    #[error("cannot write the certificate {} beside its key", path.display())]
    Complete {
        /// The certificate file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A new key would replace one that is there.
    #[error("{} is there already and is never overwritten: move it away or choose another name", path.display())]
    Exists {
        /// The file in the way.
        path: PathBuf,
    },
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        source: ReadError,
    },
    /// A file looks like PEM but is damaged.
    #[error("{} is damaged PEM text", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// Where it is damaged.
        source: pem::Error,
    },
    /// There is no certificate in the file.
    #[error("{} holds no certificate: a PEM block '-----BEGIN CERTIFICATE-----' is needed", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// There is no private key in the file.
    #[error("{} holds no private key: a PEM block '-----BEGIN PRIVATE KEY-----' is needed", path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
    },
    /// The private key is locked with a passphrase.
    #[error("the key in {0} is encrypted: write it out without a passphrase (openssl pkey -in {0} -out plain.key)", path.display())]
    EncryptedKey {
        /// The file.
        path: PathBuf,
    },
    /// The block is a certificate by name only.
    #[error("the first certificate in {} cannot be used", path.display())]
    UnusableCertificate {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: UnreadableCertificate,
    },
    /// The key is of a kind or size that is not supported.
    #[error("the key in {} cannot be used: ECDSA (P-256, P-384, P-521), Ed25519 and RSA of 2048 bits or more can", path.display())]
    UnusableKey {
        /// The file.
        path: PathBuf,
        /// What the crypto library says.
        source: rustls::Error,
    },
    /// The two files belong to different pairs.
    #[error("the key {} does not belong to the certificate {}: give the pair that was made together", key.display(), cert.display())]
    Mismatch {
        /// The certificate file.
        cert: PathBuf,
        /// The key file.
        key: PathBuf,
    },
    /// A certificate without its key: a new key would change the pin behind the clients' backs.
    #[error("{} is there but its key {} is gone: restore the key, or remove the certificate to get a new identity", cert.display(), key.display())]
    KeyGone {
        /// The certificate file.
        cert: PathBuf,
        /// The key file that should be there.
        key: PathBuf,
    },
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
        matches!(self, Self::Directory { .. } | Self::Write { .. })
    }
}
