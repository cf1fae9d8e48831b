//! The combined rate of concurrent flows, and the processor time of a tunnel for each byte.

use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use quictun_testbed::connection::{Connection, Endpoint};

use crate::load::measured::{MeasuredApplication, Role, open, pause};
use crate::load::report::figure;

/// The block size of reads and writes, in bytes.
const BLOCK: usize = 128 * 1024;

/// The flows of a measurement, and the times that it takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowLoad {
    pub(super) flows: usize,
    /// The application's role: a sink or a source.
    pub(super) role: Role,
    /// The time that is left out, and the measured time after it.
    pub(super) skip: Duration,
    pub(super) time: Duration,
}

/// The result of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct FlowRate {
    /// The rate in Mbit/s.
    pub(super) mbit: f64,
    /// Seconds of processor time per gigabyte.
    pub(super) work: f64,
}

/// Measures concurrent flows through `forward`. `work` returns the processor time that the tunnel has used so far.
///
/// # Errors
///
/// Fails if a connection fails, or if nothing arrives.
pub(super) fn measure(
    forward: &Endpoint,
    application: &MeasuredApplication,
    load: FlowLoad,
    work: &(dyn Fn() -> Result<Duration> + Sync),
) -> Result<FlowRate> {
    let (over, downloaded) = (AtomicBool::new(false), AtomicU64::new(0));
    let received = || match load.role {
        Role::Source => downloaded.load(Ordering::Relaxed),
        _ => application.received(),
    };
    let connections = (0..load.flows).map(|_| open(forward, load.role));
    let connections = connections.collect::<Result<Vec<_>>>()?;
    std::thread::scope(|scope| {
        let run = |connection| {
            let (over, downloaded) = (&over, &downloaded);
            scope.spawn(move || transfer(connection, load.role, over, downloaded))
        };
        let threads: Vec<_> = connections.into_iter().map(run).collect();
        let look = || Ok::<_, anyhow::Error>((Instant::now(), received(), work()?));
        pause(load.skip);
        let before = look();
        pause(load.time);
        let after = look();
        over.store(true, Ordering::Relaxed);
        for thread in threads {
            let done = thread.join();
            done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                .context("running a measured transfer")?;
        }
        let (before, after) = (before?, after?);
        let bytes = figure(after.1 - before.1);
        ensure!(bytes > 0.0, "nothing arrived");
        let elapsed = (after.0 - before.0).as_secs_f64();
        Ok(FlowRate {
            mbit: bytes * 8.0 / 1e6 / elapsed,
            work: after.2.saturating_sub(before.2).as_secs_f64() * 1e9 / bytes,
        })
    })
}

/// Reads from a source, or writes to a sink, until the measurement is over.
fn transfer(
    mut connection: Connection,
    role: Role,
    over: &AtomicBool,
    downloaded: &AtomicU64,
) -> Result<()> {
    let mut block = vec![0; BLOCK];
    while !over.load(Ordering::Relaxed) {
        if role == Role::Source {
            let read = connection.read(&mut block)?;
            ensure!(read > 0, "the download ended early");
            downloaded.fetch_add(read as u64, Ordering::Relaxed);
        } else {
            let _written = connection.write(&block)?;
        }
    }
    connection.reset()
}
