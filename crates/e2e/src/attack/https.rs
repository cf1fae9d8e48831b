//! Hostile programs at the HTTPS proxy: requests that do not end, floods of frames, and downloads without credit.

use std::time::Duration;

use anyhow::Result;

use super::crowd::CrowdBehaviour;
use super::half_open::crowd;
use super::https_session::{HttpsAttack, HttpsSession, Login};
use super::outcome::AttackOutcome;
use super::run::{self, AttackOptions};
use super::sharing::healthz;
use super::targets::Targets;
use super::tcp_peer::TcpWork;
use super::victim::{HOSTILE, Trust};

/// The flag with which the server serves programs.
const PROXY: &str = "--https-proxy";

/// Opens connections to the proxy with half a head or half a block of fields, or with a request whose end is ambiguous,
/// and replaces those that the server ends.
///
/// # Errors
///
/// Fails as [`run::attack`] does, or if the control plane does not answer.
pub fn half_open(
    terms: &AttackOptions,
    connections: usize,
    sources: usize,
    stay: Duration,
) -> Result<AttackOutcome> {
    let terms = proxy(terms, sources);
    let config = HttpsSession::config()?;
    let behaviour = CrowdBehaviour::default();
    let files = connections as u64;
    let name = "https-half-open";
    run::attack(name, Trust::Named, &terms, behaviour, files, |run| {
        crowd(run, connections, stay, |number| {
            let attack = match number % 3 {
                0 => HttpsAttack::HalfHead,
                1 => HttpsAttack::HalfBlock,
                _ => HttpsAttack::Smuggled,
            };
            let session = Box::new(HttpsSession::new(&config, attack)?);
            Ok(TcpWork::Https(session))
        })?;
        healthz(&run.victim.http())
    })
}

/// Opens connections to the proxy that flood it with frames of HTTP/2, from strangers and from a known client, and those
/// of a known client that gives no credit for what its targets send. Replaces those that the server ends.
///
/// # Errors
///
/// Fails as [`run::attack`] does, or if the control plane does not answer.
pub fn floods(
    terms: &AttackOptions,
    connections: usize,
    sources: usize,
    stay: Duration,
) -> Result<AttackOutcome> {
    let terms = proxy(terms, sources);
    let config = HttpsSession::config()?;
    let targets = Targets::sources(1)?;
    let behaviour = CrowdBehaviour::default();
    let files = connections as u64;
    let name = "https-floods";
    run::attack(name, Trust::Named, &terms, behaviour, files, |run| {
        let secret = run.victim.secret_text(HOSTILE[1])?;
        let login = Login::new(HOSTILE[1], &secret, targets.first());
        crowd(run, connections, stay, |number| {
            let attack = match number % 8 {
                0 => HttpsAttack::RapidReset(None),
                1 => HttpsAttack::RapidReset(Some(login.clone())),
                2 => HttpsAttack::Continuation,
                3 => HttpsAttack::Settings,
                4 => HttpsAttack::Pings,
                5 => HttpsAttack::EmptyData(None),
                6 => HttpsAttack::EmptyData(Some(login.clone())),
                _ => HttpsAttack::NoCredit(login.clone()),
            };
            let session = Box::new(HttpsSession::new(&config, attack)?);
            Ok(TcpWork::Https(session))
        })?;
        healthz(&run.victim.http())
    })
}

fn proxy(terms: &AttackOptions, sources: usize) -> AttackOptions {
    let mut terms = terms.over_tls(sources);
    terms.server.push(PROXY.to_owned());
    terms
}
