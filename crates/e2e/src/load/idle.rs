//! Many flows and connections that do nothing: what they cost in memory, processor time and wake-ups at each end.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Resource, getrlimit};

use super::measured::pause;
use super::report::{Report, figure};
use super::site::{Plan, Site, allow_files};
use quictun_testbed::application::listen;
use quictun_testbed::connection::Connection;
use quictun_testbed::program::Program;
use quictun_testbed::tunnel::START;

/// Flows opened before memory is looked at first: code and connections are warm then.
const WARM: usize = 64;

/// Work that follows the opening of many flows is over after this.
const QUIET: Duration = Duration::from_secs(3);

/// Descriptors for everything else.
const RESERVE: u64 = 256;

/// The subcommand of this program that runs [`hold`].
const HOLD: &str = "hold";

/// What comes before the address that [`hold`] announces.
pub const LISTENING: &str = "listening ";

/// How much is held, and what it may cost.
#[derive(Clone, Copy, Debug)]
pub struct Idle {
    /// Flows.
    pub flows: usize,
    /// How long both programs are watched.
    pub time: Duration,
    /// KiB resident of a flow at each end.
    pub kib: Option<f64>,
    /// Percent of a processor at each end.
    pub processor: Option<f64>,
    /// Wake-ups per second at each end.
    pub wakes: Option<f64>,
}

/// Opens flows, each used once, holds them, and watches.
///
/// # Errors
///
/// Where one of them cannot be opened.
pub fn run(plan: &Plan, load: Idle) -> Result<Report> {
    let flows = load.flows;
    allow_files((flows + WARM) as u64 + RESERVE)?;
    let (site, _) = Site::start_with(plan, |far, address| {
        // A process of its own: this one and it need a descriptor for each flow.
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
    let mut report = Report::new(format!("{flows} idle flows"));
    for (at, side) in ["server", "client"].into_iter().enumerate() {
        let kib = |bytes: u64| figure(bytes) / 1024.0;
        report.add(format!("{side}: resident before"), kib(before[at]), "KiB");
        report.add(format!("{side}: resident with them"), kib(after[at]), "KiB");
        let each = kib(after[at].saturating_sub(before[at])) / figure(flows as u64);
        report.add_limited(format!("{side}: resident per flow"), each, "KiB", load.kib);
    }
    let work =
        || Ok::<_, anyhow::Error>([site.server.program.work()?, site.client.program.work()?]);
    // What opening them has left to do is done.
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
    // The application holds its ends: only a reset ends both directions.
    held.into_iter().try_for_each(Connection::reset)?;
    site.settle(0)?;
    site.end()?;
    Ok(report)
}

/// The application: listens on `address`, has [`LISTENING`] and where it listens announced on standard
/// output, sends a byte to everybody, and keeps the connections open.
///
/// # Errors
///
/// Where it cannot listen or accept.
pub fn hold(address: SocketAddr, announce: impl FnOnce(String)) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    allow_files(limit.maximum.unwrap_or(u64::MAX))?;
    let listener = listen(address)?;
    announce(format!("{LISTENING}{}", listener.local_addr()?));
    let mut held: Vec<TcpStream> = Vec::new();
    loop {
        let (mut stream, _) = listener.accept()?;
        // Whoever resets before the greeting has gone: nothing to hold.
        if stream.write_all(b"!").is_ok() {
            held.push(stream);
        }
    }
}
