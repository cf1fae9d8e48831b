//! Many flows that transfer data concurrently in both directions, with every byte verified.

use std::sync::{Arc, Barrier};
use std::time::Instant;

use anyhow::{Context, Result};

use super::report::{LoadReport, figure};
use super::tunnel::{LoadOptions, LoadTunnel, allow_files};
use quictun_testbed::application::{echo, there_and_back};
use quictun_testbed::connection::Connection;
use quictun_testbed::payload::Payload;

/// Sends `bytes` bytes to an echo and back on each of `flows` concurrent flows.
///
/// # Errors
///
/// Fails if a byte is wrong or missing.
pub fn run(plan: &LoadOptions, flows: usize, bytes: u64) -> Result<LoadReport> {
    allow_files(4 * flows as u64 + 256)?;
    let (site, _) = LoadTunnel::start(plan, |listener| {
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                std::thread::spawn(move || drop(Connection::new(stream.into()).and_then(echo)));
            }
        });
    })?;
    let connections = site.near(|client| {
        let connect = |_| client.forward.connect();
        (0..flows).map(connect).collect::<Result<Vec<_>>>()
    })?;
    let start = Arc::new(Barrier::new(flows + 1));
    let (elapsed, memory) = std::thread::scope(|scope| {
        let threads: Vec<_> = connections
            .into_iter()
            .zip(1..)
            .map(|(mut connection, number)| {
                let start = start.clone();
                scope.spawn(move || {
                    start.wait();
                    there_and_back(&mut connection, Payload::new(number, bytes), true)
                        .with_context(|| format!("flow {number}"))
                })
            })
            .collect();
        start.wait();
        let started = Instant::now();
        let mut memory = [0; 2];
        for thread in threads {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            let now = site.memory()?;
            memory = [memory[0].max(now[0]), memory[1].max(now[1])];
        }
        Ok::<_, anyhow::Error>((started.elapsed(), memory))
    })?;
    site.settle(0)?;
    let mut report = LoadReport::new(format!(
        "{flows} flows at once, {bytes} bytes each way on each, all verified"
    ));
    let moved = figure(bytes * flows as u64 * 2);
    report.add("moved", moved / 1e6, "MB");
    report.add(
        "rate, both ways",
        moved * 8.0 / 1e6 / elapsed.as_secs_f64(),
        "Mbit/s",
    );
    report.add(
        "server: resident at most",
        figure(memory[0]) / 1024.0,
        "KiB",
    );
    report.add(
        "client: resident at most",
        figure(memory[1]) / 1024.0,
        "KiB",
    );
    site.end()?;
    Ok(report)
}
