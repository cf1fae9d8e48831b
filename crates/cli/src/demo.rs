//! `quictun demo`: a server, a client and two applications on this machine, with real bytes between them.
//!
//! Where the system permits it, server and client are on two sides of an emulated link, and the same bytes go
//! without the tunnel as well, to compare; otherwise, or where that is asked for, on the loopback device.
//!
//! The two programs are started as a user would start them, each in a process of its own, with keys made
//! for the occasion. Everything is checked: a wrong byte, a direction that ends too early or a refused
//! target that looks like an empty answer make the demonstration fail. At last a [`middlebox`] kills a connection in the midst of
//! a transfer, which continues on the next one.

mod apps;
mod middlebox;
mod stage;
mod survival;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use quictun_sys::{Identity, Side, contain};
use rustix::net::sockopt::{set_socket_linger, set_tcp_congestion};
use serde_json::{Value, json};

use crate::exit;
use crate::privilege;
use apps::Apps;
use middlebox::Middlebox;
use quictun_lab_run::tunnel::{Keys, PATIENCE, Tunnel};
use stage::Stage;

#[derive(Clone, Copy)]
struct Sizes {
    /// Bytes moved in each direction, every one of them checked.
    bulk: u64,
    echoes: usize,
    /// The same where the connection is killed in the midst.
    killed: u64,
}

/// A second on a fast machine, little for a slow one.
const ON_LOOPBACK: Sizes = Sizes {
    bulk: 512 << 20,
    echoes: 200,
    killed: 64 << 20,
};

/// Enough to lose something; how fast it goes is measured for a time of its own.
const ON_LINK: Sizes = Sizes {
    bulk: 2_000_000,
    echoes: 25,
    killed: 8_000_000,
};

/// Connections made before one is timed.
const WARM_UPS: usize = 16;

/// What to type between two machines, and where.
const COMMANDS: [(&str, &str); 3] = [
    ("server", "quictun server --allow 127.0.0.1:22"),
    (
        "client",
        "quictun client --server SERVER --pin sha256:... --psk-file client.psk -L 2222:127.0.0.1:22",
    ),
    ("client", "ssh -p 2222 127.0.0.1"),
];

/// How the demonstration is to be.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Told at its end as one object, in place of line by line.
    pub json: bool,
    /// On the loopback device, whether or not there could be a link.
    pub loopback: bool,
}

/// Runs the demonstration and ends with its exit code; what went wrong has been said then.
pub fn main(program: &str, options: Options) -> ExitCode {
    // Named here, where process ids are everybody's.
    let dir = std::env::temp_dir().join(format!("quictun-demo-{}", std::process::id()));
    let side = (!options.loopback).then(|| contain(Identity::Root));
    let outcome = match side {
        None => run(options, &dir, || Ok(Stage::loopback())),
        Some(Ok(Side::Inside(_))) => run(options, &dir, Stage::link),
        Some(Ok(Side::Outside(inside))) => {
            // Nothing in there needs time to end.
            let code = inside.wait_or_kill();
            // Where it was killed, it could not do so itself.
            if dir.exists() {
                Keys::remove(&dir);
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
            run(options, &dir, || Ok(Stage::loopback()))
        }
    };
    exit::report(program, outcome.map_err(Into::into)).into()
}

fn run(options: Options, dir: &Path, stage: impl FnOnce() -> Result<Stage>) -> Result<()> {
    let tell: &(dyn Fn(&str) + Sync) = if options.json { &|_| {} } else { &say };
    tell("quictun demo: a server, a client and two applications on this machine");
    let stage = stage()?;
    tell(&format!("  between    {}", stage.describe()));
    let facts = stage.near(|| measure(&stage, dir, tell))?;
    if let Some(remark) = stage.close()? {
        exit::say(&format!("  the emulator says: {remark}"));
    }
    if options.json {
        say(&facts.to_string());
        return Ok(());
    }
    say("");
    say("The same between two machines (the server denies what you do not allow):");
    for (on, command) in COMMANDS {
        say(&format!("  {on}$ {command}"));
    }
    say("The server's first run prints the client line with its own fingerprint in it.");
    Ok(())
}

fn measure(stage: &Stage, dir: &Path, tell: &dyn Fn(&str)) -> Result<Value> {
    let sizes = if stage.is_link() {
        ON_LINK
    } else {
        ON_LOOPBACK
    };
    let apps = Apps::start(stage).context("starting the applications")?;
    let started = Instant::now();
    let mut tunnel = pair(stage, &apps, dir).context("starting server and client")?;
    let [to_echo, to_sink, to_source, to_meter, to_nobody] = *tunnel.entries() else {
        bail!("the client does not listen everywhere");
    };
    let started = started.elapsed();
    tell(&format!(
        "  started    server and client in {} ms",
        started.as_millis()
    ));

    let first = first_byte(to_echo)?;
    tell(&format!(
        "  first byte {:.2} ms on the warm connection (open, dial and echo)",
        ms(first)
    ));
    let direct = |app: SocketAddr| SocketAddr::from((stage.far_address(), app.port()));
    let direct_echo = echo_median(direct(apps.echo), sizes.echoes)?;
    let echo = echo_median(to_echo, sizes.echoes)?;
    tell(&format!(
        "  latency    {:.3} ms for one byte there and back (median of {}), {:.3} ms without the tunnel",
        ms(echo),
        sizes.echoes,
        ms(direct_echo),
    ));

    let checked = upload(to_sink, sizes.bulk)?;
    let ends = stage.is_link().then(|| [to_meter, direct(apps.meter)]);
    let (up, up_direct) = rates(ends, upload_rate, rate(sizes.bulk, checked))?;
    tell(&format!(
        "  to server  {}",
        throughput(up, up_direct, sizes)
    ));
    let checked = download(to_source, sizes.bulk)?;
    let ends = stage.is_link().then(|| [to_source, direct(apps.source)]);
    let (down, down_direct) = rates(ends, download_rate, rate(sizes.bulk, checked))?;
    tell(&format!(
        "  to client  {}",
        throughput(down, down_direct, sizes)
    ));

    half_close(to_echo)?;
    tell("  half-close the answer came whole after the question was closed");
    refused(to_nobody)?;
    tell("  refusal    a target that refuses is seen as a reset, not as an empty answer");
    let still = survive(&mut tunnel, &apps, sizes.killed)?;
    tell(&format!(
        "  killed     a middlebox dropped all packets of the connection in the midst of {} MB each way: the application got \
         no byte for {:.0} ms, then all of them",
        sizes.killed / 1_000_000,
        ms(still)
    ));
    tunnel.stop().context("ending server and client")?;
    Ok(json!({
        "link": stage.facts(),
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
        "commands": COMMANDS.map(|(on, command)| json!({"on": on, "command": command})),
    }))
}

/// Rates through the tunnel and without it, by `measure`; that of what was checked where there is no link.
fn rates(
    ends: Option<[SocketAddr; 2]>,
    measure: fn(SocketAddr) -> Result<u64>,
    checked: u64,
) -> Result<(u64, Option<u64>)> {
    let Some([tunnel, direct]) = ends else {
        return Ok((checked, None));
    };
    let tunnel = measure(tunnel).context("through the tunnel")?;
    let direct = measure(direct).context("without the tunnel")?;
    Ok((tunnel, Some(direct)))
}

/// A server at the far side and a client here, with fresh keys in `dir`.
fn pair(stage: &Stage, apps: &Apps, dir: &Path) -> Result<Tunnel> {
    let far = |command: &mut Command| stage.far(|| command.spawn());
    let listen = SocketAddr::from((stage.far_address(), 0));
    let targets = [apps.echo, apps.sink, apps.source, apps.meter, apps.nobody];
    let targets = targets.map(|target| target.to_string());
    let keys = Keys::at(dir.to_owned())?;
    Tunnel::start(
        [&Command::spawn, &far],
        keys,
        listen,
        "127.0.0.1:*",
        &targets,
        [&[], &[]],
    )
}

/// A client that reaches the server through a middlebox, which kills its connection. Returns for how long nothing came.
fn survive(tunnel: &mut Tunnel, apps: &Apps, bytes: u64) -> Result<Duration> {
    let server = tunnel.server().parse().context("the server's address")?;
    let middlebox = Middlebox::start(server).context("a middlebox")?;
    // The client reaches the middlebox on the loopback device, which takes larger packets than the link does.
    let flags = ["--connections", "1", "--max-udp-payload", "1452"].map(str::to_owned);
    let address = middlebox.address().to_string();
    let echo = [apps.echo.to_string()];
    let entries = tunnel.add_client(&Command::spawn, &address, &echo, &flags);
    let entries = entries.context("starting another client")?;
    let [entry] = entries[..] else {
        bail!("the other client does not listen");
    };
    survival::measure(entry, bytes, &middlebox)
}

fn first_byte(echo: SocketAddr) -> Result<Duration> {
    // The first ones may wait for the QUIC handshake of the worker that accepts them.
    for _ in 0..WARM_UPS {
        exchange(echo, b"w").context("the first bytes through the tunnel")?;
    }
    let start = Instant::now();
    exchange(echo, b"x").context("one byte through the tunnel")?;
    Ok(start.elapsed())
}

fn exchange(address: SocketAddr, question: &[u8]) -> Result<()> {
    let mut stream = connect(address)?;
    stream.write_all(question)?;
    let mut answer = vec![0; question.len()];
    stream.read_exact(&mut answer)?;
    ensure!(answer == question, "the echo differs from what was sent");
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

/// Sends the pattern and has the far side count and check it.
fn upload(sink: SocketAddr, bulk: u64) -> Result<Duration> {
    let mut stream = connect(sink)?;
    let start = Instant::now();
    apps::send_pattern(&mut stream, bulk).context("sending to the server's side")?;
    stream.shutdown(Shutdown::Write)?;
    let mut verdict = String::new();
    stream
        .read_to_string(&mut verdict)
        .context("the far side's verdict")?;
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
    let received = apps::receive(&mut stream, None).context("receiving from the server's side")?;
    ensure!(received == bulk, "{received} of {bulk} bytes arrived");
    Ok(start.elapsed())
}

/// Sends until the meter has counted long enough; bit/s.
fn upload_rate(meter: SocketAddr) -> Result<u64> {
    let mut stream = connect(meter)?;
    let mut writer = stream.try_clone()?;
    // It ends in an error, once the connection is cut.
    let writing = std::thread::spawn(move || apps::send_pattern(&mut writer, u64::MAX));
    let mut bytes = [0; 8];
    stream.read_exact(&mut bytes).context("the meter's count")?;
    cut(&stream)?;
    drop(stream);
    ensure!(writing.join().is_ok(), "the writing thread failed");
    Ok(rate(u64::from_be_bytes(bytes), apps::SPAN))
}

/// Receives for as long as the meter would count; bit/s.
fn download_rate(source: SocketAddr) -> Result<u64> {
    let mut stream = connect(source)?;
    stream.write_all(&u64::MAX.to_be_bytes())?;
    let bytes = apps::receive(&mut stream, Some(apps::SPAN))?;
    cut(&stream)?;
    Ok(rate(bytes, apps::SPAN))
}

/// Ends a connection with all that is still under way.
fn cut(stream: &TcpStream) -> Result<()> {
    set_socket_linger(stream, Some(Duration::ZERO))?;
    // Both directions, for whoever else holds the connection.
    stream.shutdown(Shutdown::Both)?;
    Ok(())
}

/// The question ends before the answer begins.
fn half_close(echo: SocketAddr) -> Result<()> {
    let question = vec![b'q'; 1 << 20];
    let mut stream = connect(echo)?;
    let mut writer = stream.try_clone()?;
    let body = question.clone();
    let writing = std::thread::spawn(move || -> std::io::Result<()> {
        writer.write_all(&body)?;
        writer.shutdown(Shutdown::Write)
    });
    let mut answer = Vec::new();
    stream
        .read_to_end(&mut answer)
        .context("reading after the half-close")?;
    writing.join().ok().context("the writing thread failed")??;
    ensure!(
        answer == question,
        "{} of {} bytes came back",
        answer.len(),
        question.len()
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
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    // For those that cross the link by themselves.
    if set_tcp_congestion(&stream, apps::CONGESTION).is_err() {
        // A kernel without it has its reasons; its default will do.
    }
    Ok(stream)
}

#[expect(
    clippy::print_stdout,
    reason = "showing is what the demonstration is for"
)]
fn say(line: &str) {
    println!("{line}");
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

fn throughput(tunnel: u64, direct: Option<u64>, sizes: Sizes) -> String {
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
