//! Who a client is, and which targets it may reach.
//!
//! For each connection, once its handshake is done: [`Policy::identify`] with the certificates the
//! client showed. For each flow: where the OPEN carries a proof, [`Policy::identify_by_proof`]; then
//! [`Policy::may_reach`] with the parsed target; then, for **every** address that is about to be
//! dialled, [`Policy::may_reach_addr`]. The last step is never left out: only it sees where a name leads.
//!
//! Open mode is quic-tun's: anyone, anywhere, but for what the guard closes. Named mode denies by
//! default: nothing is reached that no rule of the client names.

mod register;
mod rule;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use quictun_wire::target::Target;
use rustls::pki_types::CertificateDer;
use thiserror::Error;

pub use register::AccessError;
pub use rule::RuleError;

use crate::psk;
use crate::settings::{Access, Guard};
use crate::tls;
use register::Register;
use rule::{Reach, Rule};

/// Decides who is who and who may go where. Built once, shared by all workers.
#[derive(Debug)]
pub struct Policy {
    mode: Mode,
}

/// Who is at the other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Open mode: it does not matter who.
    Anyone,
    /// A client that the configuration names.
    Named(Arc<Client>),
    /// Nobody known, so far: a proof in an OPEN may still tell.
    Unknown,
}

/// A client the server knows.
#[derive(Debug, PartialEq, Eq)]
pub struct Client {
    name: Arc<str>,
    rules: Vec<Rule>,
}

/// Why a flow is refused. Each message says what would allow it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Denied {
    /// Open mode, Unix socket.
    #[error(
        "Unix sockets are closed to clients without a name: start the server with --allow-unix, or name the client and give it the rule {rule:?}"
    )]
    Unix {
        /// The rule that would allow it to a named client.
        rule: String,
    },
    /// Open mode, link-local address.
    #[error(
        "link-local addresses such as {addr} are closed to clients without a name: start the server with --allow-link-local, or name the client and give it the rule {rule:?}"
    )]
    LinkLocal {
        /// The address that was to be dialled.
        addr: IpAddr,
        /// The rule that would allow it to a named client.
        rule: String,
    },
    /// The client has not proven to be anyone.
    #[error(
        "the client is none that the server knows: give it the key or secret of a named client that has the rule {rule:?}"
    )]
    UnknownClient {
        /// The rule that the client would need.
        rule: String,
    },
    /// No rule names the target.
    #[error("the client {client:?} has no rule for {target}: {rule:?} would allow it")]
    NoRule {
        /// Who asked.
        client: String,
        /// For what.
        target: Target,
        /// The rule that would allow it.
        rule: String,
    },
    /// A name, where all rules are addresses, networks and Unix sockets.
    #[error(
        "the client {client:?} has rules for addresses only, and {target} is not looked up for it: {rule:?} would allow it"
    )]
    NoNames {
        /// Who asked.
        client: String,
        /// For what.
        target: Target,
        /// The rule that would allow it.
        rule: String,
    },
    /// No rule names the address behind the target's name.
    #[error("the client {client:?} has no rule for {target} at {addr}: {rule:?} would allow it")]
    NoRuleForAddr {
        /// Who asked.
        client: String,
        /// For what.
        target: Target,
        /// Where the name leads.
        addr: IpAddr,
        /// The rule that would allow it.
        rule: String,
    },
    /// A name or a wildcard leads to a link-local address.
    #[error(
        "{target} leads to {addr}, and link-local addresses are not reached by name or wildcard: {rule:?} would allow it to the client {client:?}"
    )]
    LinkLocalByName {
        /// Who asked.
        client: String,
        /// For what.
        target: Target,
        /// Where the name leads.
        addr: IpAddr,
        /// The rule that would allow it.
        rule: String,
    },
    /// A path that could climb out of the directory that a rule opens.
    #[error(
        "{target} holds '.', '..' or a doubled slash and so is matched by no directory rule: {rule:?} would allow it to the client {client:?}"
    )]
    CrookedPath {
        /// Who asked.
        client: String,
        /// For what.
        target: Target,
        /// The rule that would allow it.
        rule: String,
    },
}

impl Policy {
    /// Parses the rules and loads the secrets and authorities.
    pub fn new(access: &Access) -> Result<Self, AccessError> {
        let mode = match access {
            Access::Open { ca, guard } => {
                if let Some(ca) = ca {
                    // The handshake will hold clients against them.
                    tls::authorities_verifier(ca, &tls::provider())?;
                }
                Mode::Open {
                    guard: *guard,
                    needs_certificate: ca.is_some(),
                }
            }
            Access::Named { clients, ca } => {
                let mut register = Register::default();
                if let Some(ca) = ca {
                    register.authorities = Some(tls::authorities_verifier(ca, &tls::provider())?);
                }
                for client in clients {
                    register.add(client)?;
                }
                Mode::Named(register)
            }
        };
        Ok(Self { mode })
    }

    /// Says who showed these certificates, the own one first; `None`: none were shown.
    ///
    /// The handshake has proven possession of the first one's key.
    pub fn identify(&self, peer_certs: Option<&[CertificateDer<'_>]>) -> Peer {
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
                .and_then(|(own, issuers)| register.by_certificate(own, issuers))
                .map_or(Peer::Unknown, Peer::Named),
        }
    }

    /// Whether a client without a known certificate may still turn out to be one with a known secret.
    pub fn accepts_proofs(&self) -> bool {
        matches!(&self.mode, Mode::Named(register) if !register.by_secret.is_empty())
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
                Target::Unix { .. } if !guard.allow_unix => Err(Denied::Unix {
                    rule: rule::naming(target),
                }),
                Target::Unix { .. } | Target::Tcp { .. } => Ok(()),
            },
            (Mode::Named(_), Peer::Named(client)) => client.may_reach(target),
            _ => Err(Denied::UnknownClient {
                rule: rule::naming(target),
            }),
        }
    }

    /// Decides on one address that is about to be dialled for a TCP target.
    ///
    /// IPv4 addresses in IPv6 clothes (`::ffff:0:0/96`) are judged as IPv4.
    pub fn may_reach_addr(&self, peer: &Peer, target: &Target, addr: IpAddr) -> Result<(), Denied> {
        let Target::Tcp { host, port, .. } = target else {
            return self.may_reach(peer, target);
        };
        let addr = addr.to_canonical();
        match (&self.mode, peer) {
            (Mode::Open { guard, .. }, Peer::Anyone) => {
                if is_link_local(addr) && !guard.allow_link_local {
                    return Err(Denied::LinkLocal {
                        addr,
                        rule: rule::naming_addr(addr, *port),
                    });
                }
                Ok(())
            }
            (Mode::Named(_), Peer::Named(client)) => {
                client.may_reach_addr(target, host, *port, addr)
            }
            _ => Err(Denied::UnknownClient {
                rule: rule::naming(target),
            }),
        }
    }
}

impl Client {
    /// Its name in logs, metrics and REST.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The same, to be kept by others.
    pub(crate) fn shared_name(&self) -> Arc<str> {
        self.name.clone()
    }

    /// PROTOCOL AUTH-3: a name that no rule can name is not looked up.
    fn may_reach(&self, target: &Target) -> Result<(), Denied> {
        // Where a TCP target is an address it does not come here.
        let looked_up = matches!(target, Target::Tcp { .. });
        let closed = looked_up && !self.rules.iter().any(Rule::names_hosts);
        let (mut reached, mut crooked) = (false, false);
        for rule in &self.rules {
            match rule.reach(target) {
                Reach::Yes if closed => reached = true,
                Reach::Yes => return Ok(()),
                Reach::CrookedPath => crooked = true,
                Reach::No => {}
            }
        }
        let (client, target, rule) = (self.name.to_string(), target.clone(), rule::naming(target));
        Err(if reached {
            Denied::NoNames {
                client,
                target,
                rule,
            }
        } else if crooked {
            Denied::CrookedPath {
                client,
                target,
                rule,
            }
        } else {
            Denied::NoRule {
                client,
                target,
                rule,
            }
        })
    }

    fn may_reach_addr(
        &self,
        target: &Target,
        host: &str,
        port: u16,
        addr: IpAddr,
    ) -> Result<(), Denied> {
        if self.rules.iter().any(|rule| rule.names_address(port, addr)) {
            return Ok(());
        }
        let named = self.rules.iter().any(|rule| rule.names_host(host, port));
        if named && !is_link_local(addr) {
            return Ok(());
        }
        let client = self.name.to_string();
        let rule = rule::naming_addr(addr, port);
        Err(match target.ip_literal() {
            _ if named => Denied::LinkLocalByName {
                client,
                target: target.clone(),
                addr,
                rule,
            },
            Some(_) => Denied::NoRule {
                client,
                target: target.clone(),
                rule,
            },
            None => Denied::NoRuleForAddr {
                client,
                target: target.clone(),
                addr,
                rule,
            },
        })
    }
}

/// Whether an address, in canonical form, is valid on its link only. Cloud metadata services live there.
///
/// 169.254.0.0/16 (RFC 3927), `fe80::/10` (RFC 4291), and the former as a NAT64 gateway sees it (RFC 6052).
fn is_link_local(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local() || is_link_local_behind_nat64(v6),
    }
}

fn is_link_local_behind_nat64(addr: Ipv6Addr) -> bool {
    matches!(addr.segments(), [0x64, 0xff9b, 0, 0, 0, 0, 0xa9fe, _])
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
            Self::Named(register) => f.debug_tuple("Named").field(&register.names).finish(),
        }
    }
}
