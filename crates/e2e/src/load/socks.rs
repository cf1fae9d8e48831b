//! Connections through a client's proxy at a fixed rate, in turn with as many through a forward: the time to the first
//! byte, and the memory of both programs.
//!
//! Before the first byte for the target, SOCKS5 needs three round trips that a forward does not need: the greeting
//! between application and client, the request between client and server, and the answer between client and
//! application. Each wakes two threads, which is most of its cost on one machine. The load therefore also measures plain
//! round trips between two threads, and gives the time that the proxy adds as a multiple of them.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Args;
use quictun_lab::stats::quantile;
use quictun_testbed::program::Program;

use super::measured::pause;
use super::proxy::{WARM, first_byte, listeners, tunnel};
use super::report::{LoadReport, figure};

/// The request, which the application echoes.
const REQUEST: [u8; 64] = [b'?'; 64];

/// The number of connections that may be open at once. At 1000 connections a second, each may take 128 ms.
const PARALLEL: usize = 128;

/// The number of plain round trips after each turn, and the time between two of them.
const PLAIN: usize = 100;
const PLAIN_PAUSE: Duration = Duration::from_millis(1);

/// The size of the load and its limits.
#[derive(Args, Clone, Copy, Debug)]
pub struct Socks {
    /// Number of connections through each of the proxy and the forward.
    #[arg(long, default_value_t = 10_000)]
    pub count: usize,
    /// Number of connections a second.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub per_second: u32,
    /// Milliseconds that the proxy may add to the median.
    #[arg(long, default_value_t = 0.2)]
    pub max_added_ms: f64,
    /// Percent by which the memory of each program may grow.
    #[arg(long)]
    pub max_growth: Option<f64>,
}

/// The path of a connection to the application.
#[derive(Clone, Copy, Debug)]
struct ForwardPath {
    listener: SocketAddr,
    /// The target to ask the proxy for; `None` for the forward.
    target: Option<SocketAddr>,
}

/// One connection, in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Sample {
    first_byte: f64,
    /// Time by which the connection began later than scheduled.
    late: f64,
}

/// Opens connections through the proxy and the forward of one client, in turns of one second, and measures them.
///
/// # Errors
///
/// Fails if the tunnel does not work.
pub fn run(load: Socks) -> Result<LoadReport> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let target = listener.local_addr()?;
    serve(listener);
    let (server, mut client) = tunnel(target)?;
    let [forward, proxy] = listeners(&client)?;
    let paths = [(forward, None), (proxy, Some(target))];
    let paths = paths.map(|(listener, target)| ForwardPath { listener, target });
    for path in paths.iter().cycle().take(2 * WARM) {
        first_byte(path.listener, path.target, &REQUEST)?;
    }
    let memory = || {
        let [server, client] = [&server, &client.program].map(memory);
        Ok::<_, anyhow::Error>([server?, client?])
    };
    let before = memory()?;
    let (mut samples, mut plain) = ([Vec::new(), Vec::new()], Vec::new());
    let mut echo = plain_echo()?;
    let mut order = [0, 1];
    let turn = usize::try_from(load.per_second)?.max(1);
    for begun in (0..load.count).step_by(turn) {
        let count = turn.min(load.count - begun);
        for at in order {
            samples[at].extend(at_rate(paths[at], count, load.per_second)?);
        }
        for _ in 0..PLAIN {
            plain.push(plain_round_trip(&mut echo)?);
        }
        order.reverse();
    }
    let after = memory()?;
    client.program.silence();
    let title = format!(
        "{} connections through each, {} a second",
        load.count, load.per_second
    );
    let mut report = LoadReport::new(title);
    let [forward, proxy] = samples.map(|samples| sorted(&samples));
    add_times(&mut report, "forward", &forward);
    add_times(&mut report, "proxy", &proxy);
    let added = quantile(&proxy.0, 0.5) - quantile(&forward.0, 0.5);
    report.add_limited(
        "added by the proxy, p50",
        added,
        "ms",
        Some(load.max_added_ms),
    );
    plain.sort_by(f64::total_cmp);
    let plain = quantile(&plain, 0.5);
    report.add("plain round trip, p50", plain, "ms");
    report.add("added by the proxy", added / plain, "plain round trips");
    for (at, side) in ["server", "client"].into_iter().enumerate() {
        for (what, of) in [("resident", 0), ("resident at most", 1)] {
            report.add(format!("{side}: {what}, before"), before[at][of], "KiB");
            report.add(format!("{side}: {what}, after"), after[at][of], "KiB");
        }
        let growth = (after[at][0] / before[at][0] - 1.0) * 100.0;
        report.add_limited(format!("{side}: growth"), growth, "%", load.max_growth);
    }
    Ok(report)
}

/// Echoes one request on each connection, then ends it.
fn serve(listener: TcpListener) {
    let listener = Arc::new(listener);
    for _ in 0..PARALLEL {
        let listener = listener.clone();
        thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                // The measurement reports a connection that fails.
                drop(answer(stream));
            }
        });
    }
}

fn answer(mut stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut request = REQUEST;
    stream.read_exact(&mut request)?;
    stream.write_all(&request)?;
    Ok(())
}

/// Connects to a thread that echoes each byte.
fn plain_echo() -> Result<TcpStream> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (mut far, _) = listener.accept()?;
    for end in [&near, &far] {
        end.set_nodelay(true)?;
    }
    thread::spawn(move || {
        let mut byte = [0];
        while far.read_exact(&mut byte).is_ok() && far.write_all(&byte).is_ok() {}
    });
    Ok(near)
}

/// Waits, so that both threads sleep, and measures a round trip of one byte, in milliseconds.
fn plain_round_trip(echo: &mut TcpStream) -> Result<f64> {
    pause(PLAIN_PAUSE);
    let started = Instant::now();
    echo.write_all(b"?")?;
    echo.read_exact(&mut [0])?;
    Ok(started.elapsed().as_secs_f64() * 1e3)
}

/// Begins `count` connections, each at its time, whether earlier ones have ended or not.
fn at_rate(path: ForwardPath, count: usize, per_second: u32) -> Result<Vec<Sample>> {
    let (begin, next) = (Instant::now(), AtomicUsize::new(0));
    thread::scope(|scope| {
        let work = || -> Result<Vec<Sample>> {
            let mut samples = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Ok(samples);
                }
                let seconds = figure(number as u64) / f64::from(per_second);
                let due = begin + Duration::from_secs_f64(seconds);
                pause(due.saturating_duration_since(Instant::now()));
                let late = due.elapsed().as_secs_f64() * 1e3;
                let first_byte = first_byte(path.listener, path.target, &REQUEST)
                    .with_context(|| format!("connection {number} through {}", path.listener))?;
                samples.push(Sample { first_byte, late });
            }
        };
        let threads: Vec<_> = (0..PARALLEL).map(|_| scope.spawn(work)).collect();
        let mut all = Vec::with_capacity(count);
        for thread in threads {
            let samples = thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            all.extend(samples?);
        }
        Ok(all)
    })
}

/// Returns the sorted times to the first byte, and the sorted delays of the beginnings.
fn sorted(samples: &[Sample]) -> (Vec<f64>, Vec<f64>) {
    let sorted = |of: fn(&Sample) -> f64| {
        let mut figures: Vec<f64> = samples.iter().map(of).collect();
        figures.sort_by(f64::total_cmp);
        figures
    };
    (sorted(|it| it.first_byte), sorted(|it| it.late))
}

fn add_times(report: &mut LoadReport, name: &str, (first_byte, late): &(Vec<f64>, Vec<f64>)) {
    for (share, percent) in [(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (1.0, "max")] {
        let value = quantile(first_byte, share);
        report.add(format!("{name} {percent}"), value, "ms");
    }
    let late = quantile(late, 0.99);
    report.add(format!("{name}: begun late, p99"), late, "ms");
}

/// Returns the resident memory of a program, and the most that it has had, in KiB.
fn memory(program: &Program) -> Result<[f64; 2]> {
    let bytes = [program.resident_bytes()?, program.resident_bytes_at_most()?];
    Ok(bytes.map(|bytes| figure(bytes) / 1024.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_round_trips_follow_one_another_on_one_connection() {
        let mut echo = plain_echo().expect("a free port");
        for _ in 0..3 {
            let taken = plain_round_trip(&mut echo).expect("an echo");
            assert!(taken > 0.0, "{taken}");
        }
    }
}
