//! The JSON report of a session: its settings and its outcome.
//!
//! Times are in microseconds, rates in bit/s of IP packets.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use quictun_emu::{Audit, DirectionAudit, KernelAudit, Verdict};
use quictun_link::{Counters, LogHistogram};
use quictun_sys::Discipline;
use serde::Serialize;
use serde_json::{Value, json};

use super::backend::EmulatorAccount;
use super::options::SessionOptions;

/// Version of the report's format. The number rises when a key changes its meaning.
const VERSION: u32 = 1;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    version: u32,
    seed: u64,
    exit_code: u8,
    asked: Value,
    backend: &'static str,
    #[serde(flatten)]
    outcome: Value,
}

impl Report {
    pub(super) fn new(plan: &SessionOptions, account: &EmulatorAccount, exit_code: u8) -> Self {
        let [up, down] = plan.links.each_ref().map(ToString::to_string);
        let (backend, outcome) = match account {
            EmulatorAccount::Emulator(audit) => ("emulator", outcome(audit)),
            EmulatorAccount::Kernel(audit) => ("kernel", kernel_outcome(audit)),
        };
        Self {
            version: VERSION,
            seed: plan.seed,
            exit_code,
            asked: json!({"up": up, "down": down}),
            backend,
            outcome,
        }
    }
}

/// Returns the kernel's counters. Bytes include Ethernet headers.
fn kernel_outcome(audit: &KernelAudit) -> Value {
    let one = |discipline: &Discipline| {
        json!({
            "kind": discipline.kind,
            "packets_out": discipline.packets,
            "bytes_out": discipline.bytes,
            "dropped": discipline.dropped,
        })
    };
    let [up, down] =
        [&audit.up, &audit.down].map(|direction| direction.iter().map(one).collect::<Value>());
    json!({"verdict": "none", "disciplines": {"up": up, "down": down}})
}

pub(super) fn outcome(audit: &Audit) -> Value {
    let limits = limits(audit);
    let verdict = if limits.is_empty() {
        "ok"
    } else {
        "emulator-limited"
    };
    json!({
        "verdict": verdict,
        "limits": limits,
        "achieved": {"up": direction(&audit.up), "down": direction(&audit.down)},
    })
}

/// Returns the reasons why the run cannot be trusted. Empty if it can.
pub(super) fn limits(audit: &Audit) -> Vec<String> {
    match audit.verdict() {
        Verdict::Ok => Vec::new(),
        Verdict::EmulatorLimited(limits) => limits.iter().map(ToString::to_string).collect(),
    }
}

/// Returns the account of one direction. Drops are listed by reason; the emulator or the host is responsible for the
/// `unintended` ones.
fn direction(audit: &DirectionAudit) -> Value {
    let (counts, link) = (&audit.counts, &audit.link);
    let [queued_mean, queued_p50, queued_p95, queued_max] = queued(link, &audit.waits);
    json!({
        "seconds": audit.elapsed.as_secs_f64(),
        "packets_in": counts.segments_in,
        "bytes_in": counts.bytes_in,
        "frames_in": counts.frames_in,
        "packets_out": counts.segments_out,
        "bytes_out": counts.bytes_out,
        "frames_out": counts.frames_out,
        "loss_asked": audit.loss_asked,
        "loss": audit.loss,
        "loss_99": audit.loss_interval,
        "drops": {
            "random": link.random,
            "burst": link.burst,
            "queue": link.queue_full,
            "codel": link.codel,
            "policer": link.policer,
            "outage": link.outage,
            "too_long": link.too_long,
            "unintended": counts.unintended.total(),
        },
        "marked": link.marked,
        "duplicated": link.duplicated,
        "reordered": link.reordered,
        "queued_mean_us": queued_mean,
        "queued_p50_us": queued_p50,
        "queued_p95_us": queued_p95,
        "queued_max_us": queued_max,
        "late_p50_us": us(audit.lateness.quantile(0.5)),
        "late_p99_us": us(audit.lateness.quantile(0.99)),
        "late_max_us": us(audit.lateness.max()),
        "busy": audit.busy_share(),
    })
}

/// Returns mean, median, 95th percentile and maximum of the times that packets waited in the queue.
fn queued(link: &Counters, waits: &LogHistogram) -> [u64; 4] {
    let (mean, max) = (link.queued_mean(), link.queued_max);
    [mean, waits.quantile(0.5), waits.quantile(0.95), max].map(us)
}

pub(super) fn write(path: &Path, report: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(report).context("cannot write JSON")?;
    std::fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))
}

pub(super) fn us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use quictun_link::{Link, LinkConfig};

    use super::*;

    // One packet takes a millisecond, so of a hundred that come at once, the last one waits for 99 ms.
    #[test]
    fn the_times_of_a_known_queue_are_reported() {
        let config = LinkConfig {
            rate: Some(1_000_000),
            ..LinkConfig::default()
        };
        let start = Instant::now();
        let mut link = Link::new(config, 1, start);
        for _ in 0..100 {
            link.send(start, 1000);
        }
        let [mean, p50, p95, max] = queued(&link.counters(), link.waits());
        assert_eq!((mean, max), (49_500, 99_000));
        // A quantile is at most one bucket of the histogram above the exact value.
        for (quantile, exact) in [(p50, 49_000), (p95, 94_000)] {
            assert!(
                (exact..=exact + exact / 32).contains(&quantile),
                "{quantile}, expected {exact}"
            );
        }
    }
}
