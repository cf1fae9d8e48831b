//! Reads, writes and calls of 1 to 32 connections (B4 to B7): what it is worth to an application to reach its network
//! stack asynchronously.
//!
//! ```text
//!  clients ══ TUN device, or memory ══ the stack, a process of its own ◄── calls ── the application, in this process
//! ```
//!
//! As in the original, clients send messages of a byte, or take them, or both in turns; the application receives and sends
//! them one by one. Asynchronously its connections are coroutines that share one channel, and the stack answers when it
//! can. Synchronously each is a thread with a way of its own, and the stack goes round them without ever going
//! to sleep. Clients and application have the first core, the stack the same or the second. The stack is the product's, and
//! so are the calls and the shared memory of either kind; what ties them together is made for this.

use std::process::{Command as Process, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use quictun_sys::NetNamespace;
use rustix::net::{RecvFlags, SendFlags};
use serde_json::{Value, json};

use self::application::{Application, Done, Plan};
use self::clients::Clients;
use crate::machine::Machine;
use crate::peer::{Kind, Peer, clock_ns};
use crate::run::Placement;

mod application;
mod clients;
mod host;
mod published;
pub(crate) mod report;
mod server;
mod wire;

pub(crate) use server::run as serve;

/// What the application does with each connection, again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Receives a message.
    Read,
    /// Sends one.
    Write,
    /// Receives one and sends one back.
    Call,
}

/// What is behind the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireKind {
    /// Programs made up, in the memory of the process with the stack.
    Memory,
    /// A TUN device and sockets of the kernel.
    Tun,
}

/// When the stack's packets go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polling {
    /// With each message that the application sends, as in the original.
    EachSend,
    /// Once in a round.
    Batch,
}

impl Mode {
    pub(crate) const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Call];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Call => "call",
        }
    }
}

impl WireKind {
    pub(crate) const ALL: [Self; 2] = [Self::Memory, Self::Tun];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Tun => "tun",
        }
    }
}

impl Polling {
    pub(crate) const ALL: [Self; 2] = [Self::EachSend, Self::Batch];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::EachSend => "each-send",
            Self::Batch => "batch",
        }
    }
}

/// One measurement, and what both processes have to know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    mode: Mode,
    kind: Kind,
    placement: Placement,
    wire: WireKind,
    polling: Polling,
    connections: usize,
    bytes: usize,
}

/// What may be combined.
pub(crate) struct Grid<'a> {
    pub(crate) modes: &'a [Mode],
    pub(crate) wires: &'a [WireKind],
    pub(crate) pollings: &'a [Polling],
    pub(crate) connections: &'a [usize],
    pub(crate) bytes: &'a [usize],
}

/// One part of it.
struct Sample {
    done: u64,
    elapsed: Duration,
}

/// How long calls took.
#[derive(Clone, Copy, Debug)]
struct Latency {
    mean_us: f64,
    /// Square microseconds.
    variance: f64,
    /// Percentiles 50, 99 and 99.9.
    percentiles_us: [f64; 3],
}

/// What came of the runs.
pub(crate) struct Row {
    setup: Setup,
    /// Per second: median, least, most.
    rate: [f64; 3],
    latency: Option<Latency>,
    /// Per cent of a core: the stack's process, the application's threads.
    cpu: [f64; 2],
}

/// Longest message.
pub(crate) const BYTES_MAX: usize = 64;

/// What the application asks for.
const RECV: u16 = 1;
const SEND: u16 = 2;

const KINDS: [Kind; 3] = [Kind::Futex, Kind::SeqPacket, Kind::Asynchronous];
const PLACEMENTS: [Placement; 2] = [Placement::OneCore, Placement::TwoCores];

impl Setup {
    /// In words, for the other process.
    fn words(&self) -> [String; 7] {
        let Self {
            connections, bytes, ..
        } = self;
        [
            self.mode.word().to_owned(),
            self.kind.word().to_owned(),
            self.placement.word().to_owned(),
            self.wire.word().to_owned(),
            self.polling.word().to_owned(),
            connections.to_string(),
            bytes.to_string(),
        ]
    }

    /// From the words.
    pub(crate) fn parse(words: &[&str]) -> Option<Self> {
        let [mode, kind, placement, wire, polling, connections, bytes] = *words else {
            return None;
        };
        Some(Self {
            mode: Mode::ALL.into_iter().find(|one| one.word() == mode)?,
            kind: KINDS.into_iter().find(|one| one.word() == kind)?,
            placement: PLACEMENTS.into_iter().find(|one| one.word() == placement)?,
            wire: WireKind::ALL.into_iter().find(|one| one.word() == wire)?,
            polling: Polling::ALL.into_iter().find(|one| one.word() == polling)?,
            connections: connections.parse().ok()?,
            bytes: bytes
                .parse()
                .ok()
                .filter(|bytes| (1..=BYTES_MAX).contains(bytes))?,
        })
    }

    pub(crate) fn name(&self) -> String {
        let Self {
            connections, bytes, ..
        } = self;
        self.words()[..5].join(", ") + &format!(", {connections} connections, {bytes} B")
    }
}

impl Grid<'_> {
    pub(crate) fn setups(&self) -> Vec<Setup> {
        let mut all = Vec::new();
        for (wire, polling, bytes) in self.groups() {
            for mode in self.modes(polling) {
                for kind in KINDS {
                    for placement in PLACEMENTS {
                        all.extend(self.connections.iter().map(|connections| Setup {
                            mode,
                            kind,
                            placement,
                            wire,
                            polling,
                            connections: *connections,
                            bytes,
                        }));
                    }
                }
            }
        }
        all
    }

    /// Who reads sends nothing, whatever the policy.
    fn modes(&self, polling: Polling) -> impl Iterator<Item = Mode> {
        let again = self.pollings.len() > 1 && polling == Polling::Batch;
        let modes = self.modes.iter().copied();
        modes.filter(move |mode| !(again && *mode == Mode::Read))
    }

    /// What tables have in common.
    fn groups(&self) -> Vec<(WireKind, Polling, usize)> {
        let mut groups = Vec::new();
        for wire in self.wires {
            for polling in self.pollings {
                groups.extend(self.bytes.iter().map(|bytes| (*wire, *polling, *bytes)));
            }
        }
        groups
    }
}

/// Measures it.
pub(crate) fn measure(
    setup: &Setup,
    repeats: usize,
    run: Duration,
    machine: &Machine,
    network: &NetNamespace,
) -> Result<Row> {
    let [first, second] = machine.cores;
    let core = match setup.placement {
        Placement::OneCore => first,
        Placement::TwoCores => second,
    };
    let (control, there) = quictun_ipc::sockets().context("a pair of sockets")?;
    let program = std::env::current_exe().context("finding this program")?;
    let words = setup.words();
    let child = network.within(move || {
        Process::new(program)
            .args(["bench", "netstack", "--serve", &core.to_string()])
            .args(words)
            .stdin(Stdio::from(there))
            .spawn()
    });
    let peer = Peer::of(child.context("starting this program again")?);
    let mut said = [0; 1024];
    let (length, _) = rustix::net::recv(&control, &mut said, RecvFlags::empty())?;
    ensure!(length > 0, "the process with the stack did not start");
    let application = Application::new(setup, &control)?;
    let counting = Arc::default();
    let clients = (setup.wire == WireKind::Tun)
        .then(|| Clients::start(network, setup, &counting))
        .transpose()?;
    let plan = Plan {
        warm_up: run / 2,
        part: run,
        parts: repeats,
    };
    // The application and its ways end with this.
    let done = application.run(setup, plan, &counting);
    let times = clients.map(Clients::stop).unwrap_or_default();
    let done = done?;
    let counted = u64::try_from(done.counted.elapsed().as_nanos()).unwrap_or(u64::MAX);
    // A time and not how long ago: the other process may look at it much later.
    let since = clock_ns().saturating_sub(counted);
    rustix::net::send(&control, &since.to_le_bytes(), SendFlags::NOSIGNAL)?;
    let (length, _) = rustix::net::recv(&control, &mut said, RecvFlags::empty())?;
    let said: Value = serde_json::from_slice(&said[..length])
        .context("what the process with the stack has used")?;
    peer.end()?;
    let latency = Latency::of(times).or_else(|| Latency::from_json(&said["latency"]));
    Ok(row(setup, &done, latency, &said))
}

fn row(setup: &Setup, done: &Done, latency: Option<Latency>, said: &Value) -> Row {
    let rate = |sample: &Sample| super::float(sample.done) / sample.elapsed.as_secs_f64();
    let mut rates: Vec<f64> = done.samples.iter().map(rate).collect();
    rates.sort_by(f64::total_cmp);
    let at = |index: usize| rates.get(index).copied().unwrap_or_default();
    let number = |name: &str| said[name].as_f64().unwrap_or_default();
    let application = done.cpu.as_secs_f64() / done.elapsed.as_secs_f64().max(1e-9);
    let stack = number("cpu_ns") / number("elapsed_ns").max(1.0);
    Row {
        setup: *setup,
        rate: [
            at(rates.len() / 2),
            at(0),
            at(rates.len().saturating_sub(1)),
        ],
        latency,
        cpu: [100.0 * stack, 100.0 * application],
    }
}

impl Latency {
    /// Of times in nanoseconds, if there are any.
    fn of(mut times: Vec<u64>) -> Option<Self> {
        times.sort_unstable();
        let count = times.len();
        let last = count.checked_sub(1)?;
        let micros = |time: &u64| super::micros(*time);
        let mean_us = times.iter().map(micros).sum::<f64>() / super::float(count as u64);
        let squares = times.iter().map(|time| (micros(time) - mean_us).powi(2));
        Some(Self {
            mean_us,
            variance: squares.sum::<f64>() / super::float(count as u64),
            percentiles_us: [500, 990, 999].map(|share| micros(&times[last * share / 1000])),
        })
    }

    fn to_json(self) -> Value {
        let [p50, p99, p999] = self.percentiles_us;
        json!({
            "mean_us": self.mean_us,
            "variance_us2": self.variance,
            "p50_us": p50,
            "p99_us": p99,
            "p99.9_us": p999,
        })
    }

    fn from_json(said: &Value) -> Option<Self> {
        let number = |name: &str| said[name].as_f64();
        Some(Self {
            mean_us: number("mean_us")?,
            variance: number("variance_us2")?,
            percentiles_us: [number("p50_us")?, number("p99_us")?, number("p99.9_us")?],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_process_says_the_other_understands() {
        let grid = Grid {
            modes: &Mode::ALL,
            wires: &WireKind::ALL,
            pollings: &Polling::ALL,
            connections: &[1, 32],
            bytes: &[1, 64],
        };
        let setups = grid.setups();
        assert_eq!(setups.len(), (3 + 2) * 2 * 2 * 2 * 6);
        for setup in setups {
            let words = setup.words();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            assert_eq!(Setup::parse(&words), Some(setup));
        }
    }

    #[test]
    fn variance_is_that_of_all_times() {
        let latency = Latency::of(vec![1000, 3000, 5000, 7000]).expect("some");
        let expected = json!({
            "mean_us": 4.0,
            "variance_us2": 5.0,
            "p50_us": 3.0,
            "p99_us": 5.0,
            "p99.9_us": 5.0,
        });
        assert_eq!(latency.to_json(), expected);
        let again = Latency::from_json(&expected).expect("all of it");
        assert_eq!(again.to_json(), expected);
        assert!(Latency::of(Vec::new()).is_none());
    }
}
