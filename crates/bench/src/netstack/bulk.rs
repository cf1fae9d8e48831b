//! Bulk flows and one-byte echoes (B10): the stack on its device, and the kernel's loopback in the same run.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use quictun_lab::put;
use quictun_sys::NetNamespace;
use serde_json::{Value, json};

use super::answering::{Responder, RunningResponder};
use super::flags::Options;
use super::load::{self, BulkFlow};
use super::service::Service;
use crate::machine::{Machine, float, micros, pause};

#[derive(Clone, Copy, Debug)]
pub(crate) struct BulkCell {
    side: Responder,
    service: Service,
    v6: bool,
    /// Number of bulk flows. For echoes: the number of incoming bulk flows beside them.
    flows: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct BulkSample {
    gbit_per_s: f64,
    cpu_s_per_gb: f64,
    p50_us: f64,
    p99_us: f64,
}

/// The result of several runs: the median sample, and the range of rates or delays.
pub(crate) struct BulkRow {
    cell: BulkCell,
    median: BulkSample,
    range: [f64; 2],
}

pub(crate) fn cells(options: &Options) -> Vec<BulkCell> {
    let sides = [
        Responder::Loopback,
        Responder::Stack { offload: true },
        Responder::Stack { offload: false },
        Responder::Apart,
    ];
    let mut all = Vec::new();
    for v6 in [false, true] {
        let echoes = [(Service::Echo, 0), (Service::Echo, 1)];
        let bulk = [Service::Discard, Service::Generate].into_iter();
        let bulk =
            bulk.flat_map(|service| options.flows.iter().map(move |flows| (service, *flows)));
        for (service, flows) in bulk.chain(echoes) {
            for side in sides {
                // The comparison is one core against one core; more flows do not change it.
                if side != Responder::Loopback || flows <= 1 {
                    all.push(BulkCell {
                        side,
                        service,
                        v6,
                        flows,
                    });
                }
            }
        }
    }
    all
}

pub(crate) fn repeat(
    cell: &BulkCell,
    options: &Options,
    machine: &Machine,
    network: &NetNamespace,
) -> Result<BulkRow> {
    let mut samples = Vec::new();
    for _ in 0..options.repeats {
        let sample = once(cell, options.run, machine.cores, network);
        samples.push(sample.with_context(|| cell.name())?);
    }
    let order = |sample: &BulkSample| match cell.service {
        Service::Echo => sample.p50_us,
        _ => sample.gbit_per_s,
    };
    samples.sort_by(|a, b| order(a).total_cmp(&order(b)));
    Ok(BulkRow {
        cell: *cell,
        median: samples[samples.len() / 2],
        range: [order(&samples[0]), order(&samples[samples.len() - 1])],
    })
}

/// Makes one run: the answering side is on the second core, the asking side on this one.
fn once(
    cell: &BulkCell,
    run: Duration,
    cores: [usize; 2],
    network: &NetNamespace,
) -> Result<BulkSample> {
    let bulk = match cell.service {
        Service::Echo => Service::Discard,
        service => service,
    };
    let duties = [Service::Echo, bulk];
    let needed = match (cell.service, cell.flows) {
        (Service::Echo, 0) => &duties[..1],
        (Service::Echo, _) => &duties[..],
        _ => &duties[1..],
    };
    let answering = cell.side.start(needed, cell.v6, cores, network)?;
    let flows: Result<Vec<BulkFlow>> = (0..cell.flows)
        .map(|_| BulkFlow::start(network, answering.address(bulk)?, bulk))
        .collect();
    let flows = flows?;
    if !flows.is_empty() {
        pause(WARM_UP)?;
    }
    let sample = match cell.service {
        Service::Echo => echo(network, answering.address(Service::Echo)?, run),
        _ => throughput(&answering, run),
    };
    answering.shared.stop.store(true, Ordering::Relaxed);
    for flow in flows {
        flow.stop();
    }
    let sample = sample?;
    answering.stop()?;
    Ok(sample)
}

fn echo(network: &NetNamespace, target: SocketAddr, run: Duration) -> Result<BulkSample> {
    // The echoes run in a separate thread, so that its raised priority ends with it.
    let times = thread::scope(|scope| {
        let asking = scope.spawn(|| load::ping_pong(network, target, run));
        asking
            .join()
            .map_err(|_| anyhow!("the asking thread panicked"))
    });
    let mut times = times??;
    times.sort_unstable();
    let at = |share: usize| micros(times[(times.len() - 1) * share / 100]);
    Ok(BulkSample {
        p50_us: at(50),
        p99_us: at(99),
        ..BulkSample::default()
    })
}

fn throughput(answering: &RunningResponder, run: Duration) -> Result<BulkSample> {
    let read = || -> Result<(Instant, u64, u64)> {
        let bytes = answering.shared.bytes.load(Ordering::Relaxed);
        Ok((Instant::now(), bytes, answering.busy()?))
    };
    let (began, bytes, busy) = read()?;
    pause(run)?;
    let (ended, bytes_then, busy_then) = read()?;
    let moved = float(bytes_then - bytes);
    Ok(BulkSample {
        gbit_per_s: moved * 8.0 / float(nanos(ended - began)),
        cpu_s_per_gb: float(busy_then - busy) / moved,
        ..BulkSample::default()
    })
}

impl BulkCell {
    pub(crate) fn name(&self) -> String {
        let family = if self.v6 { "IPv6" } else { "IPv4" };
        let what = match (self.service, self.flows) {
            (Service::Discard, flows) => format!("in, {family}, {flows} flows"),
            (Service::Generate, flows) => format!("out, {family}, {flows} flows"),
            (Service::Echo, 0) => format!("1-byte echo, {family}"),
            (Service::Echo, flows) => format!("1-byte echo, {family}, beside {flows} flow in"),
        };
        format!("{what}, {}", self.side.name())
    }
}

pub(crate) fn table(rows: &[BulkRow]) -> String {
    let mut text = String::new();
    for row in rows {
        let (name, median, [least, most]) = (row.cell.name(), &row.median, row.range);
        put!(text, "{name:<54} ");
        if row.cell.service == Service::Echo {
            let (p50, p99) = (median.p50_us, median.p99_us);
            put!(
                text,
                "p50 {p50:.1} us ({least:.1} to {most:.1}), p99 {p99:.1} us\n"
            );
            continue;
        }
        let cost = match row.cell.side {
            Responder::Loopback => "in the kernel".to_owned(),
            _ => format!("{:.2} CPU-s/GB", median.cpu_s_per_gb),
        };
        let rate = median.gbit_per_s;
        put!(text, "{rate:.1} Gbit/s ({least:.1} to {most:.1}), {cost}\n");
    }
    text
}

pub(crate) fn to_json(rows: &[BulkRow]) -> Vec<Value> {
    let one = |row: &BulkRow| {
        let (cell, median) = (&row.cell, &row.median);
        json!({
            "name": cell.name(),
            "family": if cell.v6 { 6 } else { 4 },
            "flows": cell.flows,
            "gbit_per_s": median.gbit_per_s,
            "cpu_s_per_gb": median.cpu_s_per_gb,
            "p50_us": median.p50_us,
            "p99_us": median.p99_us,
            "range": row.range,
        })
    };
    rows.iter().map(one).collect()
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Time until flows are at full speed.
const WARM_UP: Duration = Duration::from_millis(300);
