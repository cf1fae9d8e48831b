//! `quictun link calibrate`: TCP through links of rising rates, and what the emulator says of itself.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use quictun_emu::{Audit, Plan, Running, Verdict, World, WorldPlan};
use quictun_link::units::Rate;
use quictun_link::{LinkConfig, Queue, overhead};
use quictun_sys::Inside;
use rustix::net::sockopt::set_tcp_congestion;
use serde::Serialize;

use super::{Calibration, report};
use crate::exit;

/// How long a rate may be tried.
pub(super) const DURATIONS: RangeInclusive<Duration> =
    Duration::from_millis(200)..=Duration::from_mins(1);

/// Longest delay: TCP has to reach the rate well within the duration.
pub(super) const MAX_DELAY: Duration = Duration::from_millis(100);

/// Time for TCP to find the rate, which is not counted.
const WARM_UP: Duration = Duration::from_millis(500);

/// Bytes of Ethernet, IPv4 and TCP with timestamps, around 1448 bytes of data in a packet of 1500.
const PAYLOAD: f64 = 1448.0 / 1538.0;

/// Part of the arithmetic's goodput that counts as all of it.
const ENOUGH: f64 = 0.97;

/// Bytes in one read or write.
const CHUNK: usize = 256 << 10;

/// Longest wait for the other side.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, Serialize)]
struct Row {
    rate_bit_per_s: u64,
    expected_bit_per_s: u64,
    goodput_bit_per_s: u64,
    late_p50_us: u64,
    late_p99_us: u64,
    busy: f64,
    honest: bool,
    #[serde(flatten)]
    outcome: report::Outcome,
}

#[derive(Debug, Serialize)]
struct Table {
    rows: Vec<Row>,
    /// The highest rate up to which all are honest; null: none is.
    honest_up_to_bit_per_s: Option<u64>,
}

/// Runs it.
pub(super) fn run(plan: &Calibration, _inside: Inside) -> anyhow::Result<()> {
    exit::print(HEADING)?;
    let mut rates = plan.rates.clone();
    rates.sort_unstable();
    let mut rows = Vec::new();
    for rate in rates {
        let row = row(plan, rate).with_context(|| format!("at {}", Rate(rate)))?;
        exit::print(&line(&row))?;
        rows.push(row);
    }
    let honest = rows.iter().take_while(|row| row.honest).last();
    let honest_up_to_bit_per_s = honest.map(|row| row.rate_bit_per_s);
    exit::print(&match honest_up_to_bit_per_s {
        Some(rate) => format!("honest up to {}\n", Rate(rate / 8)),
        None => "no rate of these is emulated honestly here\n".to_owned(),
    })?;
    if let Some(path) = &plan.json {
        let table = Table {
            rows,
            honest_up_to_bit_per_s,
        };
        report::write(path, &table)?;
    }
    Ok(())
}

const HEADING: &str = concat!(
    "      rate    expected     goodput   late p50   late p99   busy  verdict\n",
    "                Mbit/s      Mbit/s         us         us      %\n",
);

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn line(row: &Row) -> String {
    let mbit = |rate: u64| rate as f64 / 1e6;
    format!(
        "{:>10} {:>11.1} {:>11.1} {:>10} {:>10} {:>6.0}  {}\n",
        Rate(row.rate_bit_per_s / 8).to_string(),
        mbit(row.expected_bit_per_s),
        mbit(row.goodput_bit_per_s),
        row.late_p50_us,
        row.late_p99_us,
        row.busy * 100.0,
        match (row.honest, row.outcome.limits()) {
            (true, _) => "ok".to_owned(),
            (false, limits) if limits.is_empty() =>
                "slower than the link: the machine is the limit".to_owned(),
            (false, limits) => format!("emulator-limited: {limits}"),
        }
    )
}

/// One rate.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates are positive and far below 2^53"
)]
fn row(plan: &Calibration, rate: u64) -> anyhow::Result<Row> {
    let world = World::build(&WorldPlan::default())?;
    let way = LinkConfig {
        rate: Some(rate),
        overhead: overhead::ETHERNET,
        delay: plan.delay,
        ..LinkConfig::default()
    };
    // Two round trips' worth: one for what is under way, one for the sender's mistakes.
    let worth = way.bandwidth_delay(4 * plan.delay).max(64 * 1538);
    let way = LinkConfig {
        queue: Queue::Bytes(worth),
        ..way
    };
    let running = Running::start(
        &world,
        Plan {
            up: way.clone(),
            down: way,
            seed: 1,
            coalesce: Duration::from_micros(50),
        },
    )?;
    let goodput = goodput(&world, plan.duration)?;
    let audit: Audit = running.stop()?;
    let expected = (rate as f64 * 8.0 * PAYLOAD) as u64;
    let late = |q| u64::try_from(audit.up.lateness.quantile(q).as_micros()).unwrap_or(u64::MAX);
    Ok(Row {
        rate_bit_per_s: rate * 8,
        expected_bit_per_s: expected,
        goodput_bit_per_s: goodput,
        late_p50_us: late(0.5),
        late_p99_us: late(0.99),
        busy: audit.up.busy_share(),
        honest: audit.verdict() == Verdict::Ok && goodput as f64 >= expected as f64 * ENOUGH,
        outcome: report::Outcome::new(&audit),
    })
}

/// Sends as fast as TCP can, and says how fast it arrived: bit/s.
fn goodput(world: &World, duration: Duration) -> anyhow::Result<u64> {
    let listener = world.far().within(|| {
        let listener = TcpListener::bind((world.far_addresses()[0], 0))?;
        Ok(listener)
    })?;
    let address = listener.local_addr()?;
    let sender = world.near().within(|| TcpStream::connect(address))?;
    if set_tcp_congestion(&sender, "cubic").is_err() {
        // A kernel without it has its reasons; its default will do.
    }
    let (receiver, _) = listener.accept()?;
    for stream in [&sender, &receiver] {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
    }
    std::thread::scope(|scope| {
        let sending = std::thread::Builder::new().spawn_scoped(scope, || send(&sender))?;
        let received = receive(receiver, duration);
        // The sender ends with the connection.
        sender.shutdown(Shutdown::Both)?;
        sending.join().ok().context("the sending thread failed")?;
        Ok(received?)
    })
}

fn send(mut stream: &TcpStream) {
    let chunk = vec![0; CHUNK];
    while stream.write_all(&chunk).is_ok() {}
}

fn receive(mut stream: TcpStream, duration: Duration) -> io::Result<u64> {
    let mut chunk = vec![0; CHUNK];
    let mut read = |until: Instant| -> io::Result<u64> {
        let mut bytes = 0;
        while Instant::now() < until {
            match stream.read(&mut chunk)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                length => bytes += length as u64,
            }
        }
        Ok(bytes)
    };
    let begin = Instant::now();
    read(begin + WARM_UP)?;
    let begin = Instant::now();
    let bytes = read(begin + duration)?;
    let bits = u128::from(bytes) * 8 * 1_000_000_000 / begin.elapsed().as_nanos().max(1);
    Ok(u64::try_from(bits).unwrap_or(u64::MAX))
}
