//! Who a client is, and which targets it may reach.
//!
//! For each connection, once its handshake is done: [`Policy::identify`] with the certificates the
//! client showed. For each flow: where the OPEN carries a proof, [`Policy::identify_by_proof`]; then
//! [`Policy::may_reach`] with the parsed target; then, for **every** address that is about to be
//! dialled, [`Policy::may_reach_addr`]. The last step is never left out: only it sees where a name leads.
//!
//! Open mode is quic-tun's: anyone, anywhere, but for what the guard closes. Named mode denies by
//! default: nothing is reached that no rule of the client names.
//!
//! In both modes some addresses are closed ([`Closed`]) in every spelling: link-local ones, metadata services of
//! clouds, and the server's own HTTP interface. A rule opens them if it names the address itself; in open mode,
//! `--allow-link-local` opens link-local ones and nothing the others.

mod address;
mod changes;
mod client;
mod closed;
mod denied;
mod headed;
mod listen;
mod own_http;
mod register;
pub(crate) mod rule;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use quictun_wire::listening::ListenAddress;
use quictun_wire::target::Target;
use rustls::pki_types::{CertificateDer, UnixTime};

pub use client::Client;
pub use closed::Closed;
pub use denied::{Denial, Denied};
pub use headed::{Dialled, HeaderRule, HeaderRuleError, HeaderTargets};
pub use listen::{ListenDenied, ListenRule, ListenRuleError};
pub use own_http::OwnHttp;
pub use register::AccessError;
pub use rule::RuleError;

use crate::psk;
use crate::settings::{Access, Guard, NamedClient, Pin};
use crate::tls;
use register::Register;

/// Decides who is who and who may go where. Built once, shared by all workers.
#[derive(Debug)]
pub struct Policy {
    mode: Mode,
    own_http: Option<OwnHttp>,
    headed: HeaderTargets,
}

/// Who is at the other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Open mode: it does not matter who.
    Anyone,
    /// A client that the configuration names.
    Named(Arc<Client>),
    /// Unknown so far: a proof in an OPEN may still tell.
    Unknown,
}

impl Policy {
    /// Parses the rules and loads the secrets and authorities.
    pub fn new(access: &Access) -> Result<Self, AccessError> {
        let mode = match access {
            Access::Open { ca, guard } => {
                if let Some(ca) = ca {
                    // The handshake will hold clients against them.
                    tls::authorities_verifier(ca)?;
                }
                Mode::Open {
                    guard: *guard,
                    needs_certificate: ca.is_some(),
                }
            }
            Access::Named { clients, ca } => {
                let mut register = Register::default();
                if let Some(ca) = ca {
                    register.set_authorities(tls::authorities_verifier(ca)?);
                }
                for client in clients {
                    register.add(client)?;
                }
                Mode::Named(register)
            }
        };
        Ok(Self {
            mode,
            own_http: None,
            headed: HeaderTargets::default(),
        })
    }

    /// The same policy with one client more, or with a client that is known by nothing but this key and has other rules now.
    ///
    /// # Errors
    ///
    /// Its name, key or secret is that of another client; an open policy names no clients.
    pub fn with_client(&self, client: &NamedClient) -> Result<Self, AccessError> {
        let Mode::Named(register) = &self.mode else {
            return Err(AccessError::Open);
        };
        let mut register = register.clone();
        register.remove_same(client);
        register.add(client)?;
        Ok(Self {
            mode: Mode::Named(register),
            own_http: self.own_http.clone(),
            headed: self.headed.clone(),
        })
    }

    /// The same policy in a process whose HTTP interface is there.
    #[must_use]
    pub fn with_own_http(self, own_http: Option<OwnHttp>) -> Self {
        Self { own_http, ..self }
    }

    /// The same policy in a process that writes the header to these targets.
    #[must_use]
    pub fn with_header_targets(self, headed: HeaderTargets) -> Self {
        Self { headed, ..self }
    }

    /// Whether what is dialled gets a PROXY header (PROTOCOL HEADER-1).
    pub fn heads(&self, dialled: Dialled<'_>) -> bool {
        self.headed.names(dialled)
    }

    /// Whether the header may have the address that the client tells (PROTOCOL SOURCE-3). A client is who it is by name: the
    /// rules may have changed since it asked.
    pub fn believes_sources(&self, peer: &Peer) -> bool {
        match peer {
            Peer::Named(client) => {
                let client = self.by_name(client.name());
                client.is_some_and(|client| client.names_sources)
            }
            Peer::Anyone | Peer::Unknown => false,
        }
    }

    /// Says who showed these certificates, the own one first; `None`: none were shown.
    ///
    /// The handshake has proven possession of the first one's key.
    pub fn identify(&self, peer_certs: Option<&[CertificateDer<'_>]>) -> Peer {
        self.identify_at(peer_certs, UnixTime::now())
    }

    /// The same at another time: certificates that were shown before the rules changed must have been valid then.
    pub fn identify_at(&self, peer_certs: Option<&[CertificateDer<'_>]>, at: UnixTime) -> Peer {
        let shown = peer_certs.and_then(<[_]>::split_first);
        match (&self.mode, shown) {
            // The handshake requires the certificate; this says it again should it ever not.
            (
                Mode::Open {
                    needs_certificate, ..
                },
                None,
            ) if *needs_certificate => Peer::Unknown,
            (Mode::Open { .. }, _) => Peer::Anyone,
            (Mode::Named(register), shown) => shown
                .and_then(|(own, issuers)| register.by_certificate(own, issuers, at))
                .map_or(Peer::Unknown, Peer::Named),
        }
    }

    /// Whether a client without a known certificate may still turn out to be one with a known secret.
    pub fn accepts_proofs(&self) -> bool {
        matches!(&self.mode, Mode::Named(register) if !register.by_secret.is_empty())
    }

    /// The client of this name: for flows that are still being delivered after their connection has gone.
    pub fn by_name(&self, name: &str) -> Option<Arc<Client>> {
        match &self.mode {
            Mode::Named(register) => Some(register.described.get(name)?.client.clone()),
            Mode::Open { .. } => None,
        }
    }

    /// The names of all clients, in order; none in open mode.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let register = match &self.mode {
            Mode::Named(register) => Some(register),
            Mode::Open { .. } => None,
        };
        let names = register.into_iter().flat_map(|it| it.described.keys());
        names.map(String::as_str)
    }

    /// The client with this key.
    pub fn by_pin(&self, pin: &Pin) -> Option<Arc<Client>> {
        match &self.mode {
            Mode::Named(register) => register.by_pin.get(pin).cloned(),
            Mode::Open { .. } => None,
        }
    }

    /// The rules of the client of this name, as they are configured, in order.
    pub fn rules_of(&self, name: &str) -> Vec<String> {
        let described = match &self.mode {
            Mode::Named(register) => register.described.get(name),
            Mode::Open { .. } => None,
        };
        let allow = described.map(|described| described.allow.iter().cloned().collect());
        allow.unwrap_or_default()
    }

    /// Whether clients have to show who they are before they are served.
    pub fn asks_who(&self) -> bool {
        matches!(&self.mode, Mode::Named(_))
    }

    /// Says whose secret made this proof over the connection's exported bytes.
    pub fn identify_by_proof(&self, exporter: &[u8; 32], proof: &[u8; 32]) -> Option<Arc<Client>> {
        let Mode::Named(register) = &self.mode else {
            return None;
        };
        let mut found = None;
        // Every secret is tried, so that the time taken does not say which one it was.
        for (secret, client) in &register.by_secret {
            if psk::verify(secret.as_bytes(), exporter, proof) {
                found = Some(client);
            }
        }
        found.cloned()
    }

    /// Decides on a target before its name is resolved.
    ///
    /// `Ok` for a name means only that resolving it is worth while: [`Policy::may_reach_addr`] follows.
    pub fn may_reach(&self, peer: &Peer, target: &Target) -> Result<(), Denied> {
        if let Some(addr) = target.ip_literal() {
            return self.may_reach_addr(peer, target, addr);
        }
        match (&self.mode, peer) {
            (Mode::Open { guard, .. }, Peer::Anyone) => match target {
                Target::Unix { .. } if !guard.allow_unix => Err(Denied::Unix(rule::naming(target))),
                Target::Unix { path } if self.is_own_path(path) => Err(Denied::ClosedPath {
                    path: path.clone(),
                    rule: rule::naming(target),
                }),
                Target::Unix { .. } | Target::Tcp { .. } => Ok(()),
            },
            (Mode::Named(_), Peer::Named(client)) => {
                client.may_reach(target)?;
                match target {
                    Target::Unix { path } if self.is_own_path(path) => {
                        client.may_reach_own_path(target, path)
                    }
                    Target::Unix { .. } | Target::Tcp { .. } => Ok(()),
                }
            }
            _ => Err(Denied::UnknownClient(rule::naming(target))),
        }
    }

    /// Decides on one address that is about to be dialled for a TCP target (PROTOCOL AUTH-7, AUTH-8).
    ///
    /// IPv4 addresses in IPv6 clothes (`::ffff:0:0/96`) are judged as IPv4, and [dialled](dialled_as) so.
    pub fn may_reach_addr(&self, peer: &Peer, target: &Target, addr: IpAddr) -> Result<(), Denied> {
        let Target::Tcp { host, port, .. } = target else {
            return self.may_reach(peer, target);
        };
        let addr = addr.to_canonical();
        let closed = Closed::of(addr, *port, self.own_http.as_ref());
        match (&self.mode, peer) {
            (Mode::Open { guard, .. }, Peer::Anyone) => {
                let rule = || SocketAddr::new(addr, *port).to_string();
                match closed {
                    Some(Closed::LinkLocal) if guard.allow_link_local => Ok(()),
                    Some(Closed::LinkLocal) => Err(Denied::LinkLocal(addr, rule())),
                    Some(closed) => Err(Denied::Closed(addr, closed, rule())),
                    None => Ok(()),
                }
            }
            (Mode::Named(_), Peer::Named(client)) => {
                client.may_reach_addr(target, host, SocketAddr::new(addr, *port), closed)
            }
            _ => Err(Denied::UnknownClient(rule::naming(target))),
        }
    }

    /// Decides where a client may have the server listen (PROTOCOL REVERSE-3).
    ///
    /// # Errors
    ///
    /// No rule of the client's names the address, or the server knows it by no name.
    pub fn may_listen(&self, peer: &Peer, address: &ListenAddress) -> Result<(), ListenDenied> {
        match (&self.mode, peer) {
            (Mode::Named(_), Peer::Named(client)) => client.may_listen(address),
            _ => Err(ListenDenied::Unnamed),
        }
    }

    fn is_own_path(&self, path: &str) -> bool {
        let own = self.own_http.as_ref();
        own.is_some_and(|own| own.is_path(Path::new(path)))
    }
}

/// The address that is dialled for one that was judged: IPv4-mapped addresses become IPv4.
pub fn dialled_as(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        v4 @ IpAddr::V4(_) => SocketAddr::new(v4, address.port()),
        // With its zone.
        IpAddr::V6(_) => address,
    }
}

enum Mode {
    Open {
        guard: Guard,
        needs_certificate: bool,
    },
    Named(Register),
}

impl fmt::Debug for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open { guard, .. } => f.debug_tuple("Open").field(guard).finish(),
            Self::Named(register) => {
                let names: Vec<&String> = register.described.keys().collect();
                f.debug_tuple("Named").field(&names).finish()
            }
        }
    }
}
