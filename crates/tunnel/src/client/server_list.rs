//! The servers of a client: as given, as the engine dials them, and as people see them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use quictun_control::rest::{ServerName, ServerNames};
use quictun_engine::{ServerPlace, ServerToDial};
use quictun_stackd::detour::Detour;

use crate::reload::client::ClientRules;
use crate::reload::dialled::{DialledServers, PlaceLimits};
use crate::service::places::expand_services;
use crate::settings::{Address, ClientSettings};

pub(super) fn server_names(settings: &ClientSettings) -> Vec<Address> {
    let servers = settings.servers().into_iter();
    servers.map(|server| server.server).collect()
}

/// Returns the places of all servers, as they are at the start.
pub(super) fn dialled_servers(settings: &ClientSettings) -> DialledServers {
    let named = server_names(settings);
    let is_ipv4 = |address: &Address| address.name().parse::<Ipv4Addr>().is_ok();
    let limits = PlaceLimits {
        fixed: settings.tun.is_some() || !settings.server_addresses.is_empty(),
        ipv4_only: named.iter().all(is_ipv4),
    };
    DialledServers::new(&expand_services(&named), limits)
}

pub(super) fn servers_to_dial(servers: &[Address], rules: &ClientRules) -> Vec<ServerToDial> {
    let dialled = servers.iter().enumerate().filter_map(|(index, server)| {
        let rules = rules.of(server)?;
        // Dialling the first place of a service starts the look-up of its records.
        let wanted = index == 0 || server.at().is_some() || servers[index - 1] != *server;
        Some(ServerToDial {
            crypto: rules.crypto.clone(),
            fallback: rules.fallback.clone(),
            name: server.name().to_owned(),
            prover: rules.prover.clone(),
            place: ServerPlace {
                wanted,
                ..ServerPlace::default()
            },
        })
    });
    dialled.collect()
}

/// Returns the servers in the form that people see: as given, with the addresses of a name if they are known.
pub(super) fn servers_shown(settings: &ClientSettings, dialled: &[Address]) -> ServerNames {
    let known = &settings.server_addresses;
    let named = |(index, server): (usize, &Address)| {
        let has_name = server.name().parse::<IpAddr>().is_err();
        let name = if index == 0 && !known.is_empty() && has_name {
            let addresses: Vec<_> = known.iter().map(IpAddr::to_string).collect();
            format!("{server} ({})", addresses.join(", "))
        } else {
            server.to_string()
        };
        let is_first = index == 0 || server.at().is_some() || dialled[index - 1] != *server;
        is_first.then(|| ServerName {
            name,
            ..ServerName::default()
        })
    };
    ServerNames::new(dialled.iter().enumerate().map(named).collect())
}

/// Returns the known addresses of the first server. If there are any, its name is not looked up.
pub(super) fn server_known(settings: &ClientSettings, detour: Option<&Detour>) -> Vec<SocketAddr> {
    let port = settings.server.at().map_or(0, |server| server.port);
    let given = settings.server_addresses.iter();
    match detour {
        Some(detour) => detour.server().to_vec(),
        None => given.map(|ip| SocketAddr::new(*ip, port)).collect(),
    }
}
