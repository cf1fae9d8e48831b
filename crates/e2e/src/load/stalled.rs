//! One active flow beside many flows whose applications do not read: checks whether it keeps its rate and its delay.

use std::io::Write;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;
use quictun_lab::stats;

use super::measured::{LITTLE, MeasuredApplication, Role, download, echo, open, upload};
use super::report::LoadReport;
use super::tunnel::{LoadOptions, LoadTunnel, allow_files};
use quictun_testbed::connection::Connection;
use quictun_testbed::deadline;

/// The interval over which received bytes are counted.
const QUIET: Duration = Duration::from_secs(1);

/// The number of bytes in that interval that do not belong to flows: keep-alives, acknowledgements, a repeated HOLD.
const STILL: u64 = 64 * 1024;

/// The time limit for all flows to stall.
const STALLED_WITHIN: Duration = Duration::from_mins(1);

/// The number of bytes that one write offers to a stalled upload.
const BLOCK: usize = 64 * 1024;

/// The applications that do not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StalledDirection {
    /// The applications at the client.
    Downloads,
    /// The targets at the server.
    Uploads,
}

/// The size of the measurement and its limits.
#[derive(Clone, Copy, Debug)]
pub struct Stalled {
    /// The number of stalled flows.
    pub flows: usize,
    /// The direction of these flows.
    pub direction: StalledDirection,
    /// The number of measurements alone and beside them, in turn, each on a new tunnel.
    pub repetitions: usize,
    /// Time for which the active flow is measured in each direction.
    pub time: Duration,
    /// The number of round trips of one byte.
    pub echoes: usize,
    /// The minimum rate beside the stalled flows, as a share of the rate alone.
    pub least_rate: f64,
    /// The maximum 99th percentile of the delay beside them, as a multiple of that alone.
    pub most_delay: f64,
}

/// The figures of one tunnel.
#[derive(Clone, Copy, Debug)]
struct TunnelFigures {
    up: f64,
    down: f64,
    p99: f64,
}

/// Measures an active flow alone and beside stalled ones.
///
/// # Errors
///
/// Fails if a tunnel does not work.
pub fn run(plan: &LoadOptions, load: Stalled) -> Result<LoadReport> {
    // Each flow takes two descriptors here, and the programs inherit the limit.
    allow_files(3 * load.flows as u64 + 256)?;
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..load.repetitions {
        alone.push(measure(plan, load, 0)?);
        beside.push(measure(plan, load, load.flows)?);
    }
    let mut report = LoadReport::new(format!(
        "an active flow beside {} stalled {:?}, medians of {}",
        load.flows, load.direction, load.repetitions
    ));
    let of = |all: &[TunnelFigures], get: &dyn Fn(&TunnelFigures) -> f64| {
        let values: Vec<f64> = all.iter().map(get).collect();
        stats::median(&values).unwrap_or(f64::NAN)
    };
    for name in ["upload", "download"] {
        let get = |figures: &TunnelFigures| match name {
            "upload" => figures.up,
            _ => figures.down,
        };
        let (alone, beside) = (of(&alone, &get), of(&beside, &get));
        report.add(format!("{name} alone"), alone, "Mbit/s");
        report.add(format!("{name} beside"), beside, "Mbit/s");
        let ratio = beside / alone;
        report.add_floor(format!("{name}, beside / alone"), ratio, load.least_rate);
    }
    let delay = |all: &[TunnelFigures]| of(all, &|figures| figures.p99);
    let (alone, beside) = (delay(&alone), delay(&beside));
    report.add("echo p99 alone", alone, "us");
    report.add("echo p99 beside", beside, "us");
    let ratio = beside / alone;
    report.add_limited("echo p99, beside / alone", ratio, "", Some(load.most_delay));
    Ok(report)
}

fn measure(plan: &LoadOptions, load: Stalled, flows: usize) -> Result<TunnelFigures> {
    let application = MeasuredApplication::default();
    let serve = application.clone();
    let (site, _) = LoadTunnel::start(plan, move |listener| serve.serve(listener))?;
    let figures = site.near(|client| {
        let forward = &client.forward;
        let held = stall(&site, load.direction, flows)?;
        let figures = TunnelFigures {
            up: upload(forward, &application, load.time).context("upload")?,
            down: download(forward, load.time).context("download")?,
            p99: stats::quantile(&echo(forward, load.echoes).context("echo")?, 0.99),
        };
        held.into_iter().try_for_each(Connection::reset)?;
        Ok(figures)
    })?;
    site.end()?;
    Ok(figures)
}

/// Opens flows and returns once almost no bytes move for them.
fn stall(site: &LoadTunnel, direction: StalledDirection, flows: usize) -> Result<Vec<Connection>> {
    let role = match direction {
        StalledDirection::Downloads => Role::Brook,
        StalledDirection::Uploads => Role::Deaf,
    };
    let mut held = (0..flows)
        .map(|_| open(&site.client.forward, role))
        .collect::<Result<Vec<_>>>()?;
    for connection in &held {
        connection.limit_sending(LITTLE)?;
        rustix::io::ioctl_fionbio(connection.as_fd(), true)?;
    }
    let block = vec![0; BLOCK];
    let (mut before, mut since) = (site.received()?, Instant::now());
    deadline::wait("all flows to stall", STALLED_WITHIN, || {
        if direction == StalledDirection::Uploads {
            for connection in &mut held {
                // An error means that the socket is full: nothing else remains to be written.
                while connection.write(&block).is_ok() {}
            }
        }
        if since.elapsed() < QUIET {
            return Ok(None);
        }
        let received = site.received()?;
        let moved = received - std::mem::replace(&mut before, received);
        since = Instant::now();
        Ok((moved < STILL).then_some(()))
    })?;
    Ok(held)
}
