//! The forwards of a client: their listeners, the destinations of their connections, and the users of the proxies.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use quictun_control::systemd::{self, ActivatedSocket};
use quictun_trust::logins::Logins;
use tracing::warn;

use crate::forward_listener::{ForwardDestination, ForwardListener};
use crate::handover::TakenForwards;
use crate::listener::{self, Listener, with_one_listener};
use crate::reload::forwards::{ForwardNumber, ForwardTable};
use crate::settings::{ClientSettings, Forward, ForwardTo, ListenOn};
use crate::token_source::{TokenPlugin, TokenSourceError};
use crate::transparent::DivertMethod;

/// The forwards whose listeners are open.
#[derive(Default)]
pub(super) struct OpenForwards {
    pub(super) table: ForwardTable,
    pub(super) of_workers: BTreeMap<ForwardNumber, ForwardListener>,
    /// The plugins that name tokens, by the numbers of the forwards.
    pub(super) plugins: Vec<Option<TokenPlugin>>,
}

impl OpenForwards {
    /// Numbers the forwards, and determines the destinations of their connections.
    pub(super) fn new(
        forwards: &[Forward],
        listeners: Vec<Listener>,
    ) -> Result<Self, TokenSourceError> {
        let mut open = Self::default();
        for (forward, listener) in forwards.iter().zip(listeners) {
            let (destination, plugin) = destination(forward)?;
            let listener = Arc::new(listener);
            let number = open.table.add(forward.clone(), &listener);
            let of_worker = ForwardListener {
                listener,
                destination,
            };
            open.of_workers.insert(number, of_worker);
            open.plugins.push(plugin);
        }
        Ok(open)
    }
}

/// Returns the destination of a forward's connections, and the plugin that gives their token once or for each of them.
fn destination(
    forward: &Forward,
) -> Result<(ForwardDestination, Option<TokenPlugin>), TokenSourceError> {
    if let ForwardTo::Source(source) = &forward.to {
        let plugin = TokenPlugin::new(source)?;
        let fixed = plugin.fixed().map(str::to_owned);
        let destination = fixed.map_or(ForwardDestination::Plugin, ForwardDestination::Token);
        return Ok((destination, Some(plugin)));
    }
    let destination = ForwardDestination::of(&forward.to);
    Ok((destination.unwrap_or(ForwardDestination::Plugin), None))
}

/// Reads the users of the proxies. Without users, a proxy must listen on a loopback address. A listener that systemd
/// has made may be open to other machines, whatever the configuration says.
pub(super) fn logins(
    users: Option<&Path>,
    forwards: &[Forward],
    listeners: &[Listener],
) -> Result<Option<Logins>> {
    if let Some(path) = users {
        return Ok(Some(Logins::load(path)?));
    }
    for (forward, listener) in forwards.iter().zip(listeners) {
        anyhow::ensure!(
            forward.to != ForwardTo::Proxy || listener.is_local(),
            "the proxy on {} would serve everyone who reaches that address: listen on 127.0.0.1, or give users and their passwords with --proxy-users FILE",
            listener.address()
        );
    }
    Ok(None)
}

/// Returns the listeners of the forwards: taken over from the previous process, inherited from systemd in the order of the
/// forwards, or bound here. A forward that needs two listeners is in `settings` once for each of them afterwards, with
/// its address.
pub(super) fn listeners(
    settings: &mut ClientSettings,
    mut taken: TakenForwards,
) -> Result<Vec<Listener>> {
    let mut inherited = Vec::new();
    for (name, activated) in systemd::listen_fds()? {
        match activated {
            ActivatedSocket::Tcp(listener) => inherited.push(Listener::Tcp(listener)),
            ActivatedSocket::Unix(listener) => inherited.push(Listener::Unix(listener)),
            ActivatedSocket::Udp(_) => {
                warn!(target: "quictun", name, "an inherited socket is not a listener: it is not used");
            }
        }
    }
    let mut inherited = inherited.into_iter();
    let mut listeners = Vec::new();
    for forward in std::mem::take(&mut settings.forwards) {
        // Redirected connections need a socket with its own options, so no inherited one is used. An inherited one is
        // never for datagrams.
        let mut given = match forward.listen {
            ListenOn::Transparent(..) | ListenOn::Udp(_) | ListenOn::TransparentUdp(_) => None,
            ListenOn::Tcp(_) | ListenOn::Loopback(_) | ListenOn::Unix(_) => inherited.next(),
        };
        let one_each = with_one_listener(vec![forward]);
        // Whatever the configuration says, an inherited listener is the only one of its forward.
        let count = given.as_ref().map_or(one_each.len(), |_| 1);
        for forward in one_each.into_iter().take(count) {
            listeners.push(match (taken.take(&forward.listen)?, given.take()) {
                (Some(listener), _) | (None, Some(listener)) => listener,
                (None, None) => listener::bind(&forward.listen)
                    .with_context(|| cannot_listen(&forward.listen))?,
            });
            settings.forwards.push(forward);
        }
    }
    taken.close_rest()?;
    Ok(listeners)
}

fn cannot_listen(address: &ListenOn) -> String {
    match address {
        ListenOn::Tcp(address) | ListenOn::Transparent(DivertMethod::Redirect, address) => {
            format!("cannot listen on TCP {address}")
        }
        ListenOn::Transparent(DivertMethod::Tproxy, address) => {
            format!("cannot listen on TCP {address} for tproxy, which needs CAP_NET_ADMIN")
        }
        ListenOn::Loopback(port) => format!("cannot listen on TCP port {port}"),
        ListenOn::Udp(address) => format!("cannot listen on UDP {address}"),
        ListenOn::TransparentUdp(address) => {
            format!("cannot listen on UDP {address} for tproxy, which needs CAP_NET_ADMIN")
        }
        ListenOn::Unix(path) => format!("cannot listen on the Unix socket {}", path.display()),
    }
}
