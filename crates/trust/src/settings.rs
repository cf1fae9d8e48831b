//! Who is trusted: the server by its clients, clients by the server, and what each may reach.

use std::path::PathBuf;

pub use crate::access::ListenRule;
pub use crate::access::rule::TargetRule;
pub use crate::access::{HeaderRule, HeaderTargets};
pub use crate::limits::ClientLimits;

/// Protocols offered by the client, best first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offer {
    /// `quictun/1`, then `quic-tun`.
    #[default]
    Both,
    /// `quictun/1` only: native mode, where the server enforces who may reach what.
    Native,
    /// `quic-tun` only.
    Compat,
}

/// The library that computes the AEAD of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aead {
    /// The faster one, by measurement at start.
    #[default]
    Auto,
    /// ring.
    Ring,
    /// aws-lc.
    AwsLc,
}

/// How the client recognises its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerTrust {
    /// Anyone will do (quic-tun's default). Unsafe; said at start.
    Insecure,
    /// Only these public keys.
    Pins(Vec<Pin>),
    /// A certificate chain to one of the file's authorities, or to the system's where `None`.
    Authorities(Option<PathBuf>),
}

/// SHA-256 of a DER `SubjectPublicKeyInfo`, written `sha256:` and 43 characters of unpadded base64url.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pin(pub [u8; 32]);

/// How the client proves who it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientIdentity {
    /// Certificate and private key, PEM.
    pub certificate: Option<CertificateFiles>,
    /// File holding a pre-shared secret; proven by an HMAC over the TLS exporter, never sent.
    pub psk_file: Option<PathBuf>,
}

/// A PEM certificate chain and its PEM private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// Certificate chain, leaf first.
    pub cert: PathBuf,
    /// PKCS#8, PKCS#1 or SEC1 key.
    pub key: PathBuf,
}

/// Where the server's key comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerIdentity {
    /// Given files.
    Files(CertificateFiles),
    /// `server.key` and `server.crt` in this directory, made on the first run.
    State(PathBuf),
}

/// Who may reach what.
#[derive(Clone, Debug)]
pub enum Access {
    /// quic-tun's way: every client may reach any target, but for what `guard` closes.
    Open {
        /// Client certificates must chain to these authorities, where given.
        ca: Option<PathBuf>,
        /// Which kinds of target stay closed.
        guard: Guard,
    },
    /// Deny by default: only named clients, each to its own targets.
    Named {
        /// The clients.
        clients: Vec<NamedClient>,
        /// Authorities for clients known by certificate name.
        ca: Option<PathBuf>,
    },
}

/// Targets that open mode refuses unless told otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guard {
    /// Allow `unix:` targets.
    pub allow_unix: bool,
    /// Allow link-local addresses (169.254.0.0/16, `fe80::/10`: cloud metadata lives there).
    pub allow_link_local: bool,
}

/// A client the server knows, and what it may reach.
#[derive(Clone, Debug)]
pub struct NamedClient {
    /// Its name in logs, metrics and REST; with a CA, the DNS name in its certificate.
    pub name: String,
    /// How it proves itself. Any one of them suffices.
    pub proofs: Vec<ClientProof>,
    /// Targets it may reach. Empty: none.
    pub allow: Vec<TargetRule>,
    /// Addresses on which it may have the server listen. Empty: none.
    pub listen: Vec<ListenRule>,
    /// What it may use.
    pub limits: ClientLimits,
    /// Whether it may name the address of its application that a target's PROXY header has.
    pub names_sources: bool,
}

/// A way in which a client proves itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientProof {
    /// The public key of its certificate.
    Pin(Pin),
    /// A certificate from the configured authorities that carries the client's name.
    CertificateName,
    /// Knowledge of the secret in this file.
    PskFile(PathBuf),
}

impl std::fmt::Debug for Pin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}
