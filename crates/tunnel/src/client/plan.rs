//! A client's settings, and everything that follows from them alone.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use quictun_control::rest::{ServerName, ServerNames};
use quictun_engine::report::ServerId;
use quictun_engine::{ServerPlace, ServerToDial};
use quictun_stackd::settings::{TunDevice, TunSettings};
use quictun_trust::tls;

use super::kept_forwards::KeptForwards;
use crate::launch;
use crate::reload::change::Rules;
use crate::reload::client::ClientRules;
use crate::reload::dialled::{DialledServers, PlaceLimits};
use crate::reload::forwards::ForwardTable;
use crate::reload::running_client::ClientState;
use crate::reload::{ReadConfig, RereadClient, source};
use crate::service::places::expand_services;
use crate::settings::{Address, ClientSettings, ForwardTo, TokenSource};
use crate::token_source;

pub(super) struct ClientPlan {
    pub(super) settings: ClientSettings,
    pub(super) read_again: Option<ReadConfig<RereadClient>>,
    pub(super) workers: usize,
    /// Number of connections of each worker to each server.
    pub(super) connections: usize,
    /// The servers that the settings name, in their order.
    pub(super) named: Vec<Address>,
    /// The addresses to dial, in which each service occurs once for each of its places.
    pub(super) dialled: Vec<Address>,
    /// The places of all servers, as they are at the start.
    pub(super) places: Arc<DialledServers>,
    /// The known addresses of the first server. If there are any, its name is not looked up.
    pub(super) known: Vec<SocketAddr>,
}

impl ClientPlan {
    pub(super) fn new(
        settings: ClientSettings,
        read_again: Option<ReadConfig<RereadClient>>,
    ) -> Self {
        let connections = settings.transport.connections.max(1);
        let workers = settings.transport.workers.clamp(1, connections);
        let named = settings.servers().into_iter();
        let named: Vec<Address> = named.map(|server| server.server).collect();
        let dialled = expand_services(&named);
        let is_ipv4 = |address: &Address| address.name().parse::<Ipv4Addr>().is_ok();
        let limits = PlaceLimits {
            fixed: settings.tun.is_some() || !settings.server_addresses.is_empty(),
            ipv4_only: named.iter().all(is_ipv4),
        };
        let port = settings.server.at().map_or(0, |server| server.port);
        let known = settings.server_addresses.iter();
        Self {
            workers,
            connections: connections.div_ceil(workers),
            places: Arc::new(DialledServers::new(&dialled, limits)),
            known: known.map(|ip| SocketAddr::new(*ip, port)).collect(),
            named,
            dialled,
            settings,
            read_again,
        }
    }

    /// Starts the process that opens files again. A client that keeps the device also keeps its privileges and opens
    /// files itself, so it needs no keeper.
    pub(super) fn start_keeper(&self) -> Result<()> {
        let settings = &self.settings;
        let apart = |tun: &TunSettings| matches!(tun.device, TunDevice::Apart(_));
        if !settings.tun.as_ref().is_none_or(apart) {
            return Ok(());
        }
        let kept = KeptForwards::new(&settings.forwards);
        let load = self.read_again.clone().map(|read| {
            let state = ClientState::new(ForwardTable::default(), self.places.clone());
            let load = source::of_client(read, Arc::new(state), tls::SharedConfig::default());
            let kept = kept.clone();
            source::reader(load, move |rules| {
                if let Rules::Client(rules) = rules {
                    kept.note(&rules.forwards);
                }
            })
        });
        let listen = self.read_again.as_ref().map(|_| kept.fns());
        launch::start_keeper(&settings.control, token_files(settings), load, None, listen)
    }

    /// Returns the servers for the engine.
    pub(super) fn to_dial(&self, rules: &ClientRules) -> Vec<ServerToDial> {
        let each = self.dialled.iter().enumerate();
        let each = each.filter_map(|(index, server)| {
            // Dialling the first place of a service starts the look-up of its records.
            let place = ServerPlace {
                wanted: self.is_first(index),
                tls_port: self.places.tls_port(ServerId(index)),
                ..ServerPlace::default()
            };
            Some(rules.of(server)?.to_dial(server, place))
        });
        each.collect()
    }

    /// Returns the servers in the form that people see: as given, with the addresses of a name if they are known.
    pub(super) fn shown(&self) -> ServerNames {
        let named = |(index, server): (usize, &Address)| {
            let has_name = server.name().parse::<IpAddr>().is_err();
            let name = if index == 0 && !self.known.is_empty() && has_name {
                let addresses = self.known.iter().map(|at| at.ip().to_string());
                format!("{server} ({})", addresses.collect::<Vec<_>>().join(", "))
            } else {
                server.to_string()
            };
            self.is_first(index).then(|| ServerName {
                name,
                tls_address: server.tls_address(self.places.tls_port(ServerId(index))),
                ..ServerName::default()
            })
        };
        ServerNames::new(self.dialled.iter().enumerate().map(named).collect())
    }

    /// Returns whether an address is a single server, or the first place of its service.
    fn is_first(&self, index: usize) -> bool {
        let server = &self.dialled[index];
        index == 0 || server.at().is_some() || self.dialled[index - 1] != *server
    }
}

/// Returns the files that are read for each connection, with the limits of their lengths.
fn token_files(settings: &ClientSettings) -> Vec<(PathBuf, u64)> {
    let forwards = settings.forwards.iter();
    let files = forwards.filter_map(|forward| match &forward.to {
        ForwardTo::Source(TokenSource::File(path)) => Some((path.clone(), token_source::MAX_FILE)),
        _ => None,
    });
    files.collect()
}
