//! Attacks on what clients share: places for connections, descriptors, and the flows that a crash has left behind. The
//! attackers are clients that the server knows by name, or strangers with long chains of certificates.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use quictun_trust::psk::Secret;

use super::crowd::CrowdBehaviour;
use super::known;
use super::outcome::AttackOutcome;
use super::peer::PeerState;
use super::run::{self, AttackOptions, AttackRun};
use super::targets;
use super::victim::{FEW_FLOWS, HOSTILE, Trust};

/// Connections that a known client opens at once: fewer than strangers may have.
const WAVE: usize = 4;

/// Crashes of a client in a row.
const CRASHES: u64 = 3;

/// The server's keep-alive, so that it soon notices a crash.
const KEEP_ALIVE: &str = "--keep-alive=300ms";

/// Time until the server knows that a client does not answer: 2.5 s after an unanswered keep-alive.
const NOTICED: Duration = Duration::from_secs(4);

/// The longest time until all flows of a wave are answered.
const ANSWERED: Duration = Duration::from_secs(10);

/// Places for connections, of all clients together.
const PLACES: &str = "--max-connections=200";

/// Descriptors of the server in the attack of listeners, and of one client's listeners.
const DESCRIPTORS: u64 = 400;
const LISTENERS: u64 = 64;

/// Length of a chain of certificates in bytes: TLS permits 64 KiB.
const CHAIN: usize = 60_000;

/// A part of the reason with which the server refuses them.
const TOO_LONG: &str = "the handshake is too long";

/// A client with a limit of flows crashes with all of them open, and comes back, several times.
///
/// # Errors
///
/// Fails as [`run::attack`] does, or if the client that comes back is locked out.
pub fn left_flows(terms: &AttackOptions) -> Result<AttackOutcome> {
    let terms = with_arguments(terms, &[KEEP_ALIVE]);
    let sink = targets::sink()?;
    let behaviour = CrowdBehaviour::default();
    run::attack("left-flows", Trust::Named, &terms, behaviour, 100, |run| {
        let secret = run.victim.secret(HOSTILE[0])?;
        for crash in 0..CRASHES {
            let peer = enter(run, &secret)?;
            // The server answers HELLO first: it does not know the client before.
            answered(run, crash)?;
            for number in 0..FEW_FLOWS {
                ensure!(
                    known::open(run.crowd.peer(peer), &sink.target(), number)?,
                    "no stream for flow {number}"
                );
                run.opened += 1;
            }
            answered(run, crash)?;
            run.crowd.abandon(peer);
            run.hold(NOTICED)?;
        }
        Ok(())
    })
}

/// A client opens more connections than there are places.
///
/// # Errors
///
/// Fails as [`run::attack`] does.
pub fn places(terms: &AttackOptions, connections: usize) -> Result<AttackOutcome> {
    let terms = with_arguments(terms, &[PLACES]);
    let behaviour = CrowdBehaviour::default();
    run::attack("places", Trust::Named, &terms, behaviour, 0, |run| {
        let secret = run.victim.secret(HOSTILE[1])?;
        for _ in 0..connections / WAVE {
            let from = run.crowd.peers().len();
            run.connect(from + WAVE)?;
            for peer in from..from + WAVE {
                if *run.crowd.peers()[peer].phase() == PeerState::Connected {
                    known::hello(run.crowd.peer(peer), &secret)?;
                }
            }
            if !run.turn()? {
                break;
            }
        }
        run.until_quiet()
    })
}

/// Strangers whose chains of certificates are as long as TLS permits.
///
/// # Errors
///
/// Fails as [`run::attack`] does.
pub fn chains(terms: &AttackOptions, connections: usize) -> Result<AttackOutcome> {
    let behaviour = CrowdBehaviour {
        sources: connections,
        chain: CHAIN,
        ..CrowdBehaviour::default()
    };
    run::attack("chains", Trust::Secret, terms, behaviour, 0, |run| {
        run.connect(connections)?;
        run.until_quiet()?;
        // The server forgets some of them without a word, to make room for others.
        let losses = run.crowd.losses();
        let refused = losses.keys().any(|reason| reason.contains(TOO_LONG));
        ensure!(refused, "no long chain was refused: {losses:?}");
        Ok(())
    })
}

/// Two clients take as many listeners and flows as they get, on a server with few descriptors.
///
/// # Errors
///
/// Fails as [`run::attack`] does, or if the control plane does not answer.
pub fn listeners(terms: &AttackOptions, flows: u64) -> Result<AttackOutcome> {
    let terms = AttackOptions {
        descriptors: Some(DESCRIPTORS),
        ..terms.clone()
    };
    let sink = targets::sink()?;
    let behaviour = CrowdBehaviour::default();
    run::attack("listeners", Trust::Named, &terms, behaviour, flows, |run| {
        for name in &HOSTILE[1..] {
            let secret = run.victim.secret(name)?;
            let from = run.crowd.peers().len();
            run.connect(from + 1)?;
            let control = known::hello(run.crowd.peer(from), &secret)?;
            // The server takes LISTEN once it has answered HELLO.
            run.until_quiet()?;
            known::listen(run.crowd.peer(from), control, LISTENERS);
            run.until_quiet()?;
            for number in 0..flows {
                if known::open(run.crowd.peer(from), &sink.target(), number)? {
                    run.opened += 1;
                }
                if number.is_multiple_of(16) {
                    run.flush()?;
                }
            }
            run.until_quiet()?;
        }
        healthz(&run.victim.http())
    })
}

/// Connects a client and lets it prove its identity. Returns the number of its connection.
fn enter(run: &mut AttackRun<'_>, secret: &Secret) -> Result<usize> {
    let peer = run.crowd.peers().len();
    run.connect(peer + 1)?;
    known::hello(run.crowd.peer(peer), secret)?;
    Ok(peer)
}

/// Waits until all control streams and flows are answered, after this many crashes.
fn answered(run: &mut AttackRun<'_>, crashes: u64) -> Result<()> {
    let (wanted, begun) = (run.opened + crashes + 1, Instant::now());
    while run.crowd.counts().answered < wanted {
        let counts = run.crowd.counts();
        ensure!(
            run.turn()? && begun.elapsed() < ANSWERED,
            "after {crashes} crashes: {counts:?} of {wanted}"
        );
    }
    Ok(())
}

fn with_arguments(terms: &AttackOptions, arguments: &[&str]) -> AttackOptions {
    let mut terms = terms.clone();
    let arguments = arguments.iter().map(|&argument| argument.to_owned());
    terms.server.extend(arguments);
    terms
}

/// Requires that the control plane answers.
pub(super) fn healthz(socket: &Path) -> Result<()> {
    let mut stream = UnixStream::connect(socket).context("connecting to the HTTP interface")?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).context("/healthz")?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "/healthz: {answer}");
    Ok(())
}
