//! The rules for dialling one server: how a client recognises it, and how it proves its own identity.

use std::fmt;
use std::sync::Arc;

use quictun_engine::{CarrierChoice, Prover, ServerPlace, ServerToDial};
use rustls::ClientConfig;

use super::error::ReloadError;
use super::pairing::made;
use crate::settings::{Address, RemoteServer};
use quictun_trust::identity;
use quictun_trust::psk::{self, Secret};
use quictun_trust::settings::{Offer, Pin, ServerTrust};
use quictun_trust::tls;

/// The rules for one server.
pub(crate) struct DialRules {
    pub(crate) crypto: Arc<ClientConfig>,
    /// The TLS configuration of the second kind of `ClientHello`: see [`quictun_engine::ServerToDial::fallback`].
    pub(crate) fallback: Option<Arc<ClientConfig>>,
    pub(crate) prover: Option<Prover>,
    carrier: CarrierChoice,
    trust: ServerTrust,
    secret: Option<Secret>,
    certificate: Option<Pin>,
}

impl DialRules {
    pub(super) fn new(
        server: &RemoteServer,
        offer: Offer,
        carrier: CarrierChoice,
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
            // The original's protocol has no bonds, by which flows change their carrier.
            carrier: match offer {
                Offer::Compat => CarrierChoice::Quic,
                Offer::Both | Offer::Native => carrier,
            },
            trust: trust.clone(),
            secret,
            certificate: certificate.transpose()?.map(|own| own.pin),
        })
    }

    /// Returns the server at this address, with these rules, for the engine.
    pub(crate) fn to_dial(&self, address: &Address, place: ServerPlace) -> ServerToDial {
        ServerToDial {
            crypto: self.crypto.clone(),
            fallback: self.fallback.clone(),
            name: address.name().to_owned(),
            prover: self.prover.clone(),
            carrier: self.carrier,
            place,
        }
    }

    pub(super) fn changes(&self, new: &Self) -> Vec<String> {
        made(&[
            (
                "the server is recognised otherwise",
                self.trust != new.trust,
            ),
            ("psk_file: another secret", self.secret != new.secret),
            ("cert: another key", self.certificate != new.certificate),
        ])
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
