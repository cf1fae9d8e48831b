//! Large numbers of strangers: they complete their handshakes and stay silent, or do not complete them.

use std::time::Duration;

use anyhow::Result;

use super::crowd::{CrowdBehaviour, ProcessedPackets};
use super::outcome::AttackOutcome;
use super::run::{self, AttackOptions};
use super::victim::Trust;

/// Initial packets sent at once: fewer than a socket buffer holds.
const WAVE: usize = 64;

/// Opens connections without an identity from many addresses, which stay silent.
///
/// # Errors
///
/// Fails as [`run::attack`] does.
pub fn strangers(
    terms: &AttackOptions,
    connections: usize,
    sources: usize,
    stay: Duration,
) -> Result<AttackOutcome> {
    let behaviour = CrowdBehaviour {
        sources: sources.min(connections).max(1),
        ..CrowdBehaviour::default()
    };
    run::attack("strangers", Trust::Secret, terms, behaviour, 0, |run| {
        run.connect(connections)?;
        run.hold(stay)
    })
}

/// Sends the first packets of connections and does not continue them, except to answer Retry if `follow_retry` is set.
///
/// # Errors
///
/// Fails as [`run::attack`] does.
pub fn initials(
    terms: &AttackOptions,
    connections: usize,
    sources: usize,
    follow_retry: bool,
) -> Result<AttackOutcome> {
    let (name, hears) = if follow_retry {
        ("retry-flood", ProcessedPackets::Retry)
    } else {
        ("initials", ProcessedPackets::Nothing)
    };
    let behaviour = CrowdBehaviour {
        sources: sources.min(connections).max(1),
        hears,
        ..CrowdBehaviour::default()
    };
    run::attack(name, Trust::Secret, terms, behaviour, 0, |run| {
        for number in 1..=connections {
            run.crowd.connect()?;
            if number.is_multiple_of(WAVE) && !run.turn()? {
                break;
            }
        }
        run.until_quiet()
    })
}
