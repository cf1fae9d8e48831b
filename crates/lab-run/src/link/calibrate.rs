//! `quictun link calibrate`: measures TCP over links of increasing rates, and checks the emulator's own account.

use std::time::Duration;

use anyhow::Context as _;
use quictun_args::terminal::print;
use quictun_emu::{Audit, EmulatorConfig, LossUnit, RunningEmulator, Verdict, World, WorldOptions};
use quictun_link::units::Rate;
use quictun_link::{LinkConfig, Queue, overhead};
use serde::Serialize;
use serde_json::Value;

use super::options::{COALESCE, CalibrationOptions};
use super::{bulk, report};

/// Time in which TCP finds the rate. It is not counted.
const WARM_UP: Duration = Duration::from_millis(500);

/// Share of payload on the wire: 1448 bytes of data in a packet of 1500, with Ethernet, IPv4, and TCP with timestamps.
const PAYLOAD: f64 = 1448.0 / 1538.0;

/// Share of the computed goodput from which on a rate counts as reached.
const ENOUGH: f64 = 0.97;

#[derive(Debug, Serialize)]
struct RateRow {
    rate_bit_per_s: u64,
    expected_bit_per_s: u64,
    goodput_bit_per_s: u64,
    late_p50_us: u64,
    late_p99_us: u64,
    busy: f64,
    honest: bool,
    #[serde(skip)]
    limits: String,
    #[serde(flatten)]
    outcome: Value,
}

#[derive(Debug, Serialize)]
struct CalibrationTable {
    rows: Vec<RateRow>,
    /// The highest rate up to which every tested rate is emulated faithfully; null if there is none.
    honest_up_to_bit_per_s: Option<u64>,
}

/// Determines the rates that this machine can emulate. Prints each row as soon as it is known.
pub fn run(plan: &CalibrationOptions) -> anyhow::Result<()> {
    print(HEADING)?;
    let mut rates = plan.rates.clone();
    rates.sort_unstable();
    let mut rows = Vec::new();
    for rate in rates {
        let row = row(plan, rate).with_context(|| format!("at {}", Rate(rate)))?;
        print(&line(&row))?;
        rows.push(row);
    }
    let honest = rows.iter().take_while(|row| row.honest).last();
    let honest_up_to_bit_per_s = honest.map(|row| row.rate_bit_per_s);
    print(&match honest_up_to_bit_per_s {
        Some(rate) => format!("honest up to {}\n", Rate(rate / 8)),
        None => "no rate of these is emulated honestly here\n".to_owned(),
    })?;
    if let Some(path) = &plan.json {
        let table = CalibrationTable {
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
fn line(row: &RateRow) -> String {
    let mbit = |rate: u64| rate as f64 / 1e6;
    format!(
        "{:>10} {:>11.1} {:>11.1} {:>10} {:>10} {:>6.0}  {}\n",
        Rate(row.rate_bit_per_s / 8).to_string(),
        mbit(row.expected_bit_per_s),
        mbit(row.goodput_bit_per_s),
        row.late_p50_us,
        row.late_p99_us,
        row.busy * 100.0,
        match (row.honest, &*row.limits) {
            (true, _) => "ok".to_owned(),
            (false, "") => "slower than the link: the machine is the limit".to_owned(),
            (false, limits) => format!("emulator-limited: {limits}"),
        }
    )
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates are positive and far below 2^53"
)]
fn row(plan: &CalibrationOptions, rate: u64) -> anyhow::Result<RateRow> {
    let world = World::build(&WorldOptions::default())?;
    let config = LinkConfig {
        rate: Some(rate),
        overhead: overhead::ETHERNET,
        delay: plan.delay,
        ..LinkConfig::default()
    };
    // Two bandwidth-delay products: one for the data in flight, one as a margin for the sender.
    let worth = config.bandwidth_delay(4 * plan.delay).max(64 * 1538);
    let config = LinkConfig {
        queue: Queue::Bytes(worth),
        ..config
    };
    let running = RunningEmulator::start(
        &world,
        EmulatorConfig {
            up: config.clone(),
            down: config,
            seed: 1,
            coalesce: COALESCE,
            loss_unit: LossUnit::Segment,
        },
    )?;
    let goodput = bulk::tcp(&world, WARM_UP, plan.duration)?;
    let audit: Audit = running.stop()?;
    let expected = (rate as f64 * 8.0 * PAYLOAD) as u64;
    let late = |q| report::us(audit.up.lateness.quantile(q));
    Ok(RateRow {
        rate_bit_per_s: rate * 8,
        expected_bit_per_s: expected,
        goodput_bit_per_s: goodput,
        late_p50_us: late(0.5),
        late_p99_us: late(0.99),
        busy: audit.up.busy_share(),
        honest: audit.verdict() == Verdict::Ok && goodput as f64 >= expected as f64 * ENOUGH,
        limits: report::limits(&audit).join("; "),
        outcome: report::outcome(&audit),
    })
}
