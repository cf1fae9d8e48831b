//! The named clients: who is known by which key, certificate name and secret.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, DnsName, TrustAnchor, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use thiserror::Error;

use super::Client;
use super::rule::{Rule, RuleError};
use crate::identity::pin_of;
use crate::psk::{self, PskError, Secret};
use crate::settings::{ClientProof, NamedClient, Pin};
use crate::tls::TlsError;

/// Why the access settings cannot be enforced.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AccessError {
    /// A rule has no meaning.
    #[error("the rule {rule:?} of the client {client:?} has no meaning")]
    Rule {
        /// Whose rule.
        client: String,
        /// The rule as given.
        rule: String,
        /// What is wrong with it.
        source: RuleError,
    },
    /// Two clients of one name.
    #[error("two clients are named {client:?}: give each its own name")]
    DuplicateName {
        /// The name.
        client: String,
    },
    /// A client without a name.
    #[error("a client has no name: names appear in logs and metrics")]
    EmptyName,
    /// Two clients with one key: it could not be said who comes.
    #[error("the clients {first:?} and {second:?} have the same key {pin}: give each its own")]
    DuplicateKey {
        /// The one before.
        first: String,
        /// The one after.
        second: String,
        /// Their key.
        pin: Pin,
    },
    /// Two clients with one secret: it could not be said who comes.
    #[error("the clients {first:?} and {second:?} have the same secret: give each its own")]
    DuplicateSecret {
        /// The one before.
        first: String,
        /// The one after.
        second: String,
    },
    /// A secret cannot be had.
    #[error("the client {client:?} has no usable secret")]
    Secret {
        /// Whose.
        client: String,
        /// What is wrong with it.
        source: PskError,
    },
    /// Certificate names without anyone who vouches for them.
    #[error(
        "the client {client:?} is known by its certificate's name but there are no authorities: name their file with ca, or pin the client's key"
    )]
    NameWithoutAuthorities {
        /// Whose.
        client: String,
    },
    /// A name that no certificate carries.
    #[error("the client {client:?} is known by its certificate's name, and that is no DNS name")]
    NotADnsName {
        /// Whose.
        client: String,
    },
    /// The authorities cannot be had.
    #[error(transparent)]
    Authorities(#[from] TlsError),
}

/// The named clients, by each way in which they prove themselves.
#[derive(Default)]
pub(super) struct Register {
    pub(super) described: BTreeMap<String, Described>,
    pub(super) by_pin: BTreeMap<Pin, Arc<Client>>,
    pub(super) by_secret: Vec<(Secret, Arc<Client>)>,
    by_certificate_name: Vec<Arc<Client>>,
    authorities: Option<Arc<dyn ClientCertVerifier>>,
    pub(super) anchors: Vec<TrustAnchor<'static>>,
}

/// One client as configured, to tell what a reload changes.
pub(super) struct Described {
    pub(super) client: Arc<Client>,
    pub(super) pins: BTreeSet<Pin>,
    pub(super) secrets: Vec<Secret>,
    pub(super) certificate: bool,
    pub(super) allow: BTreeSet<String>,
}

impl Register {
    /// Sets who vouches for clients that are known by their certificate's name.
    pub(super) fn set_authorities(
        &mut self,
        (verifier, anchors): (Arc<dyn ClientCertVerifier>, Vec<TrustAnchor<'static>>),
    ) {
        self.authorities = Some(verifier);
        self.anchors = anchors;
    }

    /// Takes in one client; every key, secret and name must lead to one client only.
    pub(super) fn add(&mut self, settings: &NamedClient) -> Result<(), AccessError> {
        let name = settings.name.clone();
        if name.is_empty() {
            return Err(AccessError::EmptyName);
        }
        let mut rules = Vec::with_capacity(settings.allow.len());
        for rule in &settings.allow {
            rules.push(Rule::parse(&rule.0).map_err(|source| AccessError::Rule {
                client: name.clone(),
                rule: rule.0.clone(),
                source,
            })?);
        }
        let client = Arc::new(Client {
            name: name.as_str().into(),
            rules,
        });
        let mut described = Described {
            client: client.clone(),
            pins: BTreeSet::new(),
            secrets: Vec::new(),
            certificate: false,
            allow: settings.allow.iter().map(|rule| rule.0.clone()).collect(),
        };
        for proof in &settings.proofs {
            match proof {
                ClientProof::Pin(pin) => {
                    described.pins.insert(*pin);
                }
                ClientProof::CertificateName => described.certificate = true,
                ClientProof::PskFile(_) => {}
            }
            described.secrets.extend(self.add_proof(proof, &client)?);
        }
        if self.described.insert(name.clone(), described).is_some() {
            return Err(AccessError::DuplicateName { client: name });
        }
        Ok(())
    }

    /// Enters one proof; returns the secret where it is one.
    fn add_proof(
        &mut self,
        proof: &ClientProof,
        client: &Arc<Client>,
    ) -> Result<Option<Secret>, AccessError> {
        let name = client.name.to_string();
        match proof {
            ClientProof::Pin(pin) => match self.by_pin.insert(*pin, client.clone()) {
                Some(other) if other.name != client.name => Err(AccessError::DuplicateKey {
                    first: other.name.to_string(),
                    second: name,
                    pin: *pin,
                }),
                _ => Ok(None),
            },
            ClientProof::PskFile(path) => {
                let secret = psk::load_secret(path).map_err(|source| AccessError::Secret {
                    client: name.clone(),
                    source,
                })?;
                if let Some((_, other)) = self.by_secret.iter().find(|(known, _)| *known == secret)
                    && other.name != client.name
                {
                    return Err(AccessError::DuplicateSecret {
                        first: other.name.to_string(),
                        second: name,
                    });
                }
                self.by_secret.push((secret.clone(), client.clone()));
                Ok(Some(secret))
            }
            ClientProof::CertificateName if self.authorities.is_none() => {
                Err(AccessError::NameWithoutAuthorities { client: name })
            }
            ClientProof::CertificateName if DnsName::try_from(name.as_str()).is_err() => {
                Err(AccessError::NotADnsName { client: name })
            }
            ClientProof::CertificateName => {
                self.by_certificate_name.push(client.clone());
                Ok(None)
            }
        }
    }

    /// Whose certificate this was `at` that time; `issuers` are those shown with it.
    pub(super) fn by_certificate(
        &self,
        own: &CertificateDer<'_>,
        issuers: &[CertificateDer<'_>],
        at: UnixTime,
    ) -> Option<Arc<Client>> {
        if let Some(client) = self.by_pin.get(&pin_of(own).ok()?) {
            return Some(client.clone());
        }
        // Verified here whatever the handshake did: a pinned or self-made certificate may carry any name.
        let authorities = self.authorities.as_ref()?;
        authorities.verify_client_cert(own, issuers, at).ok()?;
        let parsed = webpki::EndEntityCert::try_from(own).ok()?;
        // Compared letter by letter: a wildcard certificate is no client in particular.
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
