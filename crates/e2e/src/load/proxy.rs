//! Compares connections through a client's proxy with those through a forward: the time that the proxy request adds to
//! the first byte, and the memory that many connections leave behind.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use quictun_lab::stats::quantile;
use quictun_testbed::connection::Endpoint;
use quictun_testbed::machine::Machine;
use quictun_testbed::program::Program;
use quictun_testbed::tunnel::{Client, Home, START, listen_address, server_pin};

use super::report::{LoadReport, figure};

/// The number of connections of each kind before the measurement.
pub(super) const WARM: usize = 100;

/// The time limit of one connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// The limits of the measurement.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Milliseconds that the proxy may add to the median time to the first byte.
    pub added_ms: f64,
    /// Percent by which the client's memory may grow after the first tenth.
    pub growth_percent: f64,
}

/// Opens `count` connections of each kind in turn, on this machine, and measures the time to the first byte of each.
///
/// # Errors
///
/// Fails if the tunnel does not work.
pub fn run(count: usize, limits: Limits) -> Result<LoadReport> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let target = listener.local_addr()?;
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            // One byte in each direction, then the end; the next byte comes on another connection.
            let mut byte = [0];
            if stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_err() {}
        }
    });
    let (_server, mut client) = tunnel(target)?;
    let [forward, proxy] = listeners(&client)?;
    for _ in 0..WARM {
        first_byte(forward, None, b"?")?;
        first_byte(proxy, Some(target), b"?")?;
    }
    let mut times = [Vec::new(), Vec::new()];
    let mut warm = client.program.resident_bytes()?;
    let started = Instant::now();
    for number in 0..count {
        times[0].push(first_byte(forward, None, b"?")?);
        times[1].push(first_byte(proxy, Some(target), b"?")?);
        if number == count / 10 {
            warm = client.program.resident_bytes()?;
        }
    }
    let elapsed = started.elapsed();
    let memory = client.program.resident_bytes()?;
    client.program.silence();
    let mut report = LoadReport::new(format!("first byte of {count} connections each way"));
    let rate = 2.0 * figure(count as u64) / elapsed.as_secs_f64();
    report.add("connections per second", rate, "/s");
    let mut medians = [0.0; 2];
    for (at, name) in ["forward", "proxy"].into_iter().enumerate() {
        times[at].sort_by(f64::total_cmp);
        for (share, percent) in [(0.5, "p50"), (0.9, "p90"), (0.99, "p99")] {
            report.add(
                format!("{name} {percent}"),
                quantile(&times[at], share),
                "ms",
            );
        }
        medians[at] = quantile(&times[at], 0.5);
    }
    let added = medians[1] - medians[0];
    report.add_limited(
        "added by the proxy, p50",
        added,
        "ms",
        Some(limits.added_ms),
    );
    report.add("client: resident when warm", figure(warm) / 1024.0, "KiB");
    let growth = (figure(memory) / figure(warm) - 1.0) * 100.0;
    report.add_limited("client: growth", growth, "%", Some(limits.growth_percent));
    Ok(report)
}

/// Starts `quictun server`, and `quictun client` with a forward to `target` and a proxy.
pub(super) fn tunnel(target: SocketAddr) -> Result<(Program, Client)> {
    let home = Home::new()?;
    let mut command = home.command(&Machine::here(), "quictun")?;
    command.args(["server", "--listen", "127.0.0.1:0", "--http", "off"]);
    command.args(["--allow", &target.to_string(), "--log-level", "info"]);
    let mut server = Program::start("server", &mut command)?;
    let line = server.wait_for("Server endpoint start up successful", START)?;
    let pin = server_pin(&line)?;
    let mut command = home.command(&Machine::here(), "quictun")?;
    command.args(["client", "--server", &listen_address(&line)?, "--pin", &pin]);
    command.args(["--psk-file", "state/client.psk", "--http", "off"]);
    command.args(["-L", &format!("127.0.0.1:0={target}"), "-D", "127.0.0.1:0"]);
    let mut client = Client::from_command(home, &mut command)?;
    // The server logs a line per connection.
    server.silence();
    client.forwards(2)?;
    client
        .program
        .wait_for("connected to server endpoint", START)?;
    Ok((server, client))
}

/// Returns the addresses of the forward and of the proxy that [`tunnel`] has started.
pub(super) fn listeners(client: &Client) -> Result<[SocketAddr; 2]> {
    match client.forwards(2)?[..] {
        [Endpoint::Tcp(forward), Endpoint::Tcp(proxy)] => Ok([forward, proxy]),
        _ => bail!("the client listens on a Unix socket"),
    }
}

/// Sends a request that the application echoes, and reads the echo. Returns the milliseconds from the start of
/// connecting to the first byte of the echo. Uses SOCKS5 if `target` is given.
pub(super) fn first_byte(
    listener: SocketAddr,
    target: Option<SocketAddr>,
    request: &[u8],
) -> Result<f64> {
    let started = Instant::now();
    let mut stream = TcpStream::connect_timeout(&listener, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    if let Some(target) = target {
        ask(&mut stream, target)?;
    }
    stream.write_all(request)?;
    let mut echo = vec![0; request.len()];
    let (first, rest) = echo.split_at_mut(1);
    stream.read_exact(first)?;
    let elapsed = started.elapsed();
    stream.read_exact(rest)?;
    ensure!(echo == request, "the echo differs from the request");
    Ok(elapsed.as_secs_f64() * 1e3)
}

/// Asks a SOCKS5 proxy for a target.
pub(super) fn ask(stream: &mut (impl Read + Write), target: SocketAddr) -> Result<()> {
    let IpAddr::V4(ip) = target.ip() else {
        bail!("{target} is not an IPv4 address");
    };
    stream.write_all(&[5, 1, 0])?;
    stream.read_exact(&mut [0; 2])?;
    let mut request = vec![5, 1, 0, 1];
    request.extend(ip.octets().into_iter().chain(target.port().to_be_bytes()));
    stream.write_all(&request)?;
    let mut answer = [0; 10];
    stream.read_exact(&mut answer)?;
    ensure!(answer[1] == 0, "the proxy answered {answer:?}");
    Ok(())
}
