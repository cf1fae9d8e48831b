//! `quictun link check`: what crosses the same links in virtual time and in real time, side by side.
//!
//! A cell is a link and a kind of traffic. In virtual time the tunnel is its own engine, and TCP the reference
//! of the simulator; in real time they are the programs and the kernel, and the link is the emulator's, and once
//! more the kernel's own where it has one. Where they agree, any can be believed; where they do not, the row says so.

use std::str::FromStr;
use std::time::Duration;

use anyhow::Context as _;
use quictun_emu::{
    Audit, KernelError, KernelLink, LossUnit, Plan, Running, Verdict, World, WorldPlan,
};
use quictun_link::units::{Delay, Rate, Share};
use quictun_link::{LinkConfig, Queue, overhead};
use quictun_sim::{Cell, Direction, Tcp, Traffic, predict};
use quictun_sys::Inside;
use serde::Serialize;

use super::{Backend, Checking, bulk, report};
use crate::exit;
use quictun_lab_run::tunnel::{Ends, Tunnel};

/// Packets and streams as the links of all cells carry them.
const MTU: usize = 1500;

/// Bytes that may wait at the least: a batch of segmentation offload.
const QUEUE_MIN: usize = 64 << 10;

/// Measured and predicted may differ by this share.
const TOLERANCE: f64 = 0.10;

/// A run that the machine disturbed is made again, this often at most: other work, or a host that gives its
/// processors to somebody else, passes.
const REPEATS_MAX: u32 = 2;

/// Round trips that do not count, for whoever needs them to find the rate, and the least time.
const WARM_UP_ROUND_TRIPS: u32 = 30;
const WARM_UP: Duration = Duration::from_secs(1);

/// A link to check.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CheckCell {
    /// Bytes per second.
    pub(super) rate: u64,
    pub(super) round_trip: Duration,
    pub(super) loss: f64,
}

/// What crosses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// A flow through the tunnel.
    Tunnel,
    /// A TCP connection with CUBIC.
    Cubic,
}

/// What is checked where nothing else is asked for: Mbit/s, milliseconds, thousandths lost.
const TEN: [(u64, u64, u32); 10] = [
    (20, 20, 0),
    (100, 1, 0),
    (100, 20, 0),
    (100, 20, 1),
    (100, 20, 10),
    (100, 100, 0),
    (300, 20, 0),
    (600, 1, 0),
    (600, 20, 0),
    (600, 20, 10),
];

/// The ten cells of the help text.
pub(super) fn ten() -> Vec<CheckCell> {
    let cell = |(mbit, milliseconds, thousandths): (u64, u64, u32)| CheckCell {
        rate: mbit * 125_000,
        round_trip: Duration::from_millis(milliseconds),
        loss: f64::from(thousandths) / 1000.0,
    };
    TEN.map(cell).to_vec()
}

impl FromStr for CheckCell {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let [rate, round_trip, loss] = parts[..] else {
            return Err(format!(
                "`{text}` is not RATE:RTT:LOSS, such as 600mbit:20ms:1%"
            ));
        };
        let Delay(round_trip) = super::ways::parse(round_trip)?;
        let Share(loss) = super::ways::parse(loss)?;
        let cell = Self {
            rate: super::ways::rate(rate)?,
            round_trip,
            loss,
        };
        cell.way()
            .check()
            .map_err(|why| format!("`{text}`: {why}"))?;
        Ok(cell)
    }
}

impl CheckCell {
    /// Either direction of the link: a queue of one bandwidth-delay product, packets as on Ethernet.
    fn way(self) -> LinkConfig {
        let way = LinkConfig {
            rate: Some(self.rate),
            overhead: overhead::ETHERNET,
            delay: self.round_trip / 2,
            loss: self.loss,
            mtu: MTU,
            ..LinkConfig::default()
        };
        let queue = way.bandwidth_delay(self.round_trip).max(QUEUE_MIN);
        LinkConfig {
            queue: Queue::Bytes(queue),
            ..way
        }
    }

    fn warm_up(self) -> Duration {
        (self.round_trip * WARM_UP_ROUND_TRIPS).max(WARM_UP)
    }
}

impl Load {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Tunnel => "tunnel",
            Self::Cubic => "cubic",
        }
    }
}

#[derive(Debug, Serialize)]
struct Row {
    rate_bit_per_s: u64,
    round_trip_us: u64,
    loss: f64,
    load: &'static str,
    virtual_bit_per_s: u64,
    real_bit_per_s: u64,
    real_runs_bit_per_s: Vec<u64>,
    /// Real over virtual.
    ratio: f64,
    agrees: bool,
    emulator_ok: bool,
    /// Runs made again because the emulator was late or could not keep up.
    repeats: u32,
    /// The same across a link of the kernel's.
    kernel_bit_per_s: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Table {
    rows: Vec<Row>,
    agree: usize,
    /// Why the kernel emulates no link, or not all of them.
    kernel_missing: Option<String>,
}

const HEADING: &str =
    "      rate      RTT    loss  load       virtual  emulator  /virtual    kernel  /virtual
                                         Mbit/s    Mbit/s              Mbit/s
";

/// Runs it. Every row is printed as soon as it is known.
pub(super) fn run(plan: &Checking, _inside: Inside) -> anyhow::Result<()> {
    exit::print(HEADING)?;
    let mut rows = Vec::new();
    let mut kernel_missing = None;
    for &cell in &plan.cells {
        for &load in &plan.loads {
            let row = row(plan, cell, load, &mut kernel_missing)
                .with_context(|| format!("at {}", name(cell)))?;
            exit::print(&line(cell, &row))?;
            rows.push(row);
        }
    }
    let agree = rows.iter().filter(|row| row.agrees).count();
    exit::print(&format!(
        "{agree} of {} rows agree within {:.0} %\n",
        rows.len(),
        TOLERANCE * 100.0
    ))?;
    if let Some(why) = &kernel_missing {
        exit::print(&format!("no figure of the kernel's own emulation: {why}\n"))?;
    }
    if let Some(path) = &plan.json {
        let table = Table {
            rows,
            agree,
            kernel_missing,
        };
        report::write(path, &table)?;
    }
    Ok(())
}

pub(super) fn name(cell: CheckCell) -> String {
    format!(
        "{}:{}:{}",
        Rate(cell.rate),
        Delay(cell.round_trip),
        Share(cell.loss)
    )
}

fn line(cell: CheckCell, row: &Row) -> String {
    let kernel = row.kernel_bit_per_s.map_or_else(
        || format!("{:>10} {:>9}", "-", "-"),
        |rate| {
            let ratio = over(rate, row.virtual_bit_per_s);
            format!("{:>10.1} {ratio:>9.3}", mbit(rate))
        },
    );
    let note = match (row.emulator_ok, row.agrees) {
        (true, true) => "",
        (true, false) => "  differs",
        (false, _) => "  emulator-limited",
    };
    let again = match row.repeats {
        0 => String::new(),
        1 => "  1 run again".to_owned(),
        repeats => format!("  {repeats} runs again"),
    };
    format!(
        "{:>10} {:>8} {:>7}  {:<7} {:>10.1} {:>9.1} {:>9.3}{kernel}{note}{again}\n",
        Rate(cell.rate).to_string(),
        Delay(cell.round_trip).to_string(),
        Share(cell.loss).to_string(),
        row.load,
        mbit(row.virtual_bit_per_s),
        mbit(row.real_bit_per_s),
        row.ratio,
    )
}

#[expect(clippy::cast_precision_loss, reason = "rates far below 2^53")]
fn mbit(rate: u64) -> f64 {
    rate as f64 / 1e6
}

fn over(rate: u64, other: u64) -> f64 {
    mbit(rate) / mbit(other.max(1))
}

fn row(
    plan: &Checking,
    cell: CheckCell,
    load: Load,
    kernel_missing: &mut Option<String>,
) -> anyhow::Result<Row> {
    let mut predictions = Vec::new();
    let mut runs = Vec::new();
    let mut by_kernel = Vec::new();
    let mut emulator_ok = true;
    let mut repeats = 0;
    for seed in 1..=u64::from(plan.runs) {
        predictions.push(predicted(plan, cell, load, seed)?);
        let (rate, ok, again) = undisturbed(|| {
            let (rate, audit) = real(plan, cell, load, seed, LossUnit::Segment)?;
            anyhow::Ok((rate, audit.verdict()))
        })?;
        runs.push(rate);
        emulator_ok &= ok;
        repeats += again;
        by_kernel.extend(across_kernel(plan, cell, load, seed, kernel_missing)?);
    }
    let (virtual_rate, real_rate) = (median(&predictions), median(&runs));
    let ratio = over(real_rate, virtual_rate);
    Ok(Row {
        rate_bit_per_s: cell.rate * 8,
        round_trip_us: u64::try_from(cell.round_trip.as_micros()).unwrap_or(u64::MAX),
        loss: cell.loss,
        load: load.word(),
        virtual_bit_per_s: virtual_rate,
        real_bit_per_s: real_rate,
        real_runs_bit_per_s: runs,
        ratio,
        agrees: (1.0 - TOLERANCE..=1.0 + TOLERANCE).contains(&ratio),
        emulator_ok,
        repeats,
        kernel_bit_per_s: (!by_kernel.is_empty()).then(|| median(&by_kernel)),
    })
}

pub(super) fn median(runs: &[u64]) -> u64 {
    let mut sorted = runs.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or(0)
}

/// In virtual time: bit/s.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a positive rate"
)]
fn predicted(plan: &Checking, cell: CheckCell, load: Load, seed: u64) -> anyhow::Result<u64> {
    let mut question = Cell {
        warm_up: cell.warm_up(),
        duration: plan.duration,
        interval: plan.duration,
        seed,
        ..Cell::new(cell.way(), cell.way())
    };
    if load == Load::Cubic {
        // The tunnel says one byte, and has nothing to say from then on.
        question.bytes = Some(1);
        question.traffic = vec![(Direction::Up, Traffic::Tcp(Tcp::default()))];
    }
    let answer = predict(&question)?;
    let rate = match load {
        Load::Tunnel => answer.goodput,
        Load::Cubic => answer.traffic.first().map_or(0.0, |(rate, _)| *rate),
    };
    Ok((rate * 8.0) as u64)
}

/// Makes a run, and again where the machine disturbed it: what came of the last, whether that one is good, and
/// how many were made again. What the emulator says of itself decides, never the rate.
fn undisturbed<E>(
    mut run: impl FnMut() -> Result<(u64, Verdict), E>,
) -> Result<(u64, bool, u32), E> {
    let mut again = 0;
    loop {
        let (rate, verdict) = run()?;
        let ok = verdict == Verdict::Ok;
        if ok || again == REPEATS_MAX {
            return Ok((rate, ok, again));
        }
        again += 1;
    }
}

/// In real time: bit/s, and what the emulator says of itself.
pub(super) fn real(
    plan: &Checking,
    cell: CheckCell,
    load: Load,
    seed: u64,
    loss_unit: LossUnit,
) -> anyhow::Result<(u64, Audit)> {
    let world = World::build(&WorldPlan::default())?;
    let running = Running::start(
        &world,
        Plan {
            up: cell.way(),
            down: cell.way(),
            seed,
            coalesce: super::COALESCE,
            loss_unit,
        },
    )?;
    let rate = cross(&world, plan, cell, load)?;
    Ok((rate, running.stop()?))
}

/// The same across a link of the kernel's; `None`, and why, where it has none.
fn across_kernel(
    plan: &Checking,
    cell: CheckCell,
    load: Load,
    seed: u64,
    missing: &mut Option<String>,
) -> anyhow::Result<Option<u64>> {
    let world = World::build(&WorldPlan {
        offload: Backend::Kernel.offload(),
        ..WorldPlan::default()
    })?;
    match KernelLink::start(&world, [&cell.way(), &cell.way()], seed) {
        Ok(_) => cross(&world, plan, cell, load).map(Some),
        Err(why @ KernelError::Missing { .. }) => {
            *missing = Some(why.to_string());
            Ok(None)
        }
        Err(why) => Err(why.into()),
    }
}

/// Sends the load across whatever link is there: bit/s.
fn cross(world: &World, plan: &Checking, cell: CheckCell, load: Load) -> anyhow::Result<u64> {
    if load == Load::Cubic {
        return bulk::tcp(world, "cubic", cell.warm_up(), plan.duration);
    }
    let listener = bulk::listen(world)?;
    let tunnel = Tunnel::start(Ends::across(world), listener.local_addr()?, [&[], &[]])?;
    let rate = bulk::measure(
        world,
        &listener,
        tunnel.entry(),
        None,
        cell.warm_up(),
        plan.duration,
    )?;
    tunnel.stop()?;
    Ok(rate)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn after(disturbed: u32) -> (u64, bool, u32) {
        let mut runs = 0;
        let run = || {
            runs += 1;
            let verdict = if runs <= disturbed {
                Verdict::EmulatorLimited(Vec::new())
            } else {
                Verdict::Ok
            };
            Ok::<_, Infallible>((u64::from(runs), verdict))
        };
        undisturbed(run).unwrap_or_else(|never| match never {})
    }

    #[test]
    fn a_disturbed_run_is_made_again_until_it_is_good_or_was_made_three_times() {
        assert_eq!(after(0), (1, true, 0));
        assert_eq!(after(2), (3, true, 2));
        assert_eq!(after(3), (3, false, 2));
    }
}
