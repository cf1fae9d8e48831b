//! Many idle flows and connections: their cost in memory, processor time and wake-ups at each end.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Resource, getrlimit};

use super::measured::pause;
use super::report::{LoadReport, figure};
use super::tunnel::{LoadOptions, LoadTunnel, allow_files};
use quictun_testbed::application::listen;
use quictun_testbed::connection::Connection;
use quictun_testbed::program::Program;
use quictun_testbed::tunnel::START;

/// The number of flows opened before memory is first measured, so that code and connections are warm.
const WARM: usize = 64;

/// The time after which the work that follows opening many flows is finished.
const QUIET: Duration = Duration::from_secs(3);

/// The number of descriptors for everything else.
const RESERVE: u64 = 256;

/// The subcommand of this program that runs [`hold`].
const HOLD: &str = "hold";

/// The prefix of the line in which [`hold`] announces its address.
pub const LISTENING: &str = "listening ";

/// The size of the load and its limits.
#[derive(Clone, Copy, Debug)]
pub struct Idle {
    /// The number of flows.
    pub flows: usize,
    /// Time for which both programs are observed.
    pub time: Duration,
    /// The limit on resident KiB per flow at each end.
    pub kib: Option<f64>,
    /// The limit on processor use at each end, in percent.
    pub processor: Option<f64>,
    /// The limit on wake-ups per second at each end.
    pub wakes: Option<f64>,
}

/// Opens flows, uses each once, holds them, and observes the programs.
///
/// # Errors
///
/// Fails if a flow cannot be opened.
pub fn run(plan: &LoadOptions, load: Idle) -> Result<LoadReport> {
    let flows = load.flows;
    allow_files((flows + WARM) as u64 + RESERVE)?;
    let (site, _) = LoadTunnel::start_with(plan, |far, address| {
        // A separate process, because this process and the application each need a descriptor per flow.
        let mut hold = far.command(std::env::current_exe()?);
        let mut program = Program::start("application", hold.args([HOLD, &address.to_string()]))?;
        let line = program.wait_for(LISTENING, START)?;
        let address = line.trim_start_matches(LISTENING).parse()?;
        Ok((address, Some(program)))
    })?;
    let mut held = Vec::new();
    let open = |held: &mut Vec<Connection>, count: usize| -> Result<()> {
        while held.len() < count {
            let number = held.len();
            let mut connection = site
                .client
                .forward
                .connect()
                .with_context(|| format!("flow {number}"))?;
            connection
                .read_exact(&mut [0; 1])
                .with_context(|| format!("flow {number}"))?;
            held.push(connection);
        }
        Ok(())
    };
    open(&mut held, WARM)?;
    site.settle(WARM as u64)?;
    let before = site.memory()?;
    open(&mut held, WARM + flows)?;
    site.settle((WARM + flows) as u64)?;
    let after = site.memory()?;
    let mut report = LoadReport::new(format!("{flows} idle flows"));
    for (at, side) in ["server", "client"].into_iter().enumerate() {
        let kib = |bytes: u64| figure(bytes) / 1024.0;
        report.add(format!("{side}: resident before"), kib(before[at]), "KiB");
        report.add(format!("{side}: resident with them"), kib(after[at]), "KiB");
        let each = kib(after[at].saturating_sub(before[at])) / figure(flows as u64);
        report.add_limited(format!("{side}: resident per flow"), each, "KiB", load.kib);
    }
    let work =
        || Ok::<_, anyhow::Error>([site.server.program.work()?, site.client.program.work()?]);
    // Wait until the work that follows opening the flows is finished.
    pause(load.time.min(QUIET));
    let before = work()?;
    pause(load.time);
    let after = work()?;
    for (at, side) in ["server", "client"].into_iter().enumerate() {
        let spent = after[at] - before[at];
        let seconds = load.time.as_secs_f64();
        let share = spent.time.as_secs_f64() / seconds * 100.0;
        report.add_limited(format!("{side}: processor"), share, "%", load.processor);
        let wakes = figure(spent.wakes) / seconds;
        report.add_limited(format!("{side}: wake-ups"), wakes, "/s", load.wakes);
    }
    // The application keeps its ends open: only a reset ends both directions.
    held.into_iter().try_for_each(Connection::reset)?;
    site.settle(0)?;
    site.end()?;
    Ok(report)
}

/// Runs the application: listens on `address`, announces [`LISTENING`] and its address, sends a byte on each
/// connection, and keeps the connections open.
///
/// # Errors
///
/// Fails if it cannot listen or accept.
pub fn hold(address: SocketAddr, announce: impl FnOnce(String)) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    allow_files(limit.maximum.unwrap_or(u64::MAX))?;
    let listener = listen(address)?;
    announce(format!("{LISTENING}{}", listener.local_addr()?));
    let mut held: Vec<TcpStream> = Vec::new();
    loop {
        let (mut stream, _) = listener.accept()?;
        // A connection that was reset before the greeting need not be held.
        if stream.write_all(b"!").is_ok() {
            held.push(stream);
        }
    }
}
