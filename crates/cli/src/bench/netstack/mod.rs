//! `quictun bench netstack`: how fast the user-space stack serves ordinary programs through a TUN device.
//!
//! Everything happens in a network of its own: kernel sockets on one core, the stack on another, and for comparison
//! the kernel's own loopback in the same run.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use clap::{Arg, ArgAction, ArgMatches, Command};
use quictun_netstack::Config;
use quictun_sys::{ContainError, NetNamespace, Network, Tun, set_sysctl};
use serde_json::json;

use self::device::{Duty, Shared};
use self::load::{Bulk, Server};
use super::machine::{Machine, bind};
use crate::exit;
use crate::link::privilege;

mod device;
mod load;

/// How to measure and to show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bulk flows at a time.
    pub flows: Vec<usize>,
    /// Runs of each, of which the median counts.
    pub repeats: usize,
    /// Time of each run.
    pub run: Duration,
    /// Print JSON.
    pub json: bool,
    /// Also on a machine that is busy.
    pub force: bool,
}

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
struct Cell {
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
struct Row {
    cell: Cell,
    median: Sample,
    range: [f64; 2],
}

/// The command line.
pub(super) fn command() -> Command {
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .action(ArgAction::SetTrue)
            .help(help)
    };
    let number = |name: &'static str, default: &'static str, most: u64, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("N")
            .value_parser(clap::value_parser!(u64).range(1..=most))
            .default_value(default)
            .help(help)
    };
    Command::new("netstack")
        .about("Measure the user-space TCP stack behind a TUN device: throughput, CPU time, delay")
        .after_help(include_str!("../netstack_help.txt"))
        .arg(
            Arg::new("flows")
                .long("flows")
                .value_name("LIST")
                .value_delimiter(',')
                .value_parser(clap::value_parser!(u64).range(1..=64))
                .default_value("1,8")
                .help("Bulk flows at a time"),
        )
        .arg(number(
            "repeats",
            "3",
            99,
            "Runs of each, of which the median counts",
        ))
        .arg(number("run-ms", "1000", 60_000, "Milliseconds of each run"))
        .arg(flag("json", "Print one JSON object"))
        .arg(flag(
            "force",
            "Measure although the machine is busy, and say so in the result",
        ))
}

/// Reads what follows `quictun bench netstack`.
pub(super) fn parse(matches: &ArgMatches) -> Options {
    let number = |name| {
        *matches
            .get_one::<u64>(name)
            .expect("invariant: it has a default")
    };
    let small = |number: u64| usize::try_from(number).expect("invariant: clap has bounded it");
    let flows = matches.get_many::<u64>("flows").into_iter().flatten();
    Options {
        flows: flows.copied().map(small).collect(),
        repeats: small(number("repeats")),
        run: Duration::from_millis(number("run-ms")),
        json: matches.get_flag("json"),
        force: matches.get_flag("force"),
    }
}

/// Measures everything and prints it.
pub(super) fn measure(options: &Options) -> Result<()> {
    let mut machine = Machine::examine()?;
    if let Some(noise) = machine.noise().filter(|_| !options.force) {
        return Err(anyhow!("{noise}: wait, or say --force"));
    }
    let network =
        NetNamespace::new().map_err(|error| privilege::explain(&ContainError::Forbidden(error)))?;
    network
        .within(|| Network::open()?.set_up("lo"))
        .context("a loopback device")?;
    let mut rows = Vec::new();
    let cells = cells(options);
    for (number, cell) in cells.iter().enumerate() {
        if !options.json {
            exit::say(&format!("{}/{}: {}", number + 1, cells.len(), cell.name()));
        }
        rows.push(repeat(cell, options, &machine, &network)?);
    }
    machine.note_steal()?;
    let noise = machine.noise();
    exit::print(&if options.json {
        as_json(&rows, &machine, noise.as_deref())
    } else {
        as_table(&rows, &machine, noise.as_deref())
    })
}

fn cells(options: &Options) -> Vec<Cell> {
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

fn repeat(
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
            let tun = network.within(|| device(offload)).context("a TUN device")?;
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

/// Lets the others work.
fn pause(time: Duration) -> Result<()> {
    let time = rustix::event::Timespec::try_from(time).context("a pause")?;
    rustix::event::poll(&mut [], Some(&time)).context("a pause")?;
    Ok(())
}

/// A device with addresses of both families; what it leads to is the stack.
fn device(offload: bool) -> std::io::Result<Tun> {
    let tun = Tun::create(NAME, offload)?;
    let mut network = Network::open()?;
    network.set_queue_length(NAME, QUEUE)?;
    network.add_address(NAME, IpAddr::from([10, 77, 0, 2]), 24)?;
    network.add_address(NAME, "fd77::2".parse().map_err(std::io::Error::other)?, 64)?;
    network.set_up(NAME)?;
    set_sysctl("net/ipv4/tcp_no_metrics_save", "1")?;
    Ok(tun)
}

impl Cell {
    fn name(&self) -> String {
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

fn as_table(rows: &[Row], machine: &Machine, noise: Option<&str>) -> String {
    let mut text = format!("{}, Linux {}\n", machine.cpu, machine.kernel);
    if let Some(noise) = noise {
        let _infallible = writeln!(text, "Not to be believed: {noise}.");
    }
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

fn as_json(rows: &[Row], machine: &Machine, noise: Option<&str>) -> String {
    let rows: Vec<_> = rows
        .iter()
        .map(
            |Row {
                 cell,
                 median,
                 range,
             }| {
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
            },
        )
        .collect();
    let all = json!({
        "cpu": machine.cpu,
        "kernel": machine.kernel,
        "load": machine.load,
        "steal": machine.steal,
        "noise": noise,
        "rows": rows,
    });
    format!("{all}\n")
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "counts of a measurement")]
fn float(count: u64) -> f64 {
    count as f64
}

fn micros(nanos: u64) -> f64 {
    float(nanos) / 1000.0
}

/// The device's name; the network is ours alone.
const NAME: &str = "bench0";
/// Packets that may wait for the stack: with the kernel's 500, bursts of several flows would be dropped.
const QUEUE: u32 = 10_000;
/// Until flows are at full speed.
const WARM_UP: Duration = Duration::from_millis(300);
