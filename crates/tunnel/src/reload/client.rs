//! A client's rules: its forwards, its servers, and how it dials each of them.

use std::sync::Arc;
use std::time::Duration;

use quictun_engine::CarrierChoice;
use quictun_engine::report::ServerId;

use super::dial_rules::DialRules;
use super::dialled::{self, DialledPlace, DialledServer};
use super::error::ReloadError;
use super::pairing;
use crate::settings::{Address, ClientSettings, Forward, Reverse};
use quictun_trust::logins::Logins;
use quictun_trust::settings::HeaderTargets;
use quictun_trust::tls;

/// The rules of a client, as its configuration has them.
#[derive(Clone, Debug)]
pub(crate) struct ClientRules {
    /// The servers that the configuration names, in its order.
    servers: Vec<(Address, Arc<DialRules>)>,
    /// The places of all servers.
    pub(crate) dialled: Vec<DialledPlace>,
    pub(crate) forwards: Vec<Forward>,
    pub(crate) reverse: Vec<Reverse>,
    pub(crate) logins: Option<Logins>,
    pub(crate) header_targets: HeaderTargets,
    pub(crate) sends_sources: bool,
}

impl ClientRules {
    /// Reads the rules of these settings. `dialled` are the places of all servers.
    pub(crate) fn new(
        settings: &ClientSettings,
        mut dialled: Vec<DialledPlace>,
        shared: &tls::SharedConfig,
    ) -> Result<Self, ReloadError> {
        let named = settings.servers();
        for place in &mut dialled {
            if let Some(server) = named.iter().find(|it| it.server == place.address) {
                place.tls_port = server.tls_port;
            }
        }
        // Without bonds, no flow can change its carrier.
        let carrier = match settings.transport.bond_ttl {
            Some(Duration::ZERO) => CarrierChoice::Quic,
            _ => settings.transport.carrier,
        };
        let servers = named.iter().map(|server| {
            let rules = DialRules::new(server, settings.offer, carrier, shared)?;
            Ok((server.server.clone(), Arc::new(rules)))
        });
        let logins = settings.proxy_users.as_deref().map(Logins::load);
        Ok(Self {
            servers: servers.collect::<Result<_, ReloadError>>()?,
            dialled,
            forwards: settings.forwards.clone(),
            reverse: settings.reverse.clone(),
            logins: logins.transpose()?,
            header_targets: settings.header_targets.clone(),
            sends_sources: settings.sends_sources,
        })
    }

    /// Returns the same rules with these forwards.
    pub(super) fn with_forwards(&self, forwards: Vec<Forward>) -> Self {
        Self {
            forwards,
            ..self.clone()
        }
    }

    /// Returns the rules for a server, or `None` if the configuration does not name it.
    pub(crate) fn of(&self, address: &Address) -> Option<&Arc<DialRules>> {
        let mut named = self.servers.iter();
        named
            .find(|(named, _)| named == address)
            .map(|(_, rules)| rules)
    }

    /// Returns the place of the first server that the configuration names.
    pub(crate) fn first_server(&self) -> Option<ServerId> {
        let (first, _) = self.servers.first()?;
        let place = self
            .dialled
            .iter()
            .position(|place| place.address == *first);
        place.map(ServerId)
    }

    /// Returns the servers in their places, for the workers.
    pub(super) fn for_workers(&self) -> Vec<DialledServer> {
        let each = self.dialled.iter().map(|place| DialledServer {
            address: place.address.clone(),
            rules: self.of(&place.address).cloned(),
        });
        each.collect()
    }

    pub(super) fn changes(&self, new: &Self) -> Vec<String> {
        let pairs = self.servers.iter();
        let pairs = pairs.filter_map(|(address, old)| Some(old.changes(new.of(address)?)));
        let mut lines: Vec<String> = pairs.flatten().collect();
        // Servers may share a secret and a certificate, so lines may be equal.
        lines.sort();
        lines.dedup();
        lines.extend(dialled::changes(&self.dialled, &new.dialled));
        let both = (&self.forwards[..], &new.forwards[..]);
        lines.extend(pairing::changes("forward", both, |it| {
            (it.listen.clone(), it.to.clone())
        }));
        let both = (&self.reverse[..], &new.reverse[..]);
        lines.extend(pairing::changes("reverse forward", both, |it| {
            (it.listen.clone(), it.target.clone())
        }));
        let others = [
            ("proxy_users: other users", self.logins != new.logins),
            (
                "proxy_protocol: other targets",
                !self.header_targets.texts().eq(new.header_targets.texts()),
            ),
            (
                "send_app_addresses: changed",
                self.sends_sources != new.sends_sources,
            ),
        ];
        lines.extend(pairing::made(&others));
        lines
    }
}
