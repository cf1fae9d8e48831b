//! Bulk flows and echoes of one byte (B10): the stack on its device, and the kernel's loopback in the same run.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use quictun_netstack::Config;
use quictun_sys::NetNamespace;
use serde_json::{Value, json};

use super::device::{self, Duty, Shared};
use super::load::{self, Bulk, Server};
use super::{Options, float, micros};
use crate::bench::machine::{Machine, bind, pause};

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// The kernel, on its loopback device.
    Loopback,
    /// The stack, with or without the device's offload.
    Stack { offload: bool },
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    side: Side,
    duty: Duty,
    v6: bool,
    flows: usize,
}

/// One run of it.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    gbit_per_s: f64,
    cpu_s_per_gb: f64,
    p50_us: f64,
    p99_us: f64,
}

/// What came of the runs: medians, and the rates from least to most.
pub(super) struct Row {
    cell: Cell,
    median: Sample,
    range: [f64; 2],
}

pub(super) fn cells(options: &Options) -> Vec<Cell> {
    let sides = [
        Side::Loopback,
        Side::Stack { offload: true },
        Side::Stack { offload: false },
    ];
    let mut all = Vec::new();
    for v6 in [false, true] {
        for duty in [Duty::Sink, Duty::Source] {
            for flows in options.flows.iter().copied() {
                for side in sides {
                    // The comparison is about one core against one; more flows do not change it.
                    if side != Side::Loopback || flows == 1 {
                        all.push(Cell {
                            side,
                            duty,
                            v6,
                            flows,
                        });
                    }
                }
            }
        }
        for side in sides {
            let (duty, flows) = (Duty::Echo, 1);
            all.push(Cell {
                side,
                duty,
                v6,
                flows,
            });
        }
    }
    all
}

pub(super) fn repeat(
    cell: &Cell,
    options: &Options,
    machine: &Machine,
    network: &NetNamespace,
) -> Result<Row> {
    let mut samples = Vec::new();
    for _ in 0..options.repeats {
        let sample = once(cell, options.run, machine.cores, network);
        samples.push(sample.with_context(|| cell.name())?);
    }
    let order = |sample: &Sample| match cell.duty {
        Duty::Echo => sample.p50_us,
        _ => sample.gbit_per_s,
    };
    samples.sort_by(|a, b| order(a).total_cmp(&order(b)));
    Ok(Row {
        cell: *cell,
        median: samples[samples.len() / 2],
        range: [order(&samples[0]), order(&samples[samples.len() - 1])],
    })
}

/// One run: the answering side on the second core, the asking one here.
fn once(cell: &Cell, run: Duration, cores: [usize; 2], network: &NetNamespace) -> Result<Sample> {
    let shared = Arc::new(Shared::default());
    let (duty, seen) = (cell.duty, shared.clone());
    let host = if cell.v6 { "fd77::1" } else { "10.77.0.1" };
    let (target, answering) = match cell.side {
        Side::Stack { offload } => {
            let tun = network
                .within(|| super::device(offload))
                .context("a TUN device")?;
            let target = SocketAddr::new(host.parse::<IpAddr>()?, 5201);
            let config = Config {
                offload,
                ..Config::default()
            };
            let serve = move || {
                bind(cores[1])?;
                device::serve(&tun, config, duty, &seen)
            };
            (target, thread::Builder::new().spawn(serve)?)
        }
        Side::Loopback => {
            let host = if cell.v6 { "::1" } else { "127.0.0.1" };
            let address = SocketAddr::new(host.parse::<IpAddr>()?, 0);
            let server = network.within(|| Server::bind(address))?;
            let target = server.address()?;
            let serve = move || {
                bind(cores[1])?;
                server.serve(duty, &seen).context("serving")
            };
            (target, thread::Builder::new().spawn(serve)?)
        }
    };
    let sample = match duty {
        Duty::Echo => echo(network, target, run),
        _ => bulk(network, target, cell, run, &shared),
    };
    shared.stop.store(true, Ordering::Relaxed);
    let served = answering
        .join()
        .map_err(|_| anyhow!("the other side failed"))?;
    let sample = sample?;
    served?;
    Ok(sample)
}

fn echo(network: &NetNamespace, target: SocketAddr, run: Duration) -> Result<Sample> {
    let mut times = load::ping_pong(network, target, run)?;
    times.sort_unstable();
    let at = |share: usize| micros(times[(times.len() - 1) * share / 100]);
    Ok(Sample {
        p50_us: at(50),
        p99_us: at(99),
        ..Sample::default()
    })
}

fn bulk(
    network: &NetNamespace,
    target: SocketAddr,
    cell: &Cell,
    run: Duration,
    shared: &Shared,
) -> Result<Sample> {
    let flows: Result<Vec<Bulk>> = (0..cell.flows)
        .map(|_| Bulk::start(network, target, cell.duty))
        .collect();
    let read = || {
        let bytes = shared.bytes.load(Ordering::Relaxed);
        (
            Instant::now(),
            bytes,
            shared.busy_ns.load(Ordering::Relaxed),
        )
    };
    pause(WARM_UP)?;
    let (began, bytes, busy) = read();
    pause(run)?;
    let (ended, bytes_then, busy_then) = read();
    shared.stop.store(true, Ordering::Relaxed);
    for flow in flows? {
        flow.stop();
    }
    let moved = float(bytes_then - bytes);
    Ok(Sample {
        gbit_per_s: moved * 8.0 / float(nanos(ended - began)),
        cpu_s_per_gb: float(busy_then - busy) / moved,
        ..Sample::default()
    })
}

impl Cell {
    pub(super) fn name(&self) -> String {
        let side = match self.side {
            Side::Loopback => "kernel loopback",
            Side::Stack { offload: true } => "stack, offload on",
            Side::Stack { offload: false } => "stack, offload off",
        };
        let family = if self.v6 { "IPv6" } else { "IPv4" };
        let duty = match self.duty {
            Duty::Sink => "in",
            Duty::Source => "out",
            Duty::Echo => "1-byte echo",
        };
        format!("{duty}, {family}, {} flows, {side}", self.flows)
    }
}

/// A line for each row.
pub(super) fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    for Row {
        cell,
        median,
        range,
    } in rows
    {
        let _infallible = match cell.duty {
            Duty::Echo => writeln!(
                text,
                "{:<46} p50 {:.1} us ({:.1} to {:.1}), p99 {:.1} us",
                cell.name(),
                median.p50_us,
                range[0],
                range[1],
                median.p99_us
            ),
            _ => writeln!(
                text,
                "{:<46} {:.1} Gbit/s ({:.1} to {:.1}), {}",
                cell.name(),
                median.gbit_per_s,
                range[0],
                range[1],
                match cell.side {
                    Side::Loopback => "in the kernel".to_owned(),
                    Side::Stack { .. } => format!("{:.2} CPU-s/GB", median.cpu_s_per_gb),
                }
            ),
        };
    }
    text
}

/// An object for each row.
pub(super) fn to_json(rows: &[Row]) -> Vec<Value> {
    let one = |Row {
                   cell,
                   median,
                   range,
               }: &Row| {
        json!({
            "name": cell.name(),
            "family": if cell.v6 { 6 } else { 4 },
            "flows": cell.flows,
            "gbit_per_s": median.gbit_per_s,
            "cpu_s_per_gb": median.cpu_s_per_gb,
            "p50_us": median.p50_us,
            "p99_us": median.p99_us,
            "range": range,
        })
    };
    rows.iter().map(one).collect()
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Until flows are at full speed.
const WARM_UP: Duration = Duration::from_millis(300);
