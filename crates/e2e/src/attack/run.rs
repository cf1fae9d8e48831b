//! One attack, from the start of a working server to the measured outcome.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Resource, getrlimit};

use super::crowd::{Crowd, CrowdBehaviour};
use super::honest::HonestClients;
use super::outcome::{ALLOWANCE, AttackOutcome, Remains};
use super::peer::PeerState;
use super::process::{self, ProcessSampler};
use super::tcp_crowd::TcpCrowd;
use super::victim::{Trust, Victim};
use crate::load::tunnel::allow_files;
use quictun_testbed::program;

/// The maximum number of concurrent handshakes: more would only delay each other.
const HANDSHAKES: usize = 256;

/// An attack without progress for this long has reached its full effect.
const STANDSTILL: Duration = Duration::from_millis(1500);

/// The longest time that a turn waits for datagrams.
const TURN: Duration = Duration::from_millis(5);

/// An attack that exceeds the limit by this many bytes has proved its point and is stopped, since the machine's memory
/// is finite.
const BREAK_OFF: u64 = 64 << 20;

/// The number of last output lines to keep of a server that has ended.
const LAST_WORDS: usize = 10;

/// Descriptors for everything except flows.
const RESERVE: u64 = 4096;

/// The configuration of the server and of the attack.
#[derive(Clone, Debug, Default)]
pub struct AttackOptions {
    /// `--memory-budget` in bytes; `None` for the default.
    pub budget: Option<u64>,
    /// The allowed memory growth of the server in bytes; `None` for the budget plus [`ALLOWANCE`].
    pub limit: Option<u64>,
    /// The maximum duration of an attack.
    pub most: Duration,
    /// Time for which honest clients are observed after the attack has reached its full effect.
    pub hold: Duration,
    /// The server's limit of descriptors; `None` for that of this process.
    pub descriptors: Option<u64>,
    /// Additional arguments for the server.
    pub server: Vec<String>,
    /// The number of source addresses of hostile TCP connections. With 0 there are none, and honest clients use QUIC
    /// alone; otherwise they use both carriers in turn.
    pub tcp_sources: usize,
}

/// The default of `--memory-budget`, in bytes.
const DEFAULT_BUDGET: u64 = 1 << 30;

impl AttackOptions {
    fn limit(&self) -> u64 {
        let of_budget = self.budget.unwrap_or(DEFAULT_BUDGET) + ALLOWANCE;
        self.limit.unwrap_or(of_budget)
    }

    /// Returns these options for an attack over TCP from this number of addresses.
    #[must_use]
    pub fn over_tls(&self, sources: usize) -> Self {
        Self {
            tcp_sources: sources.max(1),
            ..self.clone()
        }
    }
}

/// A server under attack.
#[derive(Debug)]
pub struct AttackRun<'a> {
    /// The server and its honest client.
    pub victim: &'a Victim,
    /// The crowd of hostile connections.
    pub crowd: Crowd,
    /// The crowd of hostile TCP connections.
    pub tcp: TcpCrowd,
    /// The number of streams opened.
    pub opened: u64,
    /// The remains of flows that were reset.
    pub left: Option<Remains>,
    watch: &'a ProcessSampler,
    break_off: u64,
    until: Instant,
    descriptors: usize,
}

/// Starts a server and an honest client, runs `attack`, and measures the server.
///
/// # Errors
///
/// Fails if the programs do not start or the attack cannot be made.
pub fn attack(
    name: &str,
    trust: Trust,
    terms: &AttackOptions,
    behaviour: CrowdBehaviour,
    flows: u64,
    attack: impl FnOnce(&mut AttackRun<'_>) -> Result<()>,
) -> Result<AttackOutcome> {
    allow_most_files(2 * flows + behaviour.sources as u64 + RESERVE)?;
    let mut victim = Victim::with(trust, terms)?;
    let pid = victim.server.pid();
    process::forget_peak(pid)?;
    let resident = program::resident_bytes(pid)?;
    let descriptors = program::descriptors(pid)?;
    let limit = terms.limit();
    let (watch, honest) = (ProcessSampler::new(pid), HonestClients::default());
    let started = Instant::now();
    let mut run = AttackRun {
        crowd: Crowd::new(victim.address, behaviour)?,
        tcp: TcpCrowd::new(victim.address, terms.tcp_sources)?,
        victim: &victim,
        opened: 0,
        left: None,
        watch: &watch,
        break_off: resident + limit + limit / 4 + BREAK_OFF,
        until: started + terms.most,
        descriptors,
    };
    let served = std::thread::scope(|scope| {
        let serving = scope.spawn(|| honest.run(&victim));
        let acted = attack(&mut run).and_then(|()| run.hold(terms.hold));
        honest.stop();
        // The attackers stay while the last honest flow waits for its answer.
        while acted.is_ok() && !serving.is_finished() && !watch.has_ended() {
            run.turn_crowds()?;
        }
        let served = serving
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        acted.map(|()| served)
    });
    let outcome = {
        let counts = run.crowd.counts();
        let losses = [run.crowd.losses(), run.tcp.losses()];
        let losses = losses.into_iter().flatten();
        let [sent, received] = run.tcp.bytes();
        AttackOutcome {
            attack: name.to_owned(),
            budget: terms.budget,
            limit,
            growth: watch.peak().saturating_sub(resident),
            growth_at_end: watch.resident().saturating_sub(resident),
            connections: [
                run.crowd.peers().len() + run.tcp.peers().len(),
                run.crowd.connected() + run.tcp.connected(),
            ],
            losses: losses
                .map(|(reason, count)| (reason.to_owned(), count))
                .collect(),
            flows: [run.opened, counts.answered, counts.refused],
            bytes: [counts.poured + sent, counts.received + received],
            open: trust == Trust::Open,
            honest: [honest.known(), honest.newcomers()],
            descriptors: watch.descriptors().saturating_sub(descriptors as u64),
            left: run.left,
            broken_off: run.is_broken_off(),
            server_ended: watch.has_ended(),
            last_words: last_words(&victim, watch.has_ended()),
            seconds: started.elapsed().as_secs_f64(),
        }
    };
    drop(run);
    // A server under attack logs much, and the outcome already holds the result.
    victim.silence();
    let served = served.with_context(|| format!("running the attack {name}"))?;
    if !outcome.server_ended {
        served.with_context(|| format!("running the honest client during the attack {name}"))?;
    }
    Ok(outcome)
}

/// Returns the last lines of a server that has ended; empty if it still runs.
fn last_words(victim: &Victim, ended: bool) -> Vec<String> {
    let mut lines = if ended {
        victim.server.lines()
    } else {
        Vec::new()
    };
    lines.split_off(lines.len().saturating_sub(LAST_WORDS))
}

/// Raises the descriptor limit to `wanted` here and, by inheritance, in the server, or as far as is allowed. A server
/// that runs out of descriptors refuses flows, as it should.
fn allow_most_files(wanted: u64) -> Result<()> {
    if allow_files(wanted).is_ok() {
        return Ok(());
    }
    let maximum = getrlimit(Resource::Nofile).maximum;
    allow_files(maximum.unwrap_or(wanted).min(wanted))
}

impl AttackRun<'_> {
    /// Runs one turn of the crowd; returns true if the attack should continue.
    ///
    /// # Errors
    ///
    /// Fails as [`Crowd::turn`] does.
    pub fn turn(&mut self) -> Result<bool> {
        self.turn_crowds()?;
        Ok(self.goes_on())
    }

    fn turn_crowds(&mut self) -> Result<()> {
        let has_tcp = !self.tcp.peers().is_empty();
        if has_tcp {
            self.tcp.turn(TURN)?;
        }
        self.crowd.turn(if has_tcp { Duration::ZERO } else { TURN })
    }

    /// Returns true while there is time left, growth is below the stop limit, and the server runs.
    pub fn goes_on(&self) -> bool {
        Instant::now() < self.until && !self.is_broken_off() && !self.watch.has_ended()
    }

    /// Establishes `connections` connections, or as many as the server accepts.
    ///
    /// # Errors
    ///
    /// Fails as [`Crowd::turn`] does.
    pub fn connect(&mut self, connections: usize) -> Result<()> {
        let mut moved = Instant::now();
        let mut done = 0;
        loop {
            let peers = self.crowd.peers();
            let settled = peers
                .iter()
                .filter(|peer| *peer.phase() != PeerState::Connecting)
                .count();
            if settled == connections {
                return Ok(());
            }
            if settled > done {
                (done, moved) = (settled, Instant::now());
            }
            let stands = moved.elapsed() > STANDSTILL;
            if stands && peers.len() == connections {
                return Ok(());
            }
            let under_way = peers.len() - settled;
            let room = if stands {
                moved = Instant::now();
                HANDSHAKES
            } else {
                HANDSHAKES.saturating_sub(under_way)
            };
            for _ in 0..room.min(connections - peers.len()) {
                self.crowd.connect()?;
            }
            if !self.turn()? {
                return Ok(());
            }
        }
    }

    /// Opens a stream on a connection; returns `None` if the server has granted none.
    pub fn open(&mut self, peer: usize) -> Option<quinn_proto::StreamId> {
        let stream = self.crowd.peer(peer).open()?;
        self.opened += 1;
        Some(stream)
    }

    /// Runs turns until there is no more progress.
    ///
    /// # Errors
    ///
    /// Fails as [`Crowd::turn`] does.
    pub fn until_quiet(&mut self) -> Result<()> {
        let progress = |run: &Self| {
            let counts = run.crowd.counts();
            (
                counts.poured,
                counts.answered + counts.refused,
                counts.received,
            )
        };
        let (mut last, mut moved) = (progress(self), Instant::now());
        while moved.elapsed() < STANDSTILL && self.turn()? {
            let now = progress(self);
            if now != last {
                (last, moved) = (now, Instant::now());
            }
        }
        Ok(())
    }

    /// Runs turns for a short time, so that written data is sent.
    ///
    /// # Errors
    ///
    /// Fails as [`Crowd::turn`] does.
    pub fn flush(&mut self) -> Result<()> {
        const LEAVES: Duration = Duration::from_millis(50);
        let started = Instant::now();
        while started.elapsed() < LEAVES && self.turn()? {}
        Ok(())
    }

    /// Runs turns for `time`, even beyond the attack's maximum duration.
    ///
    /// # Errors
    ///
    /// Fails as [`Crowd::turn`] does.
    pub fn hold(&mut self, time: Duration) -> Result<()> {
        let started = Instant::now();
        while started.elapsed() < time && !self.watch.has_ended() {
            self.turn_crowds()?;
        }
        Ok(())
    }

    /// Records what is left of reset flows now.
    ///
    /// # Errors
    ///
    /// Fails if the server has ended.
    pub fn note_left(&mut self) -> Result<()> {
        let now = program::descriptors(self.victim.server.pid())?;
        self.left = Some(Remains {
            syn_sent: process::syn_sent()?,
            descriptors: now.saturating_sub(self.descriptors),
        });
        Ok(())
    }

    fn is_broken_off(&self) -> bool {
        self.watch.resident() > self.break_off
    }
}
