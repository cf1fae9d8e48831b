//! How both sides agree on keys (PROTOCOL QUIC-6).

use rustls::crypto::SupportedKxGroup;
use rustls::crypto::aws_lc_rs::kx_group::{SECP256R1, X25519, X25519MLKEM768};

use crate::settings::Offer;

/// Which groups a side offers and accepts, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyExchange {
    /// X25519MLKEM768 and the classical groups: what is recorded today stays secret from tomorrow's quantum computers.
    ///
    /// A `ClientHello` carries a share of X25519 as well, so that a server without the hybrid group answers in the same
    /// round trip. It spans two datagrams.
    PostQuantum,
    /// Classical groups only: the `ClientHello` fits one datagram.
    Classical,
}

impl KeyExchange {
    /// What a client with these protocols offers at first.
    ///
    /// One that speaks `quic-tun` only offers what the original does: its servers have nothing else.
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
