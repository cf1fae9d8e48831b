//! The report of a session as JSON: what was asked for, and what came of it.
//!
//! Times are in microseconds, rates in bit/s of IP packets.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use quictun_emu::{Audit, DirectionAudit, KernelAudit, Verdict};
use serde::Serialize;

use super::backend::Account;
use super::plan::Session;

/// Rises when a key changes its meaning.
const VERSION: u32 = 1;

/// A session.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    version: u32,
    seed: u64,
    exit_code: u8,
    asked: Ways<String>,
    backend: &'static str,
    #[serde(flatten)]
    outcome: Achieved,
}

/// What whoever emulated the link has to say.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Achieved {
    Emulator(Box<Outcome>),
    Kernel(KernelOutcome),
}

/// What the kernel says that it did.
#[derive(Debug, Serialize)]
struct KernelOutcome {
    verdict: &'static str,
    disciplines: Ways<Vec<Discipline>>,
}

/// One of the kernel's queueing disciplines; bytes include Ethernet headers.
#[derive(Debug, Serialize)]
struct Discipline {
    kind: String,
    packets_out: u64,
    bytes_out: u64,
    dropped: u64,
}

/// What the emulator achieved.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    verdict: &'static str,
    limits: Vec<String>,
    achieved: Ways<Way>,
}

#[derive(Debug, Serialize)]
struct Ways<T> {
    up: T,
    down: T,
}

#[derive(Debug, Serialize)]
struct Way {
    seconds: f64,
    packets_in: u64,
    bytes_in: u64,
    frames_in: u64,
    packets_out: u64,
    bytes_out: u64,
    frames_out: u64,
    loss_asked: Option<f64>,
    loss: f64,
    loss_99: [f64; 2],
    drops: Drops,
    marked: u64,
    duplicated: u64,
    reordered: u64,
    queued_mean_us: u64,
    queued_max_us: u64,
    late_p50_us: u64,
    late_p99_us: u64,
    late_max_us: u64,
    busy: f64,
}

/// Packets dropped, by reason; `unintended` are the emulator's fault or the host's.
#[derive(Debug, Serialize)]
struct Drops {
    random: u64,
    burst: u64,
    queue: u64,
    codel: u64,
    policer: u64,
    outage: u64,
    too_long: u64,
    unintended: u64,
}

impl Report {
    pub(super) fn new(plan: &Session, account: &Account, exit_code: u8) -> Self {
        let [up, down] = &plan.ways;
        Self {
            version: VERSION,
            seed: plan.seed,
            exit_code,
            asked: Ways {
                up: up.to_string(),
                down: down.to_string(),
            },
            backend: match account {
                Account::Emulator(_) => "emulator",
                Account::Kernel(_) => "kernel",
            },
            outcome: match account {
                Account::Emulator(audit) => Achieved::Emulator(Box::new(Outcome::new(audit))),
                Account::Kernel(audit) => Achieved::Kernel(KernelOutcome::new(audit)),
            },
        }
    }
}

impl KernelOutcome {
    fn new(audit: &KernelAudit) -> Self {
        let all = |disciplines: &[quictun_sys::Discipline]| {
            let each = |discipline: &quictun_sys::Discipline| Discipline {
                kind: discipline.kind.clone(),
                packets_out: discipline.packets,
                bytes_out: discipline.bytes,
                dropped: discipline.dropped,
            };
            disciplines.iter().map(each).collect()
        };
        Self {
            verdict: "none",
            disciplines: Ways {
                up: all(&audit.up),
                down: all(&audit.down),
            },
        }
    }
}

impl Outcome {
    pub(super) fn new(audit: &Audit) -> Self {
        let limits = match audit.verdict() {
            Verdict::Ok => Vec::new(),
            Verdict::EmulatorLimited(limits) => limits.iter().map(ToString::to_string).collect(),
        };
        Self {
            verdict: if limits.is_empty() {
                "ok"
            } else {
                "emulator-limited"
            },
            limits,
            achieved: Ways {
                up: Way::new(&audit.up),
                down: Way::new(&audit.down),
            },
        }
    }
}

impl Outcome {
    /// Why the run cannot be believed; empty: it can.
    pub(super) fn limits(&self) -> String {
        self.limits.join("; ")
    }
}

impl Way {
    fn new(audit: &DirectionAudit) -> Self {
        let (counts, link) = (&audit.counts, &audit.link);
        Self {
            seconds: audit.elapsed.as_secs_f64(),
            packets_in: counts.segments_in,
            bytes_in: counts.bytes_in,
            frames_in: counts.frames_in,
            packets_out: counts.segments_out,
            bytes_out: counts.bytes_out,
            frames_out: counts.frames_out,
            loss_asked: audit.loss_asked,
            loss: audit.loss,
            loss_99: audit.loss_interval,
            drops: Drops {
                random: link.random,
                burst: link.burst,
                queue: link.queue_full,
                codel: link.codel,
                policer: link.policer,
                outage: link.outage,
                too_long: link.too_long,
                unintended: counts.unintended.total(),
            },
            marked: link.marked,
            duplicated: link.duplicated,
            reordered: link.reordered,
            queued_mean_us: us(link.queued_mean()),
            queued_max_us: us(link.queued_max),
            late_p50_us: us(audit.lateness.quantile(0.5)),
            late_p99_us: us(audit.lateness.quantile(0.99)),
            late_max_us: us(audit.lateness.max()),
            busy: audit.busy_share(),
        }
    }
}

/// Writes a report to a file.
pub(super) fn write(path: &Path, report: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(report).context("writing JSON")?;
    std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))
}

fn us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
