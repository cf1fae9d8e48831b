//! The clients for which limits of bonds are counted. Each client reaches only its own limits (PROTOCOL LIMIT-1).

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use aws_lc_rs::digest;
use quictun_flow::BondKey;
use quictun_wire::handover::{DIGEST_LEN, HandedHolder};
use rustls::pki_types::CertificateDer;

use crate::strangers::SourcePrefix;

/// The keys, secrets and certificate names by each of which a named client can prove its identity, as digests. They stay
/// the same if the configuration gives the client another name.
pub type ClientProofs = Arc<[[u8; 32]]>;

/// The identity that a client has proven.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ProvenIdentity {
    /// No identity: the server requires no proof.
    #[default]
    Anyone,
    /// A client that the configuration names.
    Named(String),
    /// A client that has proven that it holds the key of this certificate, as the certificate's SHA-256.
    Certificate(Vec<u8>),
}

/// The unit for which bonds are counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Holder {
    /// A client that has identified itself. On a client: its server.
    Identified(ProvenIdentity),
    /// Clients that need not identify themselves, by the address that first asked for the bond.
    Anonymous(SourcePrefix),
}

/// The share of one holder in the limits.
#[derive(Debug, Default)]
pub(super) struct HolderUsage {
    pub(super) bonds: BTreeSet<BondKey>,
    /// Flows without a connection, by their turn.
    pub(super) waiting: BTreeMap<u64, (BondKey, u64)>,
}

impl ProvenIdentity {
    pub(crate) fn new(name: Option<&str>, certificates: Option<&[CertificateDer<'_>]>) -> Self {
        match (name, certificates.and_then(<[_]>::first)) {
            (Some(name), _) => Self::Named(name.to_owned()),
            (None, Some(leaf)) => {
                let digest = digest::digest(&digest::SHA256, leaf);
                Self::Certificate(digest.as_ref().to_vec())
            }
            (None, None) => Self::Anyone,
        }
    }
}

impl Holder {
    pub(crate) fn new(identity: ProvenIdentity, source: SourcePrefix) -> Self {
        match identity {
            ProvenIdentity::Anyone => Self::Anonymous(source),
            known => Self::Identified(known),
        }
    }

    /// Returns the holder as another process reads it.
    pub(super) fn hand_over(&self) -> HandedHolder {
        match self {
            Self::Identified(ProvenIdentity::Named(name)) => HandedHolder::Named(name.clone()),
            Self::Identified(ProvenIdentity::Certificate(digest)) => {
                let mut whole = [0; DIGEST_LEN];
                let length = digest.len().min(DIGEST_LEN);
                whole[..length].copy_from_slice(&digest[..length]);
                HandedHolder::Certificate(whole)
            }
            Self::Identified(ProvenIdentity::Anyone) => {
                HandedHolder::Source(IpAddr::V4(Ipv4Addr::UNSPECIFIED))
            }
            Self::Anonymous(source) => HandedHolder::Source(source.address()),
        }
    }

    /// Returns the holder that another process has handed over.
    pub(super) fn take_over(handed: &HandedHolder) -> Self {
        match handed {
            HandedHolder::Source(address) => Self::Anonymous(SourcePrefix::of(*address)),
            HandedHolder::Named(name) => Self::Identified(ProvenIdentity::Named(name.clone())),
            HandedHolder::Certificate(digest) => {
                Self::Identified(ProvenIdentity::Certificate(digest.to_vec()))
            }
            HandedHolder::Server { .. } => Self::Identified(ProvenIdentity::Anyone),
        }
    }

    pub(crate) fn identity(&self) -> &ProvenIdentity {
        match self {
            Self::Identified(identity) => identity,
            Self::Anonymous(_) => &ProvenIdentity::Anyone,
        }
    }
}

impl HolderUsage {
    /// Removes and returns the waiting flows of a bond.
    pub(super) fn take_waiting(&mut self, bond: BondKey) -> BTreeMap<u64, (BondKey, u64)> {
        let waiting = std::mem::take(&mut self.waiting);
        let (its, others) = waiting.into_iter().partition(|(_, (of, _))| *of == bond);
        self.waiting = others;
        its
    }

    /// Returns the flow that has waited for longest.
    pub(super) fn oldest(&self) -> Option<(BondKey, u64)> {
        self.waiting.values().next().copied()
    }
}
