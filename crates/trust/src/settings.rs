//! Settings of trust: how clients recognise the server, how the server identifies clients, and the targets of each
//! client.

use std::path::PathBuf;

pub use crate::access::ListenRule;
pub use crate::access::rule::{RuleHosts, TargetRule};
pub use crate::access::{HeaderRule, HeaderTargets};
pub use crate::limits::ClientLimits;

/// Protocols offered by the client, in order of preference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offer {
    /// Offer `quictun/1` first, then `quic-tun`.
    #[default]
    Both,
    /// Offer `quictun/1` only: native mode, in which the server enforces the rules of each client.
    Native,
    /// Offer `quic-tun` only, for a server of that protocol.
    Compat,
}

/// The library that computes the AEAD of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aead {
    /// The faster library, as measured at start.
    #[default]
    Auto,
    /// The library `ring`, always.
    Ring,
    /// The library `aws-lc`, always.
    AwsLc,
}

/// The way in which the client recognises its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerTrust {
    /// The client accepts any server (quic-tun's default). Unsafe, so the start prints a warning.
    Insecure,
    /// The client accepts only these public keys.
    Pins(Vec<Pin>),
    /// The server's certificate chain must end at one of the authorities in this file, or at one of the system's if
    /// `None`.
    Authorities(Option<PathBuf>),
}

/// SHA-256 of a DER `SubjectPublicKeyInfo`, written `sha256:` and 43 characters of unpadded base64url.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pin(pub [u8; 32]);

/// The way in which the client proves its identity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientIdentity {
    /// Certificate and private key, PEM.
    pub certificate: Option<CertificateFiles>,
    /// File with a pre-shared secret. The client proves it by an HMAC over the TLS exporter and never sends it.
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

/// The source of the server's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerIdentity {
    /// The key and the certificate in these files.
    Files(CertificateFiles),
    /// `server.key` and `server.crt` in this directory, made on the first run.
    State(PathBuf),
}

/// The clients of a server, and the targets that they may reach.
#[derive(Clone, Debug)]
pub enum Access {
    /// quic-tun's way: every client may reach any target, except those that `guard` closes.
    Open {
        /// If given, client certificates must chain to these authorities.
        ca: Option<PathBuf>,
        /// The kinds of target that stay closed.
        guard: Guard,
    },
    /// Deny by default: only named clients, each with its own targets.
    Named {
        /// The named clients and their rules.
        clients: Vec<NamedClient>,
        /// Authorities for clients known by certificate name.
        ca: Option<PathBuf>,
    },
}

impl Access {
    /// Returns the named clients; none in open mode.
    pub fn clients(&self) -> &[NamedClient] {
        match self {
            Self::Named { clients, .. } => clients,
            Self::Open { .. } => &[],
        }
    }
}

/// Targets that open mode refuses by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guard {
    /// True if `unix:` targets are allowed.
    pub allow_unix: bool,
    /// True if link-local addresses (169.254.0.0/16, `fe80::/10`) are allowed. Metadata services of clouds have such
    /// addresses.
    pub allow_link_local: bool,
}

/// A client that the server knows, and the targets that it may reach.
#[derive(Clone, Debug)]
pub struct NamedClient {
    /// The client's name in logs, metrics and REST; with a CA, the DNS name in its certificate.
    pub name: String,
    /// The proofs of the client's identity. Any one of them suffices.
    pub proofs: Vec<ClientProof>,
    /// Targets that the client may reach. If empty, it may reach none.
    pub allow: Vec<TargetRule>,
    /// Addresses on which the client may ask the server to listen. If the list is empty, it may ask for none.
    pub listen: Vec<ListenRule>,
    /// The limits of the client's use.
    pub limits: ClientLimits,
    /// True if a target's PROXY header may contain the application's address that the client reports.
    pub names_sources: bool,
}

/// A way in which a client proves its identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientProof {
    /// The public key of its certificate.
    Pin(Pin),
    /// A certificate from the configured authorities that contains the client's name.
    CertificateName,
    /// Knowledge of the secret in this file.
    PskFile(PathBuf),
}

impl std::fmt::Debug for Pin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}
