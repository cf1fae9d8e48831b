//! Tests of identification and of the decisions on targets.

mod closed_addresses;
mod identities;
mod properties;
mod rules;

use std::path::PathBuf;

use super::rule::Rule;
use super::*;
use crate::settings::{CertificateFiles, ClientLimits, ClientProof, NamedClient, Pin};
use crate::tls::TlsError;

fn target(text: &str) -> Target {
    Target::parse(text).expect("a target")
}

fn addr(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn open(guard: Guard) -> Policy {
    Policy::new(&Access::Open { ca: None, guard }).expect("a policy")
}

/// Creates a policy with one client that has these rules. Returns the policy and the client's identity.
fn named(rules: &[&str]) -> (Policy, Peer) {
    let client = settings("laptop", vec![ClientProof::Pin(Pin([1; 32]))], rules);
    let policy = Policy::new(&Access::Named {
        clients: vec![client],
        ca: None,
    })
    .expect("a policy");
    let Mode::Named(registry) = &policy.mode else {
        panic!("not named")
    };
    let peer = Peer::Named(registry.by_pin[&Pin([1; 32])].clone());
    (policy, peer)
}

fn settings(name: &str, proofs: Vec<ClientProof>, rules: &[&str]) -> NamedClient {
    NamedClient {
        name: name.to_owned(),
        proofs,
        allow: rules
            .iter()
            .map(|rule| rule.parse().expect("a rule"))
            .collect(),
        listen: Vec::new(),
        limits: ClientLimits::default(),
        names_sources: false,
    }
}

/// Returns whether a flow would be dialled: the decision before the name is resolved, and the one after.
fn dialled(
    policy: &Policy,
    peer: &Peer,
    target: &Target,
    addr: Option<IpAddr>,
) -> Result<(), AccessDenied> {
    policy.may_reach(peer, target)?;
    addr.map_or(Ok(()), |addr| policy.may_reach_addr(peer, target, addr))
}
