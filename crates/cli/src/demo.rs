//! `quictun demo`: a server, a client and two applications on this machine, with real bytes between them.
//!
//! The two programs are started as a user would start them, each in a process of its own, with keys made
//! for the occasion. Everything is checked: a wrong byte, a direction that ends too early or a refused
//! target that looks like an empty answer make the demonstration fail.

mod apps;
mod pair;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;

use apps::Apps;
use pair::Pair;

/// Bytes moved in each direction. Enough for a second on a fast machine, little for a slow one.
const BULK: u64 = 512 << 20;

/// Round trips timed.
const ECHOES: usize = 200;

/// Connections made before one is timed.
const WARM_UPS: usize = 16;

/// Nothing in the demonstration may take longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

/// What to type between two machines, and where.
const COMMANDS: [(&str, &str); 3] = [
    ("server", "quictun server --allow 127.0.0.1:22"),
    (
        "client",
        "quictun client --server SERVER:7500 --pin sha256:... --psk-file client.psk -L 2222=127.0.0.1:22",
    ),
    ("client", "ssh -p 2222 127.0.0.1"),
];

/// What the demonstration found. The keys of `--json`.
#[derive(Debug, Serialize)]
struct Facts {
    started_us: u64,
    first_byte_us: u64,
    round_trip_us: u64,
    round_trip_direct_us: u64,
    bytes_each_way: u64,
    to_server_bit_per_s: u64,
    to_client_bit_per_s: u64,
    half_close_ok: bool,
    refusal_ok: bool,
    commands: Vec<Step>,
}

#[derive(Clone, Debug, Serialize)]
struct Step {
    on: &'static str,
    command: &'static str,
}

/// Runs the demonstration, told line by line or, with `json`, at its end as one object; an error is something
/// that went wrong.
pub fn run(json: bool) -> Result<()> {
    let tell: &dyn Fn(&str) = if json { &|_| {} } else { &say };
    tell("quictun demo: a server, a client and two applications on this machine");
    let facts = measure(tell)?;
    if json {
        say(&serde_json::to_string(&facts).context("writing JSON")?);
        return Ok(());
    }
    say("");
    say("The same between two machines (the server denies what you do not allow):");
    for Step { on, command } in facts.commands {
        say(&format!("  {on}$ {command}"));
    }
    say("The server's first run prints the client line with its own fingerprint in it.");
    Ok(())
}

fn measure(tell: &dyn Fn(&str)) -> Result<Facts> {
    let apps = Apps::start().context("starting the applications")?;
    let started = Instant::now();
    let pair = Pair::start(&apps).context("starting server and client")?;
    let started = started.elapsed();
    tell(&format!(
        "  started    server and client in {} ms",
        started.as_millis()
    ));

    let first = first_byte(pair.echo)?;
    tell(&format!(
        "  first byte {:.2} ms on the warm connection (open, dial and echo)",
        ms(first)
    ));
    let (direct, tunnel) = (echo_median(apps.echo)?, echo_median(pair.echo)?);
    tell(&format!(
        "  latency    {:.3} ms for one byte there and back (median of {ECHOES}), {:.3} ms without the tunnel",
        ms(tunnel),
        ms(direct),
    ));

    let up = upload(pair.sink)?;
    tell(&format!("  to server  {}", throughput(up)));
    let down = download(pair.source)?;
    tell(&format!("  to client  {}", throughput(down)));

    half_close(pair.echo)?;
    tell("  half-close the answer came whole after the question was closed");
    refused(pair.refused)?;
    tell("  refusal    a target that refuses is seen as a reset, not as an empty answer");
    pair.stop().context("ending server and client")?;
    Ok(Facts {
        started_us: us(started),
        first_byte_us: us(first),
        round_trip_us: us(tunnel),
        round_trip_direct_us: us(direct),
        bytes_each_way: BULK,
        to_server_bit_per_s: bit_per_s(up),
        to_client_bit_per_s: bit_per_s(down),
        half_close_ok: true,
        refusal_ok: true,
        commands: COMMANDS.map(|(on, command)| Step { on, command }).to_vec(),
    })
}

/// Time from connecting to the first byte of the answer.
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

fn echo_median(address: SocketAddr) -> Result<Duration> {
    let mut stream = connect(address)?;
    let mut times = Vec::with_capacity(ECHOES);
    for round in 0..ECHOES {
        let byte = [u8::try_from(round % 251).unwrap_or(0)];
        let start = Instant::now();
        stream.write_all(&byte)?;
        let mut answer = [0];
        stream.read_exact(&mut answer)?;
        times.push(start.elapsed());
        ensure!(answer == byte, "the echo differs from what was sent");
    }
    times.sort_unstable();
    Ok(times[ECHOES / 2])
}

/// Sends the pattern and has the far side count and check it.
fn upload(sink: SocketAddr) -> Result<Duration> {
    let mut stream = connect(sink)?;
    let start = Instant::now();
    apps::send_pattern(&mut stream, BULK).context("sending to the server's side")?;
    stream.shutdown(Shutdown::Write)?;
    let mut verdict = String::new();
    stream
        .read_to_string(&mut verdict)
        .context("the far side's verdict")?;
    ensure!(
        verdict == apps::verdict(BULK),
        "the far side says: {verdict:?}"
    );
    Ok(start.elapsed())
}

fn download(source: SocketAddr) -> Result<Duration> {
    let mut stream = connect(source)?;
    stream.write_all(&BULK.to_be_bytes())?;
    let start = Instant::now();
    let received = apps::check_pattern(&mut stream).context("receiving from the server's side")?;
    ensure!(received == BULK, "{received} of {BULK} bytes arrived");
    Ok(start.elapsed())
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

fn bit_per_s(duration: Duration) -> u64 {
    let bits = u128::from(BULK) * 8 * 1_000_000_000 / duration.as_nanos().max(1);
    u64::try_from(bits).unwrap_or(u64::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn throughput(duration: Duration) -> String {
    format!(
        "{:.2} Gbit/s, {} MiB, every byte checked",
        bit_per_s(duration) as f64 / 1e9,
        BULK >> 20
    )
}
