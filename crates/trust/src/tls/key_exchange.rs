//! The groups by which both sides agree on keys (PROTOCOL QUIC-6).

use rustls::crypto::SupportedKxGroup;
use rustls::crypto::aws_lc_rs::kx_group::{SECP256R1, X25519, X25519MLKEM768};

use crate::settings::Offer;

/// The groups that a side offers and accepts, in order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyExchange {
    /// X25519MLKEM768 and the classical groups. Traffic that is recorded today stays secret from the quantum computers
    /// of tomorrow.
    ///
    /// A `ClientHello` also carries an X25519 share, so that a server without the hybrid group answers in the same
    /// round trip. It spans two datagrams.
    PostQuantum,
    /// Only classical groups: the `ClientHello` fits one datagram.
    Classical,
}

impl KeyExchange {
    /// Returns the groups that a client with these protocols offers at first.
    ///
    /// A client that speaks only `quic-tun` offers the original's groups, because the original's servers support no
    /// others.
    pub(super) fn of(offer: Offer) -> Self {
        match offer {
            Offer::Both | Offer::Native => Self::PostQuantum,
            Offer::Compat => Self::Classical,
        }
    }

    pub(super) fn groups(self) -> Vec<&'static dyn SupportedKxGroup> {
        match self {
            Self::PostQuantum => vec![X25519MLKEM768, X25519, SECP256R1],
            Self::Classical => vec![X25519, SECP256R1],
        }
    }
}
