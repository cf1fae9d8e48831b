//! Identifies clients, and decides which targets each may reach.
//!
//! For each connection, call [`Policy::identify`] with the client's certificates once the handshake is done. For each
//! flow, call [`Policy::identify_by_proof`] if the OPEN carries a proof, then [`Policy::may_reach`] with the parsed
//! target, then [`Policy::may_reach_addr`] for **every** address about to be dialled. The last step must never be left
//! out: only it sees the addresses of a name.
//!
//! Open mode is quic-tun's: every client may reach every target, except those that the guard closes. Named mode denies
//! by default: a client reaches only targets that one of its rules names.
//!
//! In both modes some addresses are closed ([`ClosedReason`]) in every spelling: link-local ones, metadata services of
//! clouds, and the server's own HTTP interface. A rule opens them if it names the address itself. In open mode,
//! `--allow-link-local` opens link-local ones, and nothing opens the others.

mod address;
mod changes;
mod client;
mod closed;
mod denied;
mod header_targets;
mod listen;
mod own_http;
mod registry;
pub(crate) mod rule;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use quictun_wire::listening::ListenAddress;
use quictun_wire::target::{Family, Target};
use rustls::pki_types::{CertificateDer, UnixTime};

pub use client::Client;
pub use closed::ClosedReason;
pub use denied::{AccessDenied, DeniedRequest};
pub use header_targets::{DialAddress, HeaderRule, HeaderRuleError, HeaderTargets};
pub use listen::{ListenDenied, ListenRule, ListenRuleError};
pub use own_http::OwnHttp;
pub use registry::AccessError;
pub use rule::RuleError;

use crate::psk;
use crate::settings::{Access, Guard, NamedClient, Pin};
use crate::tls;
use registry::Registry;

/// Identifies clients and decides which targets each may reach. Built once, shared by all workers.
#[derive(Debug)]
pub struct Policy {
    mode: Mode,
    own_http: Option<OwnHttp>,
    header_targets: HeaderTargets,
    dial_family: Family,
}

/// The identity of the client of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Any client, in open mode, which does not identify clients.
    Anyone,
    /// A client that the configuration names.
    Named(Arc<Client>),
    /// A client that is unknown so far: a proof in an OPEN may still identify it.
    Unknown,
}

impl Policy {
    /// Parses the rules and loads the secrets and authorities.
    pub fn new(access: &Access) -> Result<Self, AccessError> {
        let mode = match access {
            Access::Open { ca, guard } => {
                if let Some(ca) = ca {
                    // The handshake verifies clients against these authorities, so they must load.
                    tls::authorities_verifier(ca)?;
                }
                Mode::Open {
                    guard: *guard,
                    needs_certificate: ca.is_some(),
                }
            }
            Access::Named { clients, ca } => {
                let mut registry = Registry::default();
                if let Some(ca) = ca {
                    registry.set_authorities(tls::authorities_verifier(ca)?);
                }
                for client in clients {
                    registry.add(client)?;
                }
                Mode::Named(registry)
            }
        };
        Ok(Self {
            mode,
            own_http: None,
            header_targets: HeaderTargets::default(),
            dial_family: Family::Any,
        })
    }

    /// Returns the same policy with one more client, or with other rules for a client that is known by this key alone.
    ///
    /// # Errors
    ///
    /// Returns an error if its name, key or secret belongs to another client, and in open mode, which names no clients.
    pub fn with_client(&self, client: &NamedClient) -> Result<Self, AccessError> {
        let Mode::Named(registry) = &self.mode else {
            return Err(AccessError::Open);
        };
        let mut registry = registry.clone();
        registry.remove_with_same_keys(client);
        registry.add(client)?;
        Ok(Self {
            mode: Mode::Named(registry),
            own_http: self.own_http.clone(),
            header_targets: self.header_targets.clone(),
            dial_family: self.dial_family,
        })
    }

    /// Returns the same policy for a process whose HTTP interface is at this address.
    #[must_use]
    pub fn with_own_http(self, own_http: Option<OwnHttp>) -> Self {
        Self { own_http, ..self }
    }

    /// Returns the same policy for a process that writes the header to these targets.
    #[must_use]
    pub fn with_header_targets(self, header_targets: HeaderTargets) -> Self {
        Self {
            header_targets,
            ..self
        }
    }

    /// Returns the same policy for a process that dials addresses of this family.
    #[must_use]
    pub fn with_dial_family(self, dial_family: Family) -> Self {
        Self {
            dial_family,
            ..self
        }
    }

    /// Returns the address family of all dials.
    pub fn dial_family(&self) -> Family {
        self.dial_family
    }

    /// Returns whether this address or socket gets a PROXY header (PROTOCOL HEADER-1).
    pub fn gets_header(&self, dialled: DialAddress<'_>) -> bool {
        self.header_targets.names(dialled)
    }

    /// Returns whether the header may contain the address that the client reports (PROTOCOL SOURCE-3). The client is
    /// looked up again, because the rules may have changed since its request.
    pub fn believes_sources(&self, peer: &Peer) -> bool {
        match peer {
            Peer::Named(client) => {
                let client = self.successor(client);
                client.is_some_and(|client| client.names_sources)
            }
            Peer::Anyone | Peer::Unknown => false,
        }
    }

    /// Identifies a client by the certificates that it presented, its own first; `None` means that it presented none.
    ///
    /// The handshake has proven possession of the first one's key.
    pub fn identify(&self, peer_certs: Option<&[CertificateDer<'_>]>) -> Peer {
        self.identify_at(peer_certs, UnixTime::now())
    }

    /// Identifies a client as of another time: certificates presented before the rules changed must have been valid
    /// then.
    pub fn identify_at(&self, peer_certs: Option<&[CertificateDer<'_>]>, at: UnixTime) -> Peer {
        let shown = peer_certs.and_then(<[_]>::split_first);
        match (&self.mode, shown) {
            // The handshake requires the certificate already; this check is a second line of defence.
            (
                Mode::Open {
                    needs_certificate, ..
                },
                None,
            ) if *needs_certificate => Peer::Unknown,
            (Mode::Open { .. }, _) => Peer::Anyone,
            (Mode::Named(registry), shown) => shown
                .and_then(|(own, issuers)| registry.by_certificate(own, issuers, at))
                .map_or(Peer::Unknown, Peer::Named),
        }
    }

    /// Returns whether a client without a known certificate may still prove that it knows a secret.
    pub fn accepts_proofs(&self) -> bool {
        self.registry().is_some_and(|it| !it.by_secret.is_empty())
    }

    /// Returns the client that has the keys, secrets or certificate name of a client of earlier rules, for flows without
    /// a connection. The name may be another one. If several clients have them now, the one of the old name counts.
    pub fn successor(&self, before: &Client) -> Option<Arc<Client>> {
        self.owner_of(before.name(), &before.proofs)
    }

    /// Returns the client that has one of these proofs. If several clients do, it is the one of this name.
    pub fn owner_of(&self, name: &str, proofs: &[[u8; 32]]) -> Option<Arc<Client>> {
        let registry = self.registry()?;
        let mut found = proofs
            .iter()
            .filter_map(|proof| registry.by_proof.get(proof));
        let first = found.next()?;
        if found.all(|other| other.name == first.name) {
            return Some(first.clone());
        }
        let same = registry.configured.get(name)?.client.clone();
        let shares = proofs.iter().any(|proof| same.proofs.contains(proof));
        shares.then_some(same)
    }

    /// Returns the client of this name.
    pub fn by_name(&self, name: &str) -> Option<Arc<Client>> {
        Some(self.registry()?.configured.get(name)?.client.clone())
    }

    /// Returns the names of all clients, in order; none in open mode.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let names = self
            .registry()
            .into_iter()
            .flat_map(|it| it.configured.keys());
        names.map(String::as_str)
    }

    /// Returns the client with this key.
    pub fn by_pin(&self, pin: &Pin) -> Option<Arc<Client>> {
        self.registry()?.by_pin.get(pin).cloned()
    }

    /// Returns the rules of the client of this name, in the order of the configuration.
    pub fn rules_of(&self, name: &str) -> Vec<String> {
        let configured = self.registry().and_then(|it| it.configured.get(name));
        let allow = configured.map(|configured| configured.allow.iter().cloned().collect());
        allow.unwrap_or_default()
    }

    /// Returns whether clients must prove their identity before they are served.
    pub fn identifies_clients(&self) -> bool {
        self.registry().is_some()
    }

    /// Returns the client whose secret made this proof over the connection's exported bytes.
    pub fn identify_by_proof(&self, exporter: &[u8; 32], proof: &[u8; 32]) -> Option<Arc<Client>> {
        let registry = self.registry()?;
        let mut found = None;
        // All secrets are tried, so that the time taken does not reveal which one matched.
        for (secret, client) in &registry.by_secret {
            if psk::verify(secret.as_bytes(), exporter, proof) {
                found = Some(client);
            }
        }
        found.cloned()
    }

    /// Decides on a target before its name is resolved.
    ///
    /// `Ok` for a name means only that its resolution makes sense: [`Policy::may_reach_addr`] must follow.
    pub fn may_reach(&self, peer: &Peer, target: &Target) -> Result<(), AccessDenied> {
        if let Some(addr) = target.ip_literal() {
            return self.may_reach_addr(peer, target, addr);
        }
        match (&self.mode, peer) {
            (Mode::Open { guard, .. }, Peer::Anyone) => match target {
                Target::Udp { .. } => Err(AccessDenied::Datagrams(rule::narrowest_rule(target))),
                Target::Unix { .. } if !guard.allow_unix => {
                    Err(AccessDenied::Unix(rule::narrowest_rule(target)))
                }
                Target::Unix { path } if self.is_own_path(path) => Err(AccessDenied::ClosedPath {
                    path: path.clone(),
                    rule: rule::narrowest_rule(target),
                }),
                Target::Unix { .. } | Target::Tcp { .. } => Ok(()),
            },
            (Mode::Named(_), Peer::Named(client)) => {
                client.may_reach(target)?;
                match target {
                    Target::Unix { path } if self.is_own_path(path) => {
                        client.may_reach_own_path(target, path)
                    }
                    Target::Unix { .. } | Target::Tcp { .. } | Target::Udp { .. } => Ok(()),
                }
            }
            _ => Err(AccessDenied::UnknownClient(rule::narrowest_rule(target))),
        }
    }

    /// Decides on one address that is about to be dialled for a target with a host (PROTOCOL AUTH-7, AUTH-8).
    ///
    /// IPv4-mapped IPv6 addresses (`::ffff:0:0/96`) are judged as IPv4, and [dialled](dialled_as) as such.
    pub fn may_reach_addr(
        &self,
        peer: &Peer,
        target: &Target,
        addr: IpAddr,
    ) -> Result<(), AccessDenied> {
        let Some((host, port)) = target.host_and_port() else {
            return self.may_reach(peer, target);
        };
        let addr = addr.to_canonical();
        let closed = ClosedReason::of(addr, port, self.own_http.as_ref());
        match (&self.mode, peer) {
            (Mode::Open { .. }, Peer::Anyone) if target.takes_datagrams() => {
                Err(AccessDenied::Datagrams(rule::narrowest_rule(target)))
            }
            (Mode::Open { guard, .. }, Peer::Anyone) => {
                let rule = || SocketAddr::new(addr, port).to_string();
                match closed {
                    Some(ClosedReason::LinkLocal) if guard.allow_link_local => Ok(()),
                    Some(ClosedReason::LinkLocal) => Err(AccessDenied::LinkLocal(addr, rule())),
                    Some(closed) => Err(AccessDenied::Closed(addr, closed, rule())),
                    None => Ok(()),
                }
            }
            (Mode::Named(_), Peer::Named(client)) => {
                client.may_reach_addr(target, host, SocketAddr::new(addr, port), closed)
            }
            _ => Err(AccessDenied::UnknownClient(rule::narrowest_rule(target))),
        }
    }

    /// Decides whether a client may ask the server to listen on this address (PROTOCOL REVERSE-3).
    ///
    /// # Errors
    ///
    /// Returns an error if no rule of the client names the address, or if the server does not know the client by a
    /// name.
    pub fn may_listen(&self, peer: &Peer, address: &ListenAddress) -> Result<(), ListenDenied> {
        match (&self.mode, peer) {
            (Mode::Named(_), Peer::Named(client)) => client.may_listen(address),
            _ => Err(ListenDenied::Unnamed),
        }
    }

    /// Returns the directory below which the socket at a permitted path must be, also after links in the path have been
    /// followed (PROTOCOL AUTH-11). `None` if links may lead anywhere.
    pub fn directory_of(&self, peer: &Peer, path: &str) -> Option<String> {
        match peer {
            Peer::Named(client) => client.directory_of(path).map(str::to_owned),
            Peer::Anyone | Peer::Unknown => None,
        }
    }

    /// Returns the same for a permitted listener.
    pub fn listen_directory_of(&self, peer: &Peer, address: &ListenAddress) -> Option<String> {
        match peer {
            Peer::Named(client) => client.listen_directory_of(address).map(str::to_owned),
            Peer::Anyone | Peer::Unknown => None,
        }
    }

    /// Returns the rules of all clients for listeners; none in open mode.
    pub fn listen_rules(&self) -> impl Iterator<Item = &ListenRule> {
        let clients = self
            .registry()
            .into_iter()
            .flat_map(|it| it.configured.values());
        clients.flat_map(|configured| &configured.client.listen)
    }

    fn registry(&self) -> Option<&Registry> {
        match &self.mode {
            Mode::Named(registry) => Some(registry),
            Mode::Open { .. } => None,
        }
    }

    fn is_own_path(&self, path: &str) -> bool {
        let own = self.own_http.as_ref();
        own.is_some_and(|own| own.is_path(Path::new(path)))
    }
}

/// Returns the address to dial for an address that was judged: IPv4-mapped addresses become IPv4.
pub fn dialled_as(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        v4 @ IpAddr::V4(_) => SocketAddr::new(v4, address.port()),
        // An IPv6 address keeps its zone.
        IpAddr::V6(_) => address,
    }
}

enum Mode {
    Open {
        guard: Guard,
        needs_certificate: bool,
    },
    Named(Registry),
}

impl fmt::Debug for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open { guard, .. } => f.debug_tuple("Open").field(guard).finish(),
            Self::Named(registry) => {
                let names: Vec<&String> = registry.configured.keys().collect();
                f.debug_tuple("Named").field(&names).finish()
            }
        }
    }
}
