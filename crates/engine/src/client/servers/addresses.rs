//! The addresses of servers, and those of the outbound proxies that lead to them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::Servers;
use crate::client::ResolveResult;
use crate::client::ways::{Candidate, Ways};
use crate::report::{CarrierKind, ServerId};

impl Servers {
    /// Returns the ways that a race to a server with these addresses tries. `rtt` is the round-trip time to it, if it has
    /// a connection.
    pub(in crate::client) fn ways(
        &mut self,
        now: Instant,
        server: ServerId,
        addresses: &[SocketAddr],
        rtt: Option<Duration>,
    ) -> Ways {
        let entry = &mut self.entries[server.0];
        entry.rtt = rtt.or(entry.rtt);
        let order = entry.ladder.order(now, entry.rtt);
        match &entry.proxy {
            None => Ways::direct(addresses, order),
            Some(proxy) => {
                Ways::through_proxy(addresses, proxy.as_deref().unwrap_or_default(), order)
            }
        }
    }

    /// Sets the addresses of the proxy through which TLS leads to a server. Another proxy is another network.
    pub(in crate::client) fn set_proxy(
        &mut self,
        now: Instant,
        server: ServerId,
        proxy: Option<ResolveResult>,
    ) {
        let Some(entry) = self.get(server) else {
            return;
        };
        let is_same = match (&entry.proxy, &proxy) {
            (Some(Ok(before)), Some(Ok(now))) => before.iter().any(|at| now.contains(at)),
            (before, now) => before.is_some() == now.is_some(),
        };
        entry.proxy = proxy;
        if !is_same {
            entry.ladder.leave_network(now);
        }
    }

    pub(in crate::client) fn has_proxy(&self, server: ServerId) -> bool {
        self.entries[server.0].proxy.is_some()
    }

    /// Returns the way by TLS to a server with this address.
    pub(in crate::client) fn way_by_tls(
        &self,
        server: ServerId,
        address: SocketAddr,
    ) -> Option<Candidate> {
        let direct = Candidate::alone(address, CarrierKind::Tls);
        let Some(proxy) = &self.entries[server.0].proxy else {
            return Some(direct);
        };
        Some(Candidate {
            address: *proxy.as_ref().ok()?.first()?,
            through_proxy: true,
            ..direct
        })
    }

    /// Returns the addresses that a server's name has resolved to.
    pub(in crate::client) fn addresses(&self, server: ServerId) -> &[SocketAddr] {
        &self.entries[server.0].addresses
    }

    /// Notes the addresses of a server. Returns the reason why a way is missing, if one is.
    pub(in crate::client) fn note_resolved(
        &mut self,
        server: ServerId,
        resolved: &ResolveResult,
    ) -> Option<String> {
        let entry = self.get(server)?;
        entry.resolving = false;
        if let Ok(addresses) = resolved {
            entry.addresses.clone_from(addresses);
        }
        match (&entry.proxy, resolved) {
            (Some(Err(error)), _) | (None, Err(error)) => Some(error.clone()),
            (None, Ok(addresses)) if addresses.is_empty() => {
                Some("the name has no address".to_owned())
            }
            (Some(Ok(_)), _) | (None, Ok(_)) => None,
        }
    }
}
