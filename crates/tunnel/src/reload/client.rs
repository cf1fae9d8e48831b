//! A client's rules for making connections: how it recognises its servers, and how it proves its identity.

use std::fmt;
use std::sync::Arc;

use quictun_engine::Prover;
use quictun_engine::report::ServerId;
use rustls::ClientConfig;

use super::error::ReloadError;
use crate::settings::{Address, ClientSettings, RemoteServer};
use quictun_trust::identity;
use quictun_trust::psk::{self, Secret};
use quictun_trust::settings::{Offer, Pin, ServerTrust};
use quictun_trust::tls;

/// The rules for each server that the process was started with.
#[derive(Debug)]
pub(crate) struct ClientRules {
    each: Vec<Option<Arc<DialRules>>>,
}

/// The rules for one server.
pub(crate) struct DialRules {
    pub(crate) crypto: Arc<ClientConfig>,
    /// The TLS configuration of the second kind of `ClientHello`: see [`quictun_engine::ServerToDial::fallback`].
    pub(crate) fallback: Option<Arc<ClientConfig>>,
    pub(crate) prover: Option<Prover>,
    trust: ServerTrust,
    secret: Option<Secret>,
    certificate: Option<Pin>,
}

impl ClientRules {
    /// Reads the rules that the settings have for these servers. A server that the settings no longer name keeps its
    /// rules: the set of servers changes only by a restart.
    pub(crate) fn new(
        settings: &ClientSettings,
        started_with: &[Address],
        shared: &tls::SharedConfig,
    ) -> Result<Self, ReloadError> {
        let named = settings.servers();
        let of = |at: &Address| {
            let found = named.iter().find(|server| server.server == *at);
            // A single server is the same one under any name.
            let only = (named.len() == 1 && started_with.len() == 1).then(|| &named[0]);
            let found = found.or(only);
            found
                .map(|server| DialRules::new(server, settings.offer, shared))
                .transpose()
        };
        let mut each: Vec<Option<Arc<DialRules>>> = Vec::new();
        for (index, at) in started_with.iter().enumerate() {
            // All servers of a service have the same rules.
            let same = index
                .checked_sub(1)
                .filter(|&before| started_with[before] == *at);
            let rules = match same {
                Some(before) => each[before].clone(),
                None => of(at)?.map(Arc::new),
            };
            each.push(rules);
        }
        Ok(Self { each })
    }

    pub(crate) fn of(&self, server: ServerId) -> Option<&DialRules> {
        self.each.get(server.0)?.as_deref()
    }

    pub(super) fn changes(&self, new: &Self) -> Vec<String> {
        let pairs = self.each.iter().zip(&new.each);
        let pairs = pairs.filter_map(|(old, new)| Some(old.as_ref()?.changes(new.as_ref()?)));
        let mut lines: Vec<String> = pairs.flatten().collect();
        // Servers may share a secret and a certificate, so lines may be equal.
        lines.sort();
        lines.dedup();
        lines
    }
}

impl DialRules {
    fn new(
        server: &RemoteServer,
        offer: Offer,
        shared: &tls::SharedConfig,
    ) -> Result<Self, ReloadError> {
        let (trust, identity) = (&server.trust, &server.identity);
        let (crypto, fallback) = tls::client_configs(trust, identity, offer, shared)?;
        let secret = identity.psk_file.as_deref().map(psk::load_secret);
        let secret = secret.transpose()?;
        let certificate = identity.certificate.as_ref().map(identity::load_files);
        let prover = secret.clone().map(|secret| {
            let prover: Prover = Arc::new(move |exporter| secret.prove(exporter));
            prover
        });
        Ok(Self {
            crypto,
            fallback,
            prover,
            trust: trust.clone(),
            secret,
            certificate: certificate.transpose()?.map(|own| own.pin),
        })
    }

    fn changes(&self, new: &Self) -> Vec<String> {
        let all = [
            (
                "the server is recognised otherwise",
                self.trust != new.trust,
            ),
            ("psk_file: another secret", self.secret != new.secret),
            ("cert: another key", self.certificate != new.certificate),
        ];
        let made = all.iter().filter(|(_, is_made)| *is_made);
        made.map(|(line, _)| (*line).to_owned()).collect()
    }
}

impl fmt::Debug for DialRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DialRules")
            .field("trust", &self.trust)
            .field("secret", &self.secret)
            .finish_non_exhaustive()
    }
}
