//! `quictun demo`: a server, a client and two applications on this machine, with real bytes between them.
//!
//! If the system permits it, server and client run on two sides of an emulated link. The same bytes then also go
//! without the tunnel, for comparison. Otherwise, or on request, both run on the loopback device.
//!
//! The demonstration starts the two programs as a user would, each in a process of its own, with keys made for the
//! occasion. It checks everything, and fails on a wrong byte, on a direction that ends too early, and on a refused
//! target that looks like an empty answer. At the end a `middlebox` kills a connection in the middle of a transfer,
//! which continues on the next one. Another one blocks all UDP, and the transfer continues over TLS.

mod apps;
mod blocked;
mod lines;
mod middlebox;
mod network;
mod survival;
mod tcp_relay;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use quictun_sys::{ForkResult, NamespaceUser, contain};
use rustix::net::sockopt::{set_socket_linger, set_tcp_congestion};
use serde_json::{Value, json};

use crate::exit;
use crate::privilege;
use apps::DemoApps;
use lines::DemoLines;
use middlebox::Middlebox;
use network::DemoNetwork;
use quictun_lab_run::tunnel::{KeyDirectory, START_TIMEOUT, Tunnel};

#[derive(Clone, Copy)]
struct TransferSizes {
    /// Bytes sent in each direction. Every byte is checked.
    bulk: u64,
    echoes: usize,
    /// Bytes sent in each direction of the transfer whose connection is killed.
    killed: u64,
}

/// Sizes for the loopback device: about a second on a fast machine, and bearable on a slow one.
const ON_LOOPBACK: TransferSizes = TransferSizes {
    bulk: 512 << 20,
    echoes: 200,
    killed: 64 << 20,
};

/// Sizes for the emulated link: enough bytes to lose some packets. The rates are measured in a run of their own.
const ON_LINK: TransferSizes = TransferSizes {
    bulk: 2_000_000,
    echoes: 25,
    killed: 8_000_000,
};

const HALF_CLOSED: &str = "the answer was complete after the request's half-close";
const REFUSED: &str = "a target that refuses is seen as a reset, not as an empty answer";

/// Connections made before one is timed, so that the timed one does not wait for a worker's QUIC handshake.
const WARM_UPS: usize = 16;

/// The commands for two machines, each with the side that runs it.
const COMMANDS: [(&str, &str); 3] = [
    ("server", "quictun server --allow 127.0.0.1:22"),
    (
        "client",
        "quictun client --server SERVER --pin sha256:... --psk-file client.psk -L 2222:127.0.0.1:22",
    ),
    ("client", "ssh -p 2222 127.0.0.1"),
];

/// Options of the demonstration.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Prints the results as one JSON object at the end, instead of line by line.
    pub json: bool,
    /// Uses the loopback device even if an emulated link is possible.
    pub loopback: bool,
}

/// Runs the demonstration and returns its exit code. A failure has been reported by then.
pub fn main(program: &str, options: Options) -> ExitCode {
    // The directory is named here, outside the process's own namespace: only out here are process ids unique on the
    // machine.
    let dir = std::env::temp_dir().join(format!("quictun-demo-{}", std::process::id()));
    let side = (!options.loopback).then(|| contain(NamespaceUser::Root));
    let outcome = match side {
        None => run(options, &dir, || Ok(DemoNetwork::loopback())),
        Some(Ok(ForkResult::Inside(_))) => run(options, &dir, DemoNetwork::link),
        Some(Ok(ForkResult::Outside(inside))) => {
            // Nothing in the namespace needs time to end.
            let code = inside.wait_or_kill();
            // If the inner process was killed, it could not remove its keys itself.
            if dir.exists() {
                KeyDirectory::remove(&dir);
            }
            return match code {
                Ok(code) => code.into(),
                Err(error) => exit::report(program, Err(error.into())).into(),
            };
        }
        Some(Err(error)) => {
            exit::say(&format!("{program}: no emulated link: {error}"));
            if let Some(next) = privilege::explain(&error).next {
                exit::say(&format!("  try: {next}"));
            }
            run(options, &dir, || Ok(DemoNetwork::loopback()))
        }
    };
    exit::report(program, outcome.map_err(Into::into)).into()
}

fn run(options: Options, dir: &Path, network: impl FnOnce() -> Result<DemoNetwork>) -> Result<()> {
    let lines = DemoLines::new(options.json);
    lines.sentence("quictun demo: a server, a client and two applications on this machine")?;
    let network = network()?;
    lines.result("between", &network.describe())?;
    let facts = network.near(|| measure(&network, dir, lines))?;
    if let Some(remark) = network.close()? {
        exit::say(&format!("  the emulator says: {remark}"));
    }
    if options.json {
        return Ok(exit::print(&format!("{facts}\n"))?);
    }
    lines.sentence("")?;
    lines.sentence("The same between two machines (the server denies what you do not allow):")?;
    for (on, command) in COMMANDS {
        lines.command(on, command)?;
    }
    lines.sentence(
        "The server's first run prints the client's command with its own fingerprint in it.",
    )?;
    Ok(())
}

fn measure(network: &DemoNetwork, dir: &Path, lines: DemoLines) -> Result<Value> {
    let sizes = if network.is_link() {
        ON_LINK
    } else {
        ON_LOOPBACK
    };
    let apps = DemoApps::start(network).context("cannot start the applications")?;
    let started = Instant::now();
    let mut tunnel = pair(network, &apps, dir).context("cannot start server and client")?;
    let [to_echo, to_sink, to_source, to_meter, to_nobody] = *tunnel.entries() else {
        bail!("the client does not listen on all of its forwards");
    };
    let started = started.elapsed();
    let text = format!("server and client in {} ms", started.as_millis());
    lines.result("started", &text)?;

    let first = first_byte(to_echo)?;
    let first_ms = ms(first);
    let text = format!("{first_ms:.2} ms on the warm connection (open, dial and echo)");
    lines.result("first byte", &text)?;
    let direct = |app: SocketAddr| SocketAddr::from((network.far_address(), app.port()));
    let direct_echo = echo_median(direct(apps.echo), sizes.echoes)?;
    let echo = echo_median(to_echo, sizes.echoes)?;
    let (through, without, echoes) = (ms(echo), ms(direct_echo), sizes.echoes);
    let text = format!(
        "{through:.3} ms for one byte there and back (median of {echoes}), {without:.3} ms without the tunnel"
    );
    lines.result("latency", &text)?;

    let checked = upload(to_sink, sizes.bulk)?;
    let ends = network.is_link().then(|| [to_meter, direct(apps.meter)]);
    let (up, up_direct) = rates(ends, upload_rate, rate(sizes.bulk, checked))?;
    lines.result("to server", &throughput(up, up_direct, sizes))?;
    let checked = download(to_source, sizes.bulk)?;
    let ends = network.is_link().then(|| [to_source, direct(apps.source)]);
    let (down, down_direct) = rates(ends, download_rate, rate(sizes.bulk, checked))?;
    lines.result("to client", &throughput(down, down_direct, sizes))?;

    half_close(to_echo)?;
    lines.result("half-close", HALF_CLOSED)?;
    refused(to_nobody)?;
    lines.result("refusal", REFUSED)?;
    let still = survive(&mut tunnel, &apps, sizes.killed)?;
    let text = format!(
        "a middlebox dropped all packets of the connection in the middle of {} MB each way: the application got no byte \
         for {:.0} ms, then all of them",
        sizes.killed / 1_000_000,
        ms(still)
    );
    lines.result("killed", &text)?;
    let blocked = blocked::run(&mut tunnel, &apps)?;
    let text = format!(
        "a middlebox dropped all UDP in the middle of a transfer: the application got no byte for {:.0} ms, then all of \
         them by TLS over TCP; once UDP passed again, QUIC carried after {:.1} s",
        ms(blocked.still),
        blocked.back.as_secs_f64()
    );
    lines.result("blocked", &text)?;
    tunnel.stop().context("cannot end server and client")?;
    Ok(json!({
        "link": network.facts(),
        "started_us": us(started),
        "first_byte_us": us(first),
        "round_trip_us": us(echo),
        "round_trip_direct_us": us(direct_echo),
        "bytes_each_way": sizes.bulk,
        "to_server_bit_per_s": up,
        "to_client_bit_per_s": down,
        "to_server_direct_bit_per_s": up_direct,
        "to_client_direct_bit_per_s": down_direct,
        "half_close_ok": true,
        "refusal_ok": true,
        "killed_bytes_each_way": sizes.killed,
        "killed_still_us": us(still),
        "blocked_still_us": us(blocked.still),
        "blocked_back_us": us(blocked.back),
        "commands": COMMANDS.map(|(on, command)| json!({"on": on, "command": command})),
    }))
}

/// Measures the rates through the tunnel and without it. Without a link, returns the rate of the `checked` transfer
/// only.
fn rates(
    ends: Option<[SocketAddr; 2]>,
    measure: fn(SocketAddr) -> Result<u64>,
    checked: u64,
) -> Result<(u64, Option<u64>)> {
    let Some([tunnel, direct]) = ends else {
        return Ok((checked, None));
    };
    let tunnel = measure(tunnel).context("cannot measure the rate through the tunnel")?;
    let direct = measure(direct).context("cannot measure the rate without the tunnel")?;
    Ok((tunnel, Some(direct)))
}

/// Starts a server at the far side and a client at the near side, with fresh keys in `dir`.
fn pair(network: &DemoNetwork, apps: &DemoApps, dir: &Path) -> Result<Tunnel> {
    let far = |command: &mut Command| network.far(|| command.spawn());
    let listen = SocketAddr::from((network.far_address(), 0));
    let targets = [apps.echo, apps.sink, apps.source, apps.meter, apps.nobody];
    let targets = targets.map(|target| target.to_string());
    let keys = KeyDirectory::at(dir.to_owned())?;
    Tunnel::start(
        [&Command::spawn, &far],
        keys,
        listen,
        "127.0.0.1:*",
        &targets,
        [&[], &[]],
    )
}

/// Starts a client that reaches the server through a middlebox, which kills its connection. Returns the longest time
/// for which the application got no byte.
fn survive(tunnel: &mut Tunnel, apps: &DemoApps, bytes: u64) -> Result<Duration> {
    let server = tunnel.server().parse().context("bad server address")?;
    let middlebox = Middlebox::start(server).context("cannot start the middlebox")?;
    let entry = behind(&middlebox, tunnel, apps, &["--carrier", "quic"])?;
    survival::measure(entry, bytes, &middlebox)
}

/// Starts a client that reaches the server through `middlebox`, with these flags. Returns its way to the echo.
fn behind(
    middlebox: &Middlebox,
    tunnel: &mut Tunnel,
    apps: &DemoApps,
    flags: &[&str],
) -> Result<SocketAddr> {
    // The client reaches the middlebox on the loopback device, whose packets may be larger than the link's.
    let usual = ["--connections", "1", "--max-udp-payload", "1452"];
    let flags: Vec<String> = usual.iter().chain(flags).map(|&it| it.to_owned()).collect();
    let address = middlebox.address().to_string();
    let echo = [apps.echo.to_string()];
    let entries = tunnel.add_client(&Command::spawn, &address, &echo, &flags);
    let entries = entries.context("cannot start the client behind the middlebox")?;
    let [entry] = entries[..] else {
        bail!("the client behind the middlebox does not listen on its one forward");
    };
    Ok(entry)
}

fn first_byte(echo: SocketAddr) -> Result<Duration> {
    // The first connections may wait for the QUIC handshake of the worker that accepts them.
    for _ in 0..WARM_UPS {
        exchange(echo, b"w").context("cannot exchange the first bytes through the tunnel")?;
    }
    let start = Instant::now();
    exchange(echo, b"x").context("cannot exchange one byte through the tunnel")?;
    Ok(start.elapsed())
}

fn exchange(address: SocketAddr, request: &[u8]) -> Result<()> {
    let mut stream = connect(address)?;
    stream.write_all(request)?;
    let mut answer = vec![0; request.len()];
    stream.read_exact(&mut answer)?;
    ensure!(answer == request, "the echo differs from what was sent");
    Ok(())
}

fn echo_median(address: SocketAddr, echoes: usize) -> Result<Duration> {
    let mut stream = connect(address)?;
    let mut times = Vec::with_capacity(echoes);
    for round in 0..echoes {
        let byte = [u8::try_from(round % 251).unwrap_or(0)];
        let start = Instant::now();
        stream.write_all(&byte)?;
        let mut answer = [0];
        stream.read_exact(&mut answer)?;
        times.push(start.elapsed());
        ensure!(answer == byte, "the echo differs from what was sent");
    }
    times.sort_unstable();
    Ok(times[echoes / 2])
}

/// Sends the pattern, and lets the far side count and check it.
fn upload(sink: SocketAddr, bulk: u64) -> Result<Duration> {
    let mut stream = connect(sink)?;
    let start = Instant::now();
    apps::send_pattern(&mut stream, bulk).context("cannot send to the server's side")?;
    stream.shutdown(Shutdown::Write)?;
    let mut verdict = String::new();
    stream
        .read_to_string(&mut verdict)
        .context("cannot read the far side's verdict")?;
    ensure!(
        verdict == apps::verdict(bulk),
        "the far side says: {verdict:?}"
    );
    Ok(start.elapsed())
}

fn download(source: SocketAddr, bulk: u64) -> Result<Duration> {
    let mut stream = connect(source)?;
    stream.write_all(&bulk.to_be_bytes())?;
    let start = Instant::now();
    let received = apps::receive(&mut stream, None).context("cannot receive from the server")?;
    ensure!(received == bulk, "{received} of {bulk} bytes arrived");
    Ok(start.elapsed())
}

/// Sends until the meter has counted for its whole span. Returns bit/s.
fn upload_rate(meter: SocketAddr) -> Result<u64> {
    let mut stream = connect(meter)?;
    let mut writer = stream.try_clone()?;
    // The thread ends with an error once the connection is cut.
    let writing = std::thread::spawn(move || apps::send_pattern(&mut writer, u64::MAX));
    let mut bytes = [0; 8];
    stream.read_exact(&mut bytes).context("no count received")?;
    cut(&stream)?;
    drop(stream);
    ensure!(writing.join().is_ok(), "the writing thread failed");
    Ok(rate(u64::from_be_bytes(bytes), apps::SPAN))
}

/// Receives for the same span as the meter counts. Returns bit/s.
fn download_rate(source: SocketAddr) -> Result<u64> {
    let mut stream = connect(source)?;
    stream.write_all(&u64::MAX.to_be_bytes())?;
    let bytes = apps::receive(&mut stream, Some(apps::SPAN))?;
    cut(&stream)?;
    Ok(rate(bytes, apps::SPAN))
}

/// Ends a connection and discards all bytes that are still under way.
fn cut(stream: &TcpStream) -> Result<()> {
    set_socket_linger(stream, Some(Duration::ZERO))?;
    // The shutdown ends both directions, also for other duplicates of this socket.
    stream.shutdown(Shutdown::Both)?;
    Ok(())
}

/// Checks that the whole answer arrives although the request ends before the answer begins.
fn half_close(echo: SocketAddr) -> Result<()> {
    let request = vec![b'q'; 1 << 20];
    let mut stream = connect(echo)?;
    let mut writer = stream.try_clone()?;
    let body = request.clone();
    let writing = std::thread::spawn(move || -> std::io::Result<()> {
        writer.write_all(&body)?;
        writer.shutdown(Shutdown::Write)
    });
    let mut answer = Vec::new();
    stream
        .read_to_end(&mut answer)
        .context("cannot read after the half-close")?;
    writing.join().ok().context("the writing thread failed")??;
    ensure!(
        answer == request,
        "{} of {} bytes came back",
        answer.len(),
        request.len()
    );
    Ok(())
}

fn refused(address: SocketAddr) -> Result<()> {
    let mut stream = connect(address)?;
    let mut answer = Vec::new();
    let result = stream
        .write_all(b"anyone there?")
        .and_then(|()| stream.read_to_end(&mut answer));
    ensure!(result.is_err(), "a refused target looked like a clean end");
    Ok(())
}

fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).with_context(|| format!("connecting to {address}"))?;
    stream.set_read_timeout(Some(START_TIMEOUT))?;
    stream.set_write_timeout(Some(START_TIMEOUT))?;
    stream.set_nodelay(true)?;
    // Direct connections cross the link with this congestion control.
    if set_tcp_congestion(&stream, apps::CONGESTION).is_err() {
        // A kernel without it uses its default, which suffices.
    }
    Ok(stream)
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn us(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn rate(bytes: u64, duration: Duration) -> u64 {
    let bits = u128::from(bytes) * 8 * 1_000_000_000 / duration.as_nanos().max(1);
    u64::try_from(bits).unwrap_or(u64::MAX)
}

fn throughput(tunnel: u64, direct: Option<u64>, sizes: TransferSizes) -> String {
    let checked = format!("{} MB, every byte checked", sizes.bulk / 1_000_000);
    match direct {
        None => format!("{}, {checked}", rate_text(tunnel)),
        Some(direct) => format!(
            "{} through the tunnel, {} without it (TCP, {}); {checked}",
            rate_text(tunnel),
            rate_text(direct),
            apps::CONGESTION
        ),
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn rate_text(bit_per_s: u64) -> String {
    let rate = bit_per_s as f64;
    if bit_per_s < 1_000_000_000 {
        format!("{:.1} Mbit/s", rate / 1e6)
    } else {
        format!("{:.2} Gbit/s", rate / 1e9)
    }
}
