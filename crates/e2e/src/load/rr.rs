//! Single bytes to an application and back: measures the time that the tunnel adds to a round trip.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use anyhow::Result;
use quictun_lab::stats::quantile;

use super::report::LoadReport;
use super::tunnel::{LoadOptions, LoadTunnel};
use quictun_testbed::connection::Endpoint;

/// The number of round trips before the measurement, which warm up congestion control and caches.
const WARM: usize = 200;

/// Measures `count` round trips directly and through the tunnel. `limit_us` is the number of microseconds that the
/// tunnel may add to the median.
///
/// # Errors
///
/// Fails if the tunnel does not work.
pub fn run(plan: &LoadOptions, count: usize, limit_us: Option<f64>) -> Result<LoadReport> {
    let (site, target) = LoadTunnel::start(plan, |listener| {
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                std::thread::spawn(move || drop(answer(stream)));
            }
        });
    })?;
    let (direct, tunnelled) = site.near(|client| {
        let Endpoint::Tcp(forward) = client.forward else {
            anyhow::bail!("the client listens on a Unix socket");
        };
        Ok((round_trips(target, count)?, round_trips(forward, count)?))
    })?;
    let mut report = LoadReport::new(format!("{count} round trips of 1 byte"));
    for (name, sorted) in [("direct", &direct), ("tunnel", &tunnelled)] {
        for (share, percent) in [(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (1.0, "max")] {
            report.add(format!("{name} {percent}"), quantile(sorted, share), "us");
        }
    }
    let added = quantile(&tunnelled, 0.5) - quantile(&direct, 0.5);
    report.add_limited("added by the tunnel, p50", added, "us", limit_us);
    site.end()?;
    Ok(report)
}

fn answer(mut stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut byte = [0; 1];
    while stream.read(&mut byte)? == 1 {
        stream.write_all(&byte)?;
    }
    Ok(())
}

/// Returns the round-trip times in microseconds, sorted.
fn round_trips(address: SocketAddr, count: usize) -> Result<Vec<f64>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut times = Vec::with_capacity(count);
    for number in 0..WARM + count {
        let started = Instant::now();
        stream.write_all(b"?")?;
        stream.read_exact(&mut [0; 1])?;
        if number >= WARM {
            times.push(started.elapsed().as_secs_f64() * 1e6);
        }
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}
