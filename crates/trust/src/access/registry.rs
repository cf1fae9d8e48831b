//! The named clients, and the keys, certificate names and secrets that identify them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aws_lc_rs::digest;
use rustls::pki_types::{CertificateDer, DnsName, TrustAnchor, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use thiserror::Error;

use super::client::Client;
use crate::identity::pin_of;
use crate::psk::{self, PskError, Secret};
use crate::settings::{ClientProof, NamedClient, Pin};
use crate::tls::TlsError;

/// The reasons why the access settings cannot be enforced.
#[derive(Debug, Error)]
pub enum AccessError {
    /// The server accepts every client, so no client has a name.
    #[error("this server accepts every client, and knows none by name")]
    Open,
    /// Two clients have the same name.
    #[error("two clients are named {0:?}: give each its own name")]
    DuplicateName(String),
    /// A client has no name.
    #[error("a client has no name: names appear in logs and metrics")]
    EmptyName,
    /// Two clients have the same key, which would not identify either of them.
    #[error("the clients {:?} and {:?} have the same key {}: give each its own", .0[0], .0[1], .1)]
    DuplicateKey([String; 2], Pin),
    /// Two clients have the same secret, which would not identify either of them.
    #[error("the clients {:?} and {:?} have the same secret: give each its own", .0[0], .0[1])]
    DuplicateSecret([String; 2]),
    /// The secret of a client cannot be loaded.
    #[error("the client {0:?} has no usable secret")]
    Secret(String, #[source] PskError),
    /// Clients are known by certificate names, but there are no authorities to verify the certificates.
    #[error(
        "the client {0:?} is known by its certificate's name but there are no authorities: name their file with ca, or pin the client's key"
    )]
    NameWithoutAuthorities(String),
    /// The name cannot occur in a certificate.
    #[error("the client {0:?} is known by its certificate's name, which is not a DNS name")]
    NotADnsName(String),
    /// The authorities cannot be loaded.
    #[error(transparent)]
    Authorities(#[from] TlsError),
}

#[derive(Clone, Default)]
pub(super) struct Registry {
    pub(super) configured: BTreeMap<String, ConfiguredClient>,
    pub(super) by_pin: BTreeMap<Pin, Arc<Client>>,
    pub(super) by_secret: Vec<(Secret, Arc<Client>)>,
    by_certificate_name: Vec<Arc<Client>>,
    /// Clients by the digests of what they can prove.
    pub(super) by_proof: BTreeMap<[u8; 32], Arc<Client>>,
    authorities: Option<Arc<dyn ClientCertVerifier>>,
    pub(super) anchors: Vec<TrustAnchor<'static>>,
}

/// One client as configured, for finding the changes of a reload.
#[derive(Clone)]
pub(super) struct ConfiguredClient {
    pub(super) client: Arc<Client>,
    pub(super) pins: BTreeSet<Pin>,
    pub(super) secrets: Vec<Secret>,
    pub(super) certificate: bool,
    pub(super) allow: BTreeSet<String>,
    pub(super) listen: BTreeSet<String>,
}

/// A proof of a client, with the secret read from its file.
enum Loaded {
    Pin(Pin),
    Secret(Secret),
    CertificateName,
}

impl Loaded {
    /// Returns a digest by which the same proof is recognized, also if the client has got another name. A secret is not
    /// revealed: it has as many random bits as a key.
    fn digest(&self, name: &str) -> [u8; 32] {
        let (kind, content): (&[u8], &[u8]) = match self {
            Self::Pin(pin) => return pin.0,
            Self::Secret(secret) => (b"secret ", secret.as_bytes()),
            // Certificates are compared with the name in any case.
            Self::CertificateName => (b"name ", &name.to_ascii_lowercase().into_bytes()),
        };
        let mut digest = digest::Context::new(&digest::SHA256);
        digest.update(kind);
        digest.update(content);
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest.finish().as_ref());
        bytes
    }
}

fn load(name: &str, proof: &ClientProof) -> Result<Loaded, AccessError> {
    Ok(match proof {
        ClientProof::Pin(pin) => Loaded::Pin(*pin),
        ClientProof::PskFile(path) => {
            let secret = psk::load_secret(path);
            Loaded::Secret(secret.map_err(|cause| AccessError::Secret(name.to_owned(), cause))?)
        }
        ClientProof::CertificateName => Loaded::CertificateName,
    })
}

impl Registry {
    pub(super) fn set_authorities(
        &mut self,
        (verifier, anchors): (Arc<dyn ClientCertVerifier>, Vec<TrustAnchor<'static>>),
    ) {
        self.authorities = Some(verifier);
        self.anchors = anchors;
    }

    /// Adds one client. Each key, secret and name must identify one client only.
    pub(super) fn add(&mut self, settings: &NamedClient) -> Result<(), AccessError> {
        let name = settings.name.clone();
        if name.is_empty() {
            return Err(AccessError::EmptyName);
        }
        let rules = |datagrams: bool| {
            let rules = settings.allow.iter().filter(|it| it.datagrams == datagrams);
            rules.map(|it| it.rule.clone()).collect()
        };
        let loaded = settings.proofs.iter().map(|proof| load(&name, proof));
        let loaded = loaded.collect::<Result<Vec<Loaded>, AccessError>>()?;
        let client = Arc::new(Client {
            name: name.as_str().into(),
            proofs: loaded.iter().map(|proof| proof.digest(&name)).collect(),
            rules: rules(false),
            udp_rules: rules(true),
            listen: settings.listen.clone(),
            limits: settings.limits,
            names_sources: settings.names_sources,
        });
        let mut configured = ConfiguredClient {
            client: client.clone(),
            pins: BTreeSet::new(),
            secrets: Vec::new(),
            certificate: false,
            allow: settings.allow.iter().map(ToString::to_string).collect(),
            listen: settings.listen.iter().map(ToString::to_string).collect(),
        };
        for proof in loaded {
            match proof {
                Loaded::Pin(pin) => {
                    self.add_pin(pin, &client)?;
                    configured.pins.insert(pin);
                }
                Loaded::Secret(secret) => {
                    self.add_secret(secret.clone(), &client)?;
                    configured.secrets.push(secret);
                }
                Loaded::CertificateName => {
                    self.add_certificate_name(&client)?;
                    configured.certificate = true;
                }
            }
        }
        for proof in &*client.proofs {
            self.by_proof.insert(*proof, client.clone());
        }
        if self.configured.insert(name.clone(), configured).is_some() {
            return Err(AccessError::DuplicateName(name));
        }
        Ok(())
    }

    /// Removes the client of this name if it is known by the same keys and nothing else.
    pub(super) fn remove_with_same_keys(&mut self, settings: &NamedClient) {
        let pins = settings.proofs.iter().map(|proof| match proof {
            ClientProof::Pin(pin) => Some(*pin),
            ClientProof::PskFile(_) | ClientProof::CertificateName => None,
        });
        let pins: Option<BTreeSet<Pin>> = pins.collect();
        let is_same = |known: &ConfiguredClient| {
            known.secrets.is_empty() && !known.certificate && Some(&known.pins) == pins.as_ref()
        };
        if self.configured.get(&settings.name).is_some_and(is_same) {
            self.configured.remove(&settings.name);
            let others = |client: &Arc<Client>| *client.name != settings.name;
            self.by_pin.retain(|_, client| others(client));
            self.by_proof.retain(|_, client| others(client));
        }
    }

    fn add_pin(&mut self, pin: Pin, client: &Arc<Client>) -> Result<(), AccessError> {
        match self.by_pin.insert(pin, client.clone()) {
            Some(other) if other.name != client.name => {
                let both = [other.name.to_string(), client.name.to_string()];
                Err(AccessError::DuplicateKey(both, pin))
            }
            _ => Ok(()),
        }
    }

    fn add_secret(&mut self, secret: Secret, client: &Arc<Client>) -> Result<(), AccessError> {
        let known = self.by_secret.iter().find(|(known, _)| *known == secret);
        if let Some((_, other)) = known.filter(|(_, other)| other.name != client.name) {
            let both = [other.name.to_string(), client.name.to_string()];
            return Err(AccessError::DuplicateSecret(both));
        }
        self.by_secret.push((secret, client.clone()));
        Ok(())
    }

    fn add_certificate_name(&mut self, client: &Arc<Client>) -> Result<(), AccessError> {
        let name = client.name.to_string();
        if self.authorities.is_none() {
            return Err(AccessError::NameWithoutAuthorities(name));
        }
        if DnsName::try_from(name.as_str()).is_err() {
            return Err(AccessError::NotADnsName(name));
        }
        self.by_certificate_name.push(client.clone());
        Ok(())
    }

    /// Returns the client whose certificate this was `at` that time; `issuers` are the certificates presented with it.
    pub(super) fn by_certificate(
        &self,
        own: &CertificateDer<'_>,
        issuers: &[CertificateDer<'_>],
        at: UnixTime,
    ) -> Option<Arc<Client>> {
        if let Some(client) = self.by_pin.get(&pin_of(own).ok()?) {
            return Some(client.clone());
        }
        // The certificate is verified here, whatever the handshake did: a pinned or self-made certificate may contain
        // any name.
        let authorities = self.authorities.as_ref()?;
        authorities.verify_client_cert(own, issuers, at).ok()?;
        let parsed = webpki::EndEntityCert::try_from(own).ok()?;
        // The comparison is literal: a wildcard certificate does not identify a single client.
        let carries = |client: &Client| {
            parsed
                .valid_dns_names()
                .any(|dns| dns.eq_ignore_ascii_case(&client.name))
        };
        self.by_certificate_name
            .iter()
            .find(|client| carries(client))
            .cloned()
    }
}
