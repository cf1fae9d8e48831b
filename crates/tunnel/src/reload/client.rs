//! What a client reads again: how it recognises its server, and how it proves who it is.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use quictun_engine::Prover;
use rustls::ClientConfig;

use super::{Changes, Prepared, Read, ReloadError, Rules, Source};
use crate::settings::ClientSettings;
use quictun_trust::identity;
use quictun_trust::psk::{self, Secret};
use quictun_trust::settings::{ClientIdentity, Offer, ServerTrust};
use quictun_trust::tls;

/// By what connections are made.
pub(crate) struct ClientRules {
    pub(crate) crypto: Arc<ClientConfig>,
    /// See [`quictun_engine::ClientRole::fallback`].
    pub(crate) fallback: Option<Arc<ClientConfig>>,
    pub(crate) prover: Option<Prover>,
    trust: ServerTrust,
    secret: Option<Secret>,
    certificate: Option<quictun_trust::settings::Pin>,
}

impl ClientRules {
    /// Reads what the settings name.
    pub(crate) fn new(
        trust: &ServerTrust,
        identity: &ClientIdentity,
        offer: Offer,
        key_log: Arc<dyn rustls::KeyLog>,
    ) -> Result<Self, ReloadError> {
        let crypto = tls::client_config_logging(trust, identity, offer, key_log.clone())?;
        let fallback = tls::client_fallback(trust, identity, offer, key_log)?;
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
}

impl fmt::Debug for ClientRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientRules")
            .field("trust", &self.trust)
            .field("secret", &self.secret)
            .finish_non_exhaustive()
    }
}

/// Reads what a reload reads, for the keeper.
pub(crate) fn reads_of_client(read: Read<ClientSettings>) -> Box<dyn Fn()> {
    // What is wrong with the files is told by the process that needs them.
    Box::new(move || {
        if let Ok(settings) = read() {
            let (trust, identity) = (&settings.trust, &settings.identity);
            let no_log = Arc::new(rustls::NoKeyLog);
            drop(ClientRules::new(trust, identity, settings.offer, no_log));
        }
    })
}

/// Reads a client's configuration again.
pub(crate) struct ClientSource {
    read: Read<ClientSettings>,
    /// What is in force.
    rules: Mutex<Arc<ClientRules>>,
}

impl ClientSource {
    pub(crate) fn new(read: Read<ClientSettings>, rules: Arc<ClientRules>) -> Self {
        Self {
            read,
            rules: Mutex::new(rules),
        }
    }
}

impl Source for ClientSource {
    fn read(&self) -> Result<Prepared, ReloadError> {
        let old = self
            .rules
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let settings = (self.read)()?;
        let key_log = old.crypto.key_log.clone();
        let new = ClientRules::new(&settings.trust, &settings.identity, settings.offer, key_log)?;
        let mut lines = Vec::new();
        let what = [
            ("the server is recognised otherwise", old.trust != new.trust),
            ("psk_file: another secret", old.secret != new.secret),
            ("cert: another key", old.certificate != new.certificate),
        ];
        lines.extend(
            what.iter()
                .filter(|(_, new)| *new)
                .map(|(line, _)| (*line).to_owned()),
        );
        Ok(Prepared {
            changes: Changes {
                lines,
                restart: Vec::new(),
            },
            rules: Rules::Client(Arc::new(new)),
        })
    }

    fn commit(&self, rules: &Rules) {
        if let Rules::Client(rules) = rules {
            *self.rules.lock().unwrap_or_else(PoisonError::into_inner) = rules.clone();
        }
    }
}
