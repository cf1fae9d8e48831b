//! Round trips of small datagrams: directly, through the tunnel alone, and through it beside a bulk transfer.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use quictun_lab::stats::quantile;
use quictun_testbed::connection::Connection;

use super::traffic::{DatagramRhythm, RoundTrips, connect, round_trips};
use super::wireguard::WireGuard;
use super::{APPLICATION, DatagramSite, FORWARD};
use crate::load::machines::{EmulatedPath, LinkKind, LinkedMachines};
use crate::load::measured::{Role, WARM_UP, open, pause};
use crate::load::report::{LoadReport, figure};
use crate::load::tunnel::LoadOptions;

/// The size of the measurement.
#[derive(Args, Clone, Debug)]
pub struct LatencyOptions {
    /// Seconds that each measurement takes. A transfer that lasts for 30 s is tried over TLS once, which may fill a queue
    /// for a moment.
    #[arg(long, default_value_t = 60)]
    pub seconds: u32,
    /// Milliseconds that the tunnel may add to the 99th percentile beside a bulk transfer.
    #[arg(long, default_value_t = 10.0)]
    pub max_added_ms: f64,
    /// Maximum ratio of the median through the tunnel to the direct one, on a cable.
    #[arg(long, default_value_t = 1.15)]
    pub max_ratio: f64,
    /// The program wireguard-go, which is measured on the cable as well; `wg` must be installed.
    #[arg(long, value_name = "PROGRAM")]
    pub wireguard: Option<PathBuf>,
}

const LENGTH: usize = 200;
const PER_SECOND: u32 = 50;

/// The block size of the bulk transfer, bytes.
const BLOCK: usize = 128 * 1024;

/// The time for which the bulk transfer fills the link before datagrams are measured: congestion control finds the rate.
const FILL: Duration = Duration::from_secs(3);

/// Measures on an emulated link, and on a cable.
///
/// # Errors
///
/// Fails if a tunnel does not work.
pub fn run(plan: &LoadOptions, path: EmulatedPath, load: &LatencyOptions) -> Result<LoadReport> {
    let rhythm = DatagramRhythm {
        length: LENGTH,
        per_second: PER_SECOND,
        count: PER_SECOND * load.seconds,
    };
    let title = format!("{LENGTH}-byte datagrams, {PER_SECOND} per second, there and back");
    let mut report = LoadReport::new(title);
    // Loss in either direction.
    let lossless = (path.loss == 0.0).then_some(0.0);
    let machines = LinkedMachines::new(&LinkKind::Emulated(path))?;
    let site = DatagramSite::start(&machines, plan)?;
    let measure = |to| machines.near.within(|| round_trips(&connect(to)?, rhythm));
    let direct = measure(site.direct())?;
    add(&mut report, "link, direct", &direct);
    add(&mut report, "link, tunnel alone", &measure(FORWARD)?);
    for (name, role) in [("an upload", Role::Sink), ("a download", Role::Source)] {
        let (found, rate) = beside(&site, role, FORWARD, rhythm)?;
        let row = format!("link, beside {name}");
        report.add(format!("{row}: rate"), rate, "Mbit/s");
        add(&mut report, &row, &found);
        let added = quantile(&found.times, 0.99) - quantile(&direct.times, 0.99);
        let limit = Some(load.max_added_ms);
        report.add_limited(format!("{row}: p99 added"), added, "ms", limit);
        report.add_limited(format!("{row}: lost"), found.lost, "%", lossless);
    }
    site.end()?;
    machines.end()?;

    let machines = LinkedMachines::new(&LinkKind::Veth)?;
    let site = DatagramSite::start(&machines, plan)?;
    let measure = |to| machines.near.within(|| round_trips(&connect(to)?, rhythm));
    let (direct, tunnel) = (measure(site.direct())?, measure(FORWARD)?);
    add(&mut report, "cable, direct", &direct);
    add(&mut report, "cable, tunnel", &tunnel);
    let ratio = quantile(&tunnel.times, 0.5) / quantile(&direct.times, 0.5);
    report.add_limited("cable: ratio of p50", ratio, "", Some(load.max_ratio));
    if let Some(program) = &load.wireguard {
        let endpoint = (machines.address, WireGuard::PORT).into();
        let _pair = WireGuard::pair(&machines, program, endpoint)?;
        let far = SocketAddr::new(WireGuard::FAR.parse()?, APPLICATION);
        add(&mut report, "cable, wireguard-go", &measure(far)?);
    }
    site.end()?;
    machines.end()?;
    Ok(report)
}

fn add(report: &mut LoadReport, name: &str, found: &RoundTrips) {
    for (share, percent) in [(0.5, "p50"), (0.99, "p99")] {
        let row = format!("{name}: {percent}");
        report.add(row, quantile(&found.times, share) * 1e3, "us");
    }
    if !name.contains("beside") {
        report.add(format!("{name}: lost"), found.lost, "%");
    }
}

/// Measures beside a bulk transfer. Also returns its rate in Mbit/s.
fn beside(
    site: &DatagramSite<'_>,
    role: Role,
    to: SocketAddr,
    rhythm: DatagramRhythm,
) -> Result<(RoundTrips, f64)> {
    let near = &site.machines.near;
    let mut bulk = near.within(|| open(&site.client.client.forward, role))?;
    let (over, read) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let moving = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                step(&mut bulk, role, &read)?;
            }
            bulk.reset()
        });
        let moved = || read.load(Ordering::Relaxed) + site.streams.received();
        pause(WARM_UP + FILL);
        let (begin, before) = (Instant::now(), moved());
        let found = near.within(|| round_trips(&connect(to)?, rhythm));
        let rate = figure(moved() - before) * 8.0 / 1e6 / begin.elapsed().as_secs_f64();
        over.store(true, Ordering::Relaxed);
        moving
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            .context("running the bulk transfer")?;
        Ok((found?, rate))
    })
}

fn step(bulk: &mut Connection, role: Role, moved: &AtomicU64) -> Result<()> {
    let mut block = vec![0; BLOCK];
    if role == Role::Sink {
        return Ok(bulk.write(&block).map(drop)?);
    }
    let count = bulk.read(&mut block)?;
    ensure!(count > 0, "the download ended early");
    moved.fetch_add(count as u64, Ordering::Relaxed);
    Ok(())
}
