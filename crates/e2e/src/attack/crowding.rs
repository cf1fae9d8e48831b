//! Large numbers of strangers: they complete their handshakes and stay silent, or do not complete them.

use std::time::Duration;

use anyhow::Result;

use super::crowd::{Hears, Manner};
use super::ground::Trust;
use super::outcome::Outcome;
use super::stage::{self, Terms};

/// Initial packets sent at once: fewer than a socket buffer holds.
const WAVE: usize = 64;

/// Opens connections without an identity from many addresses, which stay silent.
///
/// # Errors
///
/// Fails as [`stage::attack`] does.
pub fn strangers(
    terms: &Terms,
    connections: usize,
    sources: usize,
    stay: Duration,
) -> Result<Outcome> {
    let manner = Manner {
        sources: sources.min(connections).max(1),
        ..Manner::default()
    };
    stage::attack("strangers", Trust::Secret, terms, manner, 0, |stage| {
        stage.connect(connections)?;
        stage.hold(stay)
    })
}

/// Sends the first packets of connections and does not continue them, except to answer Retry if `follow_retry` is set.
///
/// # Errors
///
/// Fails as [`stage::attack`] does.
pub fn initials(
    terms: &Terms,
    connections: usize,
    sources: usize,
    follow_retry: bool,
) -> Result<Outcome> {
    let (name, hears) = if follow_retry {
        ("retry-flood", Hears::Retry)
    } else {
        ("initials", Hears::Nothing)
    };
    let manner = Manner {
        sources: sources.min(connections).max(1),
        hears,
        ..Manner::default()
    };
    stage::attack(name, Trust::Secret, terms, manner, 0, |stage| {
        for number in 1..=connections {
            stage.crowd.connect()?;
            if number.is_multiple_of(WAVE) && !stage.turn()? {
                break;
            }
        }
        stage.until_quiet()
    })
}
