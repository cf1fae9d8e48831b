//! Short-lived flows, of which nothing may be left.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use quictun_lab::stats;

use super::report::{LoadReport, figure};
use super::tunnel::{LoadOptions, LoadTunnel, allow_files};
use quictun_testbed::connection::{Connection, Endpoint};
use quictun_testbed::payload::Payload;

/// Memory is compared after this fraction of all flows (one tenth), when everything has its working size.
const WARM_SHARE: u64 = 10;

/// The number of memory samples over the whole run.
const SAMPLES: u64 = 20;

/// The size of the load and its limits.
#[derive(Clone, Copy, Debug)]
pub struct Churn {
    /// The total number of flows.
    pub flows: u64,
    /// The number of concurrent flows.
    pub parallel: u64,
    /// The percentage by which memory may grow after the first tenth of the flows.
    pub growth_percent: Option<f64>,
    /// The number of descriptors that may be open at the end in excess of those at the start.
    pub descriptors: Option<f64>,
}

/// Opens and closes flows, each with a verified payload. The application resets one in sixteen.
///
/// # Errors
///
/// Fails if a flow fails, or if flows stay open.
pub fn run(plan: &LoadOptions, churn: Churn) -> Result<LoadReport> {
    allow_files(4 * churn.parallel + 256)?;
    let threads = churn.parallel * 2;
    let (site, _) = LoadTunnel::start(plan, move |listener| echo_on(listener, threads))?;
    one_flow(&site.client.forward, 0).context("running the first flow")?;
    site.settle(0)?;
    let before = site.descriptors()?;
    let started = Instant::now();
    let samples = storm(&site, churn)?;
    let elapsed = started.elapsed();
    site.settle(0)?;
    let after = site.descriptors()?;

    let mut report = LoadReport::new(format!("{} flows, {} at once", churn.flows, churn.parallel));
    let rate = figure(churn.flows) / elapsed.as_secs_f64();
    report.add("flows per second", rate, "/s");
    for (at, side) in ["server", "client"].into_iter().enumerate() {
        let memory: Vec<(u64, f64)> = samples
            .iter()
            .map(|(flows, memory)| (*flows, figure(memory[at]) / 1024.0))
            .collect();
        add_memory(&mut report, side, &memory, churn);
        let left = figure(after[at].saturating_sub(before[at]) as u64);
        let what = format!("{side}: descriptors left");
        report.add_limited(what, left, "", churn.descriptors);
    }
    site.end()?;
    Ok(report)
}

/// Adds resident memory over time, in KiB. Growth is measured from the first to the last quarter of the warm samples.
/// This shows a leak, but not a moment with many waiting flows.
fn add_memory(report: &mut LoadReport, side: &str, samples: &[(u64, f64)], churn: Churn) {
    for (flows, memory) in samples {
        report.add_detail(format!("{side}: resident after {flows}"), *memory, "KiB");
    }
    let warm: Vec<f64> = samples
        .iter()
        .filter(|(flows, _)| *flows >= churn.flows / WARM_SHARE)
        .map(|(_, memory)| *memory)
        .collect();
    let quarter = warm.len().div_ceil(4);
    let (first, last) = (
        stats::median(&warm[..quarter]).unwrap_or(f64::NAN),
        stats::median(&warm[warm.len() - quarter..]).unwrap_or(f64::NAN),
    );
    let most = warm.iter().copied().fold(f64::NAN, f64::max);
    report.add(format!("{side}: resident when warm"), first, "KiB");
    report.add(format!("{side}: resident at the end"), last, "KiB");
    report.add(format!("{side}: resident at most"), most, "KiB");
    let growth = (last / first - 1.0) * 100.0;
    let what = format!("{side}: growth");
    report.add_limited(what, growth, "%", churn.growth_percent);
}

/// Runs all flows; returns samples of the number of finished flows and the memory of both programs.
fn storm(site: &LoadTunnel, churn: Churn) -> Result<Vec<(u64, [u64; 2])>> {
    let counters = Counters::default();
    let every = (churn.flows / SAMPLES).max(1);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..churn.parallel)
            .map(|_| scope.spawn(|| counters.run(&site.client.forward, churn.flows)))
            .collect();
        let mut samples = Vec::new();
        while !threads
            .iter()
            .all(std::thread::ScopedJoinHandle::is_finished)
        {
            let flows = counters.done.load(Ordering::Relaxed);
            if flows >= every * (samples.len() as u64 + 1) {
                samples.push((flows, site.memory()?));
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
        for thread in threads {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        samples.push((churn.flows, site.memory()?));
        Ok(samples)
    })
}

/// State that the threads of a storm share.
#[derive(Debug, Default)]
struct Counters {
    begun: AtomicU64,
    done: AtomicU64,
    failed: AtomicBool,
}

impl Counters {
    /// Runs one flow after another until all have been started or one has failed.
    fn run(&self, forward: &Endpoint, flows: u64) -> Result<()> {
        loop {
            let number = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
            if number > flows || self.failed.load(Ordering::Relaxed) {
                return Ok(());
            }
            if let Err(error) = one_flow(forward, number) {
                self.failed.store(true, Ordering::Relaxed);
                return Err(error).with_context(|| format!("flow {number}"));
            }
            self.done.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Sends a payload of varying length to the echo and back, and ends cleanly or with a reset.
fn one_flow(forward: &Endpoint, number: u64) -> Result<()> {
    let payload = Payload::new(number, 1 + number % 3000);
    let mut connection = forward.connect()?;
    payload.write_to(&mut connection)?;
    if number.is_multiple_of(16) {
        return connection.reset();
    }
    connection.finish()?;
    payload.read_to_end_of(&mut connection)
}

/// Starts threads that each serve one connection at a time, so no thread is started per flow.
fn echo_on(listener: TcpListener, threads: u64) {
    let listener = std::sync::Arc::new(listener);
    for _ in 0..threads {
        let listener = listener.clone();
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                // A flow that the client resets ends here with an error, which is expected.
                drop(Connection::new(stream.into()).and_then(echo));
            }
        });
    }
}

fn echo(mut connection: Connection) -> Result<()> {
    let mut block = [0; 4096];
    loop {
        let read = connection.read(&mut block)?;
        if read == 0 {
            return connection.finish();
        }
        connection.write_all(&block[..read])?;
    }
}
