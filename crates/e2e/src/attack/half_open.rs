//! TCP connections whose handshakes begin and do not end, or end slowly, and peers that do not read.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::crowd::CrowdBehaviour;
use super::known;
use super::outcome::AttackOutcome;
use super::run::{self, AttackOptions, AttackRun};
use super::sharing::healthz;
use super::targets::Targets;
use super::tcp_peer::TcpWork;
use super::tls_session::{self, TlsSession};
use super::victim::{HOSTILE, Trust};

/// Connections begun in one turn.
const WAVE: usize = 64;

/// Connections begun in one turn of 5 ms in place of those that the server has ended.
const REPLACED: usize = 8;

/// Descriptors of a server under this attack: fewer than there are half-open connections.
const DESCRIPTORS: u64 = 1024;

/// The pause between two bytes of a slow handshake: it would take minutes.
const PAUSE: Duration = Duration::from_millis(100);

/// Connections of a known client that does not read, and of each, flows whose targets send without end.
const UNREAD: usize = 32;
const UNREAD_FLOWS: u64 = 8;

/// Opens TCP connections on which nothing, one byte or half of a `ClientHello` is sent, and replaces those that the
/// server ends.
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
    let terms = AttackOptions {
        descriptors: Some(DESCRIPTORS),
        ..terms.over_tls(sources)
    };
    let hello = client_hello()?;
    let behaviour = CrowdBehaviour::default();
    let files = connections as u64;
    run::attack(
        "tls-half-open",
        Trust::Named,
        &terms,
        behaviour,
        files,
        |run| {
            let first = |number: usize| match number % 3 {
                0 => Vec::new(),
                1 => hello[..1].to_vec(),
                _ => hello[..hello.len() / 2].to_vec(),
            };
            crowd(run, connections, stay, |number| {
                Ok(TcpWork::Raw(first(number), None))
            })?;
            healthz(&run.victim.http())
        },
    )
}

/// Opens TCP connections with handshakes of one byte after the other, others that are silent after their handshakes,
/// and those of a known client that reads nothing of its downloads.
///
/// # Errors
///
/// Fails as [`run::attack`] does, or if the server does not admit the known client.
pub fn slow(
    terms: &AttackOptions,
    connections: usize,
    sources: usize,
    stay: Duration,
) -> Result<AttackOutcome> {
    let terms = terms.over_tls(sources);
    let hello = client_hello()?;
    let config = tls_session::client_config()?;
    let flows = UNREAD as u64 * UNREAD_FLOWS;
    let mut targets = Targets::sources(usize::try_from(flows)?)?;
    let behaviour = CrowdBehaviour::default();
    let files = connections as u64 + flows;
    run::attack("tls-slow", Trust::Named, &terms, behaviour, files, |run| {
        let secret = run.victim.secret(HOSTILE[1])?;
        let tls = |reads| -> Result<TcpWork> {
            let session = Box::new(TlsSession::new(&config)?);
            Ok(TcpWork::Tls { session, reads })
        };
        for _ in 0..UNREAD {
            let entered =
                known::enter_over_tls(run, tls(false)?, &secret, &mut targets, UNREAD_FLOWS)?;
            if entered.is_none() {
                break;
            }
        }
        crowd(run, connections, stay, |number| {
            if number.is_multiple_of(2) {
                Ok(TcpWork::Raw(hello.clone(), Some(PAUSE)))
            } else {
                tls(true)
            }
        })
    })
}

/// Opens this number of connections, and replaces those that the server ends until `stay` has passed.
pub(super) fn crowd(
    run: &mut AttackRun<'_>,
    connections: usize,
    stay: Duration,
    work: impl Fn(usize) -> Result<TcpWork>,
) -> Result<()> {
    let before = run.tcp.open();
    for number in 0..connections {
        run.tcp.connect(work(number)?)?;
        if number.is_multiple_of(WAVE) && !run.turn()? {
            return Ok(());
        }
    }
    let begun = Instant::now();
    while begun.elapsed() < stay {
        let missing = (before + connections).saturating_sub(run.tcp.open());
        for _ in 0..missing.min(REPLACED) {
            let number = run.tcp.peers().len();
            run.tcp.connect(work(number)?)?;
        }
        if !run.turn()? {
            break;
        }
    }
    Ok(())
}

/// Returns the first message of a client.
fn client_hello() -> Result<Vec<u8>> {
    let mut session = TlsSession::new(&tls_session::client_config()?)?;
    let mut hello = Vec::new();
    session.poll_transmit(&mut hello)?;
    ensure!(hello.len() > 100, "a ClientHello of {} bytes", hello.len());
    Ok(hello)
}
