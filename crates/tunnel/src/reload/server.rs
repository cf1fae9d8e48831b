//! What a server reads again: clients, rules, secrets, authorities, and its own certificate and key.

use std::sync::{Arc, Mutex, PoisonError};

use rustls::pki_types::CertificateDer;
use rustls::{KeyLog, ServerConfig};

use super::{Changes, Prepared, Read, ReloadError, Rules, Source};
use crate::settings::{ServerSettings, restart_keys};
use quictun_trust::access::{OwnHttp, Policy};
use quictun_trust::identity::{self, Identity};
use quictun_trust::settings::{Access, Pin, ServerIdentity};
use quictun_trust::tls::{self, ClientCertPolicy};

/// By what a server's workers judge, and what it shows of itself.
#[derive(Debug)]
pub(crate) struct ServerRules {
    pub(crate) policy: Arc<Policy>,
    pub(crate) crypto: Arc<ServerConfig>,
    chain: Vec<CertificateDer<'static>>,
    pin: Pin,
}

impl ServerRules {
    /// Rules for these clients, and a server with this key.
    pub(crate) fn new(
        access: &Access,
        policy: Policy,
        identity: &Identity,
        key_log: Arc<dyn KeyLog>,
    ) -> Result<Self, tls::TlsError> {
        let asked = ClientCertPolicy::of(access);
        let crypto = tls::server_config_logging(identity, &asked, key_log)?;
        let mut crypto = Arc::unwrap_or_clone(crypto);
        let protocols = tls::server_protocols(access).iter();
        crypto.alpn_protocols = protocols.map(|name| name.to_vec()).collect();
        Ok(Self {
            policy: Arc::new(policy),
            crypto: Arc::new(crypto),
            chain: identity.chain.clone(),
            pin: identity.pin,
        })
    }
}

/// Reads a server's configuration again.
pub(crate) struct ServerSource {
    read: Read<ServerSettings>,
    /// What it was started with.
    started: ServerSettings,
    /// What no rules but those for the address itself lead to; it does not move.
    own_http: Option<OwnHttp>,
    /// What is in force.
    rules: Mutex<Arc<ServerRules>>,
}

impl ServerSource {
    pub(crate) fn new(
        read: Read<ServerSettings>,
        started: ServerSettings,
        own_http: Option<OwnHttp>,
        rules: Arc<ServerRules>,
    ) -> Self {
        Self {
            read,
            started,
            own_http,
            rules: Mutex::new(rules),
        }
    }
}

impl Source for ServerSource {
    fn read(&self) -> Result<Prepared, ReloadError> {
        let old = self
            .rules
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let key_log = old.crypto.key_log.clone();
        let (settings, new) = load(&self.read, self.own_http.clone(), key_log)?;
        let changes = Changes {
            lines: differences(&old, &new),
            restart: restart_keys(&self.started, &settings),
        };
        Ok(Prepared {
            changes,
            rules: Rules::Server(Arc::new(new)),
        })
    }

    fn commit(&self, rules: &Rules) {
        if let Rules::Server(rules) = rules {
            *self.rules.lock().unwrap_or_else(PoisonError::into_inner) = rules.clone();
        }
    }
}

/// Reads what a reload reads, for the keeper.
pub(crate) fn reads_of_server(read: Read<ServerSettings>) -> Box<dyn Fn()> {
    // What is wrong with the files is told by the process that needs them.
    Box::new(move || drop(load(&read, None, Arc::new(rustls::NoKeyLog))))
}

/// Reads everything: the only place where a server's reload opens files.
fn load(
    read: &Read<ServerSettings>,
    own_http: Option<OwnHttp>,
    key_log: Arc<dyn KeyLog>,
) -> Result<(ServerSettings, ServerRules), ReloadError> {
    let settings = read()?;
    if matches!(settings.access, Access::Open { .. }) {
        return Err(ReloadError::Open);
    }
    let policy = Policy::new(&settings.access)?.with_own_http(own_http);
    let identity = match &settings.identity {
        ServerIdentity::Files(files) => identity::load_files(files)?,
        // None is made: a key that has gone is a slip.
        ServerIdentity::State(dir) => identity::load(dir, "server")?,
    };
    let rules = ServerRules::new(&settings.access, policy, &identity, key_log)?;
    Ok((settings, rules))
}

fn differences(old: &ServerRules, new: &ServerRules) -> Vec<String> {
    let mut lines = old.policy.changes(&new.policy);
    if new.pin != old.pin {
        lines.push(format!(
            "server key: {} instead of {}; clients that pin the old one cannot connect again",
            new.pin, old.pin
        ));
    } else if new.chain != old.chain {
        lines.push("server certificate: another one for the same key".to_owned());
    }
    lines
}
