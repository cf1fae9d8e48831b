//! Strangers in great numbers: they finish their handshakes and say nothing, or do not even finish them.

use std::time::Duration;

use anyhow::Result;

use super::crowd::{Hears, Manner};
use super::ground::Trust;
use super::outcome::Outcome;
use super::stage::{self, Terms};

/// Initials sent at once: less than a socket's buffer holds.
const WAVE: usize = 64;

/// Connections without an identity, from many addresses, that say nothing.
///
/// # Errors
///
/// See [`stage::attack`].
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

/// First packets of connections that go no further.
///
/// # Errors
///
/// See [`stage::attack`].
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
