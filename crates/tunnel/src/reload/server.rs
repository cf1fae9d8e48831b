//! The rules of a server: clients, their rules, secrets and authorities, and the server's own certificate and key.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;

use quictun_trust::access::{AccessError, Policy};
use quictun_trust::identity::Identity;
use quictun_trust::settings::{Access, NamedClient, Pin};
use quictun_trust::tls;

/// The rules that a server's workers apply, and the certificate that the server presents.
#[derive(Debug)]
pub(crate) struct ServerRules {
    pub(crate) policy: Arc<Policy>,
    pub(crate) crypto: Arc<ServerConfig>,
    chain: Vec<CertificateDer<'static>>,
    pin: Pin,
}

impl ServerRules {
    pub(crate) fn new(
        access: &Access,
        policy: Policy,
        identity: &Identity,
        shared: &tls::SharedConfig,
    ) -> Result<Self, tls::TlsError> {
        Ok(Self {
            policy: Arc::new(policy),
            crypto: tls::server_config_for(access, identity, shared)?,
            chain: identity.chain.clone(),
            pin: identity.pin,
        })
    }

    /// Returns the same rules with this client added. The TLS configuration stays as it is until the next reload: it
    /// already accepts clients with any key.
    pub(super) fn with_client(&self, client: &NamedClient) -> Result<Self, AccessError> {
        Ok(Self {
            policy: Arc::new(self.policy.with_client(client)?),
            crypto: self.crypto.clone(),
            chain: self.chain.clone(),
            pin: self.pin,
        })
    }

    pub(super) fn changes(&self, new: &Self) -> Vec<String> {
        let mut lines = self.policy.changes(&new.policy);
        if new.pin != self.pin {
            lines.push(format!(
                "server key: {} instead of {}; clients that pin the old one cannot connect again",
                new.pin, self.pin
            ));
        } else if new.chain != self.chain {
            lines.push("server certificate: another one for the same key".to_owned());
        }
        lines
    }
}
