//! Creates keys, certificates and pre-shared secrets on disk once, keeps them, and loads and checks them.
//!
//! A server calls [`load_files`] if the user has named files, and otherwise [`load_or_generate`] on its state
//! directory, so that its pin survives restarts. If that directory cannot be used
//! ([`IdentityError::is_unusable_directory`]), a server in open mode may continue with [`ephemeral`]. `quictun keygen`
//! uses [`generate`]; the default client's secret comes from [`ensure_psk`].
//!
//! The key is the identity, so it is written first. The certificate beside a key may be missing, because of a crash
//! between the two writes or a deleted file. It is then made again from that key, with the same pin.

mod error;
pub(crate) mod files;
#[cfg(test)]
mod tests;

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use aws_lc_rs::digest;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData,
    SanType,
};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use zeroize::{Zeroize as _, Zeroizing};

pub use error::{IdentityError, UnreadableCertificate};

use error::MAX_STEM;

use crate::keeper;
use crate::settings::{CertificateFiles, Pin};

/// A private key and the certificate chain that is presented with it. Dropping it erases the key from memory.
pub struct Identity {
    /// The certificate chain, which begins with the key's own certificate.
    pub chain: Vec<CertificateDer<'static>>,
    /// The private key of the first certificate.
    pub key: PrivateKeyDer<'static>,
    /// SHA-256 of the public key. Peers may recognise the key by it.
    pub pin: Pin,
    /// A sentence for the user, if the key file's permissions are too wide.
    pub warning: Option<String>,
}

/// Creates an ECDSA P-256 key and a self-signed certificate for 100 years: `<stem>.key` and `<stem>.crt` in `dir`.
///
/// Creates `dir` (mode 0700) if it is missing. Existing files are never overwritten.
pub fn generate(dir: &Path, stem: &str) -> Result<Pin, IdentityError> {
    let paths = IdentityFiles::new(dir, stem)?;
    make_dir(dir)?;
    if exists(&paths.files.cert)? {
        return Err(IdentityError::Exists(paths.files.cert));
    }
    let key = new_key()?;
    let pem = Zeroizing::new(key.serialize_pem());
    if !write_new(&paths.files.key, pem.as_bytes())? {
        return Err(IdentityError::Exists(paths.files.key));
    }
    paths.write_certificate(&key)?;
    Ok(pin_of_key(&key))
}

/// Loads `<stem>.key` and `<stem>.crt` from `dir`, after creating them if they are missing.
///
/// The second value is true if a new key was made. Several processes may start at once: all of them get the same
/// identity.
pub fn load_or_generate(dir: &Path, stem: &str) -> Result<(Identity, bool), IdentityError> {
    let paths = IdentityFiles::new(dir, stem)?;
    // The key is written before the certificate. Looking for them in the opposite order cannot mistake a pair that
    // another process is just creating for a certificate without its key.
    let cert_exists = exists(&paths.files.cert)?;
    let key_exists = exists(&paths.files.key)?;
    let made = match (cert_exists, key_exists) {
        (true, true) => false,
        (true, false) => return Err(IdentityError::KeyGone(paths.files)),
        (false, true) => {
            paths.complete()?;
            false
        }
        (false, false) => match generate(dir, stem) {
            Ok(_) => true,
            Err(IdentityError::Exists(_)) => {
                paths.complete()?;
                false
            }
            Err(e) => return Err(e),
        },
    };
    Ok((load_files(&paths.files)?, made))
}

/// Loads `<stem>.key` and `<stem>.crt` from `dir`. Both must exist.
pub fn load(dir: &Path, stem: &str) -> Result<Identity, IdentityError> {
    load_files(&IdentityFiles::new(dir, stem)?.files)
}

/// Loads a PEM certificate chain and its PEM key, and checks that they belong together.
pub fn load_files(given: &CertificateFiles) -> Result<Identity, IdentityError> {
    let chain = load_chain(&given.cert)?;
    let key_pem = read(&given.key)?;
    let key = parse_key(&given.key, &key_pem)?;
    let mut identity = of_pair(chain, key, given)?;
    identity.warning = wide_permissions(&given.key);
    Ok(identity)
}

/// Checks that a certificate chain and a key belong together. `files` names them in errors.
pub(crate) fn of_pair(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    files: &CertificateFiles,
) -> Result<Identity, IdentityError> {
    let Some(first) = chain.first() else {
        return Err(IdentityError::NoCertificate(files.cert.clone()));
    };
    let pin = pin_of(first)
        .map_err(|cause| IdentityError::UnusableCertificate(files.cert.clone(), cause))?;
    let signer = any_supported_type(&key)
        .map_err(|cause| IdentityError::UnusableKey(files.key.clone(), cause))?;
    // The library may not know the public half of a key. It cannot compare such a key, and that is not an error.
    let same = CertifiedKey::new(chain.clone(), signer).keys_match();
    if let Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch)) = same {
        return Err(IdentityError::Mismatch(files.clone()));
    }
    Ok(Identity {
        chain,
        key,
        pin,
        warning: None,
    })
}

/// Creates an identity that is kept in memory only.
pub fn ephemeral() -> Result<Identity, IdentityError> {
    let key = new_key()?;
    let cert = self_signed(&key, "quictun")?;
    Ok(of_own(&key, &cert))
}

/// Returns the identity with a key and its self-signed certificate.
pub(crate) fn of_own(key: &KeyPair, certificate: &rcgen::Certificate) -> Identity {
    Identity {
        chain: vec![certificate.der().clone()],
        key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        pin: pin_of_key(key),
        warning: None,
    }
}

/// Writes a secret of 32 random bytes to `path`, as one line of base64url text (mode 0600), unless `path` exists.
///
/// An existing file is kept regardless of its content. The directory is created (mode 0700) if it is missing.
pub fn ensure_psk(path: &Path) -> Result<(), IdentityError> {
    if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        make_dir(dir)?;
    }
    let mut secret = Zeroizing::new([0; 32]);
    aws_lc_rs::rand::fill(secret.as_mut()).map_err(|_| IdentityError::Random)?;
    let mut line = Zeroizing::new(BASE64_URL_SAFE_NO_PAD.encode(*secret));
    line.push('\n');
    write_new(path, line.as_bytes()).map(drop)
}

/// Lets the group of a directory that root owns read the given files in it (mode 0640), as packages set up their
/// configuration directories.
///
/// Returns false and changes nothing if this user is not root, or if another user owns the directory. The same holds if
/// the directory's group is root's, or if its group or others may write to it.
pub fn share_with_group(dir: &Path, files: &[&Path]) -> Result<bool, IdentityError> {
    let unusable = |cause| IdentityError::Directory(dir.to_owned(), cause);
    files::share_with_group(dir, files).map_err(unusable)
}

fn exists(file: &Path) -> Result<bool, IdentityError> {
    let dir = file.parent().unwrap_or(file);
    file.try_exists()
        .map_err(|cause| IdentityError::Directory(dir.to_owned(), cause))
}

fn make_dir(dir: &Path) -> Result<(), IdentityError> {
    files::create_private_dir(dir).map_err(|cause| IdentityError::Directory(dir.to_owned(), cause))
}

/// Writes a file that only this user can access (mode 0600). Returns false and changes nothing if the file exists.
pub fn write_new(path: &Path, content: &[u8]) -> Result<bool, IdentityError> {
    match files::create_exclusive(path, content, 0o600) {
        Ok(()) => Ok(true),
        Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(cause) => Err(IdentityError::Write(path.to_owned(), cause)),
    }
}

/// Returns the pin of a certificate: SHA-256 of its DER `SubjectPublicKeyInfo`.
pub fn pin_of(certificate: &CertificateDer<'_>) -> Result<Pin, UnreadableCertificate> {
    let parsed = webpki::EndEntityCert::try_from(certificate).map_err(UnreadableCertificate)?;
    Ok(pin_of_spki(&parsed.subject_public_key_info()))
}

impl Drop for Identity {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity")
            .field("pin", &self.pin)
            .field("certificates", &self.chain.len())
            .finish_non_exhaustive()
    }
}

struct IdentityFiles {
    files: CertificateFiles,
    stem: String,
}

impl IdentityFiles {
    fn new(dir: &Path, stem: &str) -> Result<Self, IdentityError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let starts_plain = stem.starts_with(|first: char| first.is_ascii_alphanumeric());
        if !starts_plain || stem.len() > MAX_STEM || !stem.bytes().all(plain) {
            return Err(IdentityError::BadStem(stem.to_owned()));
        }
        Ok(Self {
            files: CertificateFiles {
                cert: dir.join(format!("{stem}.crt")),
                key: dir.join(format!("{stem}.key")),
            },
            stem: stem.to_owned(),
        })
    }

    /// Creates the certificate of a key that has none.
    fn complete(&self) -> Result<(), IdentityError> {
        let pem = read(&self.files.key)?;
        let key = parse_key(&self.files.key, &pem)?;
        let key = KeyPair::try_from(&key).map_err(IdentityError::Generate)?;
        self.write_certificate(&key)
    }

    fn write_certificate(&self, key: &KeyPair) -> Result<(), IdentityError> {
        let cert = self_signed(key, &self.stem)?;
        match files::create_exclusive(&self.files.cert, cert.pem().as_bytes(), 0o644) {
            Ok(()) => Ok(()),
            // Another process completed the pair from the same key.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(cause) => Err(IdentityError::Complete(self.files.cert.clone(), cause)),
        }
    }
}

fn new_key() -> Result<KeyPair, IdentityError> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(IdentityError::Generate)
}

fn self_signed(key: &KeyPair, name: &str) -> Result<rcgen::Certificate, IdentityError> {
    let date = |date: jiff::civil::Date| {
        rcgen::date_time_ymd(
            date.year().into(),
            date.month().unsigned_abs(),
            date.day().unsigned_abs(),
        )
    };
    let sign = || {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::DnsName(name.try_into()?)];
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        let today = jiff::Timestamp::now()
            .to_zoned(jiff::tz::TimeZone::UTC)
            .date();
        // The validity begins yesterday, for peers whose clock is behind.
        params.not_before = date(today.yesterday().unwrap_or(today));
        params.not_after = date(today.saturating_add(jiff::Span::new().years(VALID_YEARS)));
        params.self_signed(key)
    };
    sign().map_err(IdentityError::Generate)
}

fn pin_of_key(key: &KeyPair) -> Pin {
    pin_of_spki(&key.subject_public_key_info())
}

fn pin_of_spki(der: &[u8]) -> Pin {
    let hash = digest::digest(&digest::SHA256, der);
    let mut pin = [0; 32];
    pin.copy_from_slice(hash.as_ref());
    Pin(pin)
}

fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, IdentityError> {
    keeper::read(path, MAX_PEM_FILE).map_err(|cause| IdentityError::Read(path.to_owned(), cause))
}

fn load_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let pem = read(path)?;
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(|cause| IdentityError::Pem(path.to_owned(), cause))?;
    if chain.is_empty() {
        return Err(IdentityError::NoCertificate(path.to_owned()));
    }
    Ok(chain)
}

fn parse_key(path: &Path, pem: &[u8]) -> Result<PrivateKeyDer<'static>, IdentityError> {
    let path = path.to_owned();
    match PrivateKeyDer::from_pem_slice(pem) {
        Ok(key) => Ok(key),
        Err(pem::Error::NoItemsFound) if is_encrypted(pem) => {
            Err(IdentityError::EncryptedKey(path))
        }
        Err(pem::Error::NoItemsFound) => Err(IdentityError::NoKey(path)),
        Err(cause) => Err(IdentityError::Pem(path, cause)),
    }
}

fn is_encrypted(pem: &[u8]) -> bool {
    let marker = b"ENCRYPTED PRIVATE KEY-----";
    pem.windows(marker.len()).any(|window| window == marker)
}

/// Returns a sentence about a secret file that every user of this machine can read or write, or about a directory of
/// such files that is open to all users. The sentence names the command that closes it.
pub(crate) fn wide_permissions(path: &Path) -> Option<String> {
    let found = std::fs::metadata(path).ok()?;
    let mode = found.permissions().mode() & 0o7777;
    let (open, closed) = if found.is_dir() {
        (0o007, 700)
    } else {
        (0o006, 600)
    };
    (mode & open != 0).then(|| {
        format!(
            "{0} is open to every user of this machine (mode {mode:04o}): `chmod {closed} {0}`",
            path.display()
        )
    })
}

/// Logs a warning for each secret file or directory that is open to every user of this machine.
pub fn warn_of_wide<'a>(paths: impl IntoIterator<Item = &'a Path>) {
    for path in paths {
        if let Some(warning) = wide_permissions(path) {
            tracing::warn!(target: "quictun", "{warning}");
        }
    }
}

/// Validity of a certificate, years. Peers recognise the certificate by its key alone, so its date must never cause an
/// outage.
const VALID_YEARS: i32 = 100;

/// Maximum number of bytes read of a PEM file. Certificate chains have a few kilobytes, and a bundle of a hundred
/// certificates fits.
pub const MAX_PEM_FILE: u64 = 1 << 20;
