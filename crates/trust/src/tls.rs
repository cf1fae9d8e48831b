//! TLS 1.3 configurations for QUIC (RFC 9001): trust, protocols and algorithms.
//!
//! [`client_config`] and [`server_config`] turn settings into rustls configurations, and the engine wraps them for
//! QUIC. All workers share one configuration, so that session tickets resume on any of them. Early data stays off,
//! because a replayed OPEN would dial a target twice.
//!
//! Each verifier has a small file of its own: `insecure`, `pinned` and `authorities` for servers, `client_certificate`
//! for clients. Here a client only proves that it holds its certificate's key. [`access`](crate::access) decides later
//! which named client it is.

mod authorities;
mod by_protocol;
mod client_certificate;
mod insecure;
mod key_exchange;
mod key_log;
mod pinned;
mod signatures;
mod suites;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use quictun_wire::alpn;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::TrustAnchor;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;
use rustls::{ClientConfig, KeyLog, ServerConfig};
use thiserror::Error;

pub use authorities::AuthoritiesError;
pub use by_protocol::PublicCertificates;
pub use pinned::PinMismatch;
pub use suites::Suites;

use self::by_protocol::ByProtocol;
use self::client_certificate::{AcceptedCertificates, ClientCertificate};
use self::key_exchange::KeyExchange;
use self::suites::Library;
use crate::identity::{self, Identity, IdentityError};
use crate::settings::{Access, Aead, ClientIdentity, ClientProof, Offer, Pin, ServerTrust};

/// Both protocols, in order of preference.
const PROTOCOLS: &[&[u8]] = &[alpn::NATIVE, alpn::COMPAT];

/// The reason why there is no TLS configuration.
#[derive(Debug, Error)]
pub enum TlsError {
    /// The client trusts servers by pin, but no pin is given.
    #[error(
        "no server key is pinned: give --pin with the sha256:... that the server prints when it starts"
    )]
    NoPins,
    /// The certificate authorities cannot be loaded.
    #[error(transparent)]
    Authorities(#[from] AuthoritiesError),
    /// The certificate or key cannot be loaded.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The key log cannot be opened.
    #[error("cannot write the key log {}", .0.display())]
    KeyLog(PathBuf, #[source] io::Error),
    /// The TLS library rejects the certificate, the key or the algorithms.
    #[error("the TLS library refuses this configuration")]
    Refused(#[from] rustls::Error),
    /// The TLS library rejects the certificate authorities.
    #[error("the TLS library refuses the certificate authorities")]
    RefusedAuthorities(#[from] VerifierBuilderError),
}

/// The parts that all TLS configurations of a process share.
#[derive(Clone, Debug)]
pub struct SharedConfig {
    /// The log of TLS secrets for Wireshark, or one that discards them.
    pub key_log: Arc<dyn KeyLog>,
    /// The cipher suites of the process.
    pub suites: Suites,
    /// On a server: the certificates that programs without quictun see.
    pub public: PublicCertificates,
}

impl Default for SharedConfig {
    /// Returns settings without a key log and with all suites of one library. Nothing is measured.
    fn default() -> Self {
        Self {
            key_log: Arc::new(rustls::NoKeyLog),
            suites: Suites::from(Library::AwsLc),
            public: PublicCertificates::default(),
        }
    }
}

impl SharedConfig {
    /// Opens the key log if a path is given, and chooses the suites.
    pub fn open(key_log: Option<&Path>, aead: Aead) -> Result<Self, TlsError> {
        let key_log: Arc<dyn KeyLog> = match key_log {
            None => Arc::new(rustls::NoKeyLog),
            Some(path) => match key_log::FileKeyLog::open(path) {
                Ok(log) => Arc::new(log),
                Err(cause) => return Err(TlsError::KeyLog(path.to_owned(), cause)),
            },
        };
        let suites = Suites::choose(aead, Instant::now);
        Ok(Self {
            key_log,
            suites,
            public: PublicCertificates::default(),
        })
    }
}

/// The client certificates that a server requests and accepts in the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ClientCertPolicy {
    NotRequested,
    /// The certificate is optional. Any certificate is accepted if the client holds its key; access control decides
    /// later.
    Any,
    /// A certificate from one of the authorities in this PEM file is required.
    Required(PathBuf),
    /// The certificate is optional. It must come from one of the authorities in this PEM file, have one of these keys,
    /// or be self-issued. A self-issued certificate shows only the client's key.
    Known {
        ca: PathBuf,
        pins: Vec<Pin>,
    },
}

/// Returns the client's TLS configuration.
pub fn client_config(
    trust: &ServerTrust,
    identity: &ClientIdentity,
    offer: Offer,
    shared: &SharedConfig,
) -> Result<Arc<ClientConfig>, TlsError> {
    Ok(client_configs(trust, identity, offer, shared)?.0)
}

/// Returns the client's TLS configuration, and another one for attempts after an attempt with the first has timed out.
/// The second one sends a `ClientHello` that fits one datagram. It is `None` if the first one does so already.
pub fn client_configs(
    trust: &ServerTrust,
    identity: &ClientIdentity,
    offer: Offer,
    shared: &SharedConfig,
) -> Result<(Arc<ClientConfig>, Option<Arc<ClientConfig>>), TlsError> {
    let own = identity.certificate.as_ref().map(identity::load_files);
    let own = own.transpose()?;
    if let Some(warning) = own.as_ref().and_then(|own| own.warning.as_ref()) {
        tracing::warn!("{warning}");
    }
    let make = |exchange| client_with(trust, own.as_ref(), offer, exchange, shared);
    let exchange = KeyExchange::of(offer);
    let fallback = exchange == KeyExchange::PostQuantum;
    let fallback = fallback.then(|| make(KeyExchange::Classical)).transpose()?;
    Ok((make(exchange)?, fallback))
}

fn client_with(
    trust: &ServerTrust,
    own: Option<&Identity>,
    offer: Offer,
    exchange: KeyExchange,
    shared: &SharedConfig,
) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = provider(exchange, &shared.suites);
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(server_verifier(trust, &provider)?);
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let own = SingleCertAndKey::from(certified(own)?);
            builder.with_client_cert_resolver(Arc::new(own))
        }
    };
    config.alpn_protocols = alpn_names(match offer {
        Offer::Both => PROTOCOLS,
        Offer::Native => &[alpn::NATIVE],
        Offer::Compat => &[alpn::COMPAT],
    });
    config.enable_early_data = false;
    config.key_log = shared.key_log.clone();
    Ok(Arc::new(config))
}

/// Returns the configuration of a server that requests no client certificate. It speaks both protocols and prefers
/// `quictun/1`. It ignores SNI.
pub fn server_config(
    identity: &Identity,
    shared: &SharedConfig,
) -> Result<Arc<ServerConfig>, TlsError> {
    let clients = &ClientCertPolicy::NotRequested;
    server_with(identity, clients, PROTOCOLS, shared)
}

/// Returns the configuration of a server with this access policy.
///
/// `quic-tun` carries no proof of a secret. If secrets are the only proofs of all clients, no client could become known
/// by it (PROTOCOL AUTH-5), and the server does not offer it.
pub fn server_config_for(
    access: &Access,
    identity: &Identity,
    shared: &SharedConfig,
) -> Result<Arc<ServerConfig>, TlsError> {
    let by_secret_only = match access {
        Access::Open { .. } => false,
        Access::Named { clients, .. } => {
            let mut proofs = clients.iter().flat_map(|client| &client.proofs);
            proofs.all(|proof| matches!(proof, ClientProof::PskFile(_)))
        }
    };
    let protocols = if by_secret_only {
        &[alpn::NATIVE]
    } else {
        PROTOCOLS
    };
    server_with(identity, &ClientCertPolicy::of(access), protocols, shared)
}

fn server_with(
    identity: &Identity,
    clients: &ClientCertPolicy,
    protocols: &[&[u8]],
    shared: &SharedConfig,
) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = provider(KeyExchange::PostQuantum, &shared.suites);
    let mut config = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(client_verifier(clients, &provider)?)
        .with_cert_resolver(Arc::new(ByProtocol {
            own: certified(identity)?,
            public: shared.public.clone(),
        }));
    config.alpn_protocols = alpn_names(protocols);
    config.max_early_data_size = 0;
    config.key_log = shared.key_log.clone();
    Ok(Arc::new(config))
}

impl ClientCertPolicy {
    fn of(access: &Access) -> Self {
        match access {
            Access::Open { ca: None, .. } => Self::NotRequested,
            Access::Open { ca: Some(ca), .. } => Self::Required(ca.clone()),
            Access::Named { ca: None, .. } => Self::Any,
            Access::Named {
                ca: Some(ca),
                clients,
            } => {
                let proofs = clients.iter().flat_map(|client| &client.proofs);
                let pins = proofs.filter_map(|proof| match proof {
                    ClientProof::Pin(pin) => Some(*pin),
                    ClientProof::CertificateName | ClientProof::PskFile(_) => None,
                });
                Self::Known {
                    ca: ca.clone(),
                    pins: pins.collect(),
                }
            }
        }
    }
}

/// Returns the algorithms of both sides, for TLS 1.3 only: these suites, and aws-lc-rs for everything else.
///
/// X25519MLKEM768 leads the key exchange, with X25519 beside it.
fn provider(exchange: KeyExchange, suites: &Suites) -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        cipher_suites: suites.list(),
        kx_groups: exchange.groups(),
        ..aws_lc_rs::default_provider()
    })
}

/// Returns a verifier that requires client certificates from the authorities in a PEM file, and these authorities.
pub(crate) fn authorities_verifier(
    ca: &Path,
) -> Result<(Arc<dyn ClientCertVerifier>, Vec<TrustAnchor<'static>>), TlsError> {
    let roots = Arc::new(authorities::load(Some(ca))?);
    let anchors = roots.roots.clone();
    let verifier =
        WebPkiClientVerifier::builder_with_provider(roots, Arc::new(aws_lc_rs::default_provider()))
            .build()?;
    Ok((verifier, anchors))
}

fn server_verifier(
    trust: &ServerTrust,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
    Ok(match trust {
        ServerTrust::Insecure => Arc::new(insecure::AnyServer),
        ServerTrust::Pins(pins) if pins.is_empty() => return Err(TlsError::NoPins),
        ServerTrust::Pins(pins) => Arc::new(pinned::PinnedServer {
            pins: pins.clone(),
            algorithms: provider.signature_verification_algorithms,
        }),
        ServerTrust::Authorities(ca) => {
            let roots = Arc::new(authorities::load(ca.as_deref())?);
            WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build()?
        }
    })
}

fn client_verifier(
    policy: &ClientCertPolicy,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let accepted = match policy {
        ClientCertPolicy::NotRequested => return Ok(WebPkiClientVerifier::no_client_auth()),
        ClientCertPolicy::Any => AcceptedCertificates::Any,
        ClientCertPolicy::Required(ca) => {
            AcceptedCertificates::Required(authorities_verifier(ca)?.0)
        }
        ClientCertPolicy::Known { ca, pins } => AcceptedCertificates::Known {
            authorities: authorities_verifier(ca)?.0,
            pins: pins.clone(),
        },
    };
    Ok(Arc::new(ClientCertificate {
        accepted,
        algorithms: provider.signature_verification_algorithms,
    }))
}

/// Returns the chain and the key in the form of the TLS library. The library gets no copy of the key's text, because it
/// would not erase it.
pub(crate) fn certified(identity: &Identity) -> Result<Arc<CertifiedKey>, rustls::Error> {
    let key = any_supported_type(&identity.key)?;
    Ok(Arc::new(CertifiedKey::new(identity.chain.clone(), key)))
}

fn alpn_names(names: &[&[u8]]) -> Vec<Vec<u8>> {
    names.iter().map(|name| name.to_vec()).collect()
}
