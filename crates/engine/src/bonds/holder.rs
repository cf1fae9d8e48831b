//! Clients, as far as limits of bonds go: each reaches its own, and nobody else's (PROTOCOL LIMIT-1).

use std::collections::BTreeMap;

use aws_lc_rs::digest;
use quictun_flow::BondKey;
use rustls::pki_types::CertificateDer;

use crate::strangers::Source;

/// Identity that a client has proven.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// None: the server asks for no proof.
    #[default]
    Anyone,
    /// A client that the configuration names.
    Named(String),
    /// The holder of this certificate's key, by the certificate's SHA-256.
    Certificate(Vec<u8>),
}

/// Whoever bonds are counted for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Holder {
    /// A client that has shown who it is; for a client: its server.
    Known(Owner),
    /// Clients that need not show who they are, by where the bond was asked for first.
    At(Source),
}

/// What one holder has.
#[derive(Debug, Default)]
pub(super) struct Share {
    pub(super) bonds: usize,
    /// Flows without a connection, by their turn.
    pub(super) waiting: BTreeMap<u64, (BondKey, u64)>,
}

impl Owner {
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
    pub(crate) fn new(owner: Owner, source: Source) -> Self {
        match owner {
            Owner::Anyone => Self::At(source),
            known => Self::Known(known),
        }
    }

    pub(crate) fn owner(&self) -> &Owner {
        match self {
            Self::Known(owner) => owner,
            Self::At(_) => &Owner::Anyone,
        }
    }
}

impl Share {
    /// The flow that has waited for longest.
    pub(super) fn oldest(&self) -> Option<(BondKey, u64)> {
        self.waiting.values().next().copied()
    }
}
