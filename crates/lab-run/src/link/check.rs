//! `quictun link check`: compares the same traffic over the same links in virtual time and in real time.
//!
//! A cell is a link and a kind of traffic. In virtual time, the tunnel is its own engine, and TCP is the simulator's
//! reference. In real time, both are real programs on the kernel, and the emulator provides the link. If the kernel can
//! emulate the link too, it provides one more figure. Figures that agree can be trusted; a row whose figures differ
//! reports that.

use quictun_args::terminal::print;
use quictun_emu::{LossUnit, Verdict};
use quictun_lab::stats::median_count;
use quictun_sim::{CrossTraffic, Experiment, Tcp, predict};
use serde::Serialize;

use super::cell::{CheckCell, Load};
use super::options::CheckOptions;
use super::real::{across_kernel, real};
use super::report;
use super::table::{self, RowKey};

/// Maximum difference between the measured and the predicted rate, as a share.
const TOLERANCE: f64 = 0.10;

/// Maximum number of repetitions of a run that the machine disturbed. Other work, or a hypervisor that takes the
/// processors away, is temporary.
const REPEATS_MAX: u32 = 2;

#[derive(Debug, Serialize)]
struct CheckRow {
    #[serde(flatten)]
    of: RowKey,
    virtual_bit_per_s: u64,
    real_bit_per_s: u64,
    real_runs_bit_per_s: Vec<u64>,
    ratio: f64,
    agrees: bool,
    emulator_ok: bool,
    /// Number of runs that were repeated because the emulator was late or could not keep up.
    repeats: u32,
    /// The rate over a link that the kernel emulates.
    kernel_bit_per_s: Option<u64>,
}

#[derive(Debug, Serialize)]
struct CheckTable {
    rows: Vec<CheckRow>,
    agree: usize,
    /// The reason why the kernel cannot emulate a link, or cannot emulate all of them.
    kernel_missing: Option<String>,
}

const HEADING: &str =
    "      rate      RTT    loss  load       virtual  emulator  /virtual    kernel  /virtual
                                         Mbit/s    Mbit/s              Mbit/s
";

/// Compares virtual and real time, and prints a row for each load and link.
pub fn run(plan: &CheckOptions) -> anyhow::Result<()> {
    let mut kernel_missing = None;
    let rows = table::rows(plan, HEADING, line, |cell, load| {
        row(plan, cell, load, &mut kernel_missing)
    })?;
    let agree = rows.iter().filter(|row| row.agrees).count();
    print(&format!(
        "{agree} of {} rows agree within {:.0} %\n",
        rows.len(),
        TOLERANCE * 100.0
    ))?;
    if let Some(why) = &kernel_missing {
        print(&format!("no figure of the kernel's own emulation: {why}\n"))?;
    }
    if let Some(path) = &plan.json {
        let table = CheckTable {
            rows,
            agree,
            kernel_missing,
        };
        report::write(path, &table)?;
    }
    Ok(())
}

fn line(row: &CheckRow) -> String {
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
        "{} {:>10.1} {:>9.1} {:>9.3}{kernel}{note}{again}\n",
        row.of,
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
    plan: &CheckOptions,
    cell: CheckCell,
    load: Load,
    kernel_missing: &mut Option<String>,
) -> anyhow::Result<CheckRow> {
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
    let [virtual_rate, real_rate] =
        [&predictions, &runs].map(|rates| median_count(rates).unwrap_or(0));
    let ratio = over(real_rate, virtual_rate);
    Ok(CheckRow {
        of: RowKey::new(cell, load),
        virtual_bit_per_s: virtual_rate,
        real_bit_per_s: real_rate,
        real_runs_bit_per_s: runs,
        ratio,
        agrees: (1.0 - TOLERANCE..=1.0 + TOLERANCE).contains(&ratio),
        emulator_ok,
        repeats,
        kernel_bit_per_s: median_count(&by_kernel),
    })
}

/// Predicts the rate in virtual time, in bit/s.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a positive rate"
)]
fn predicted(plan: &CheckOptions, cell: CheckCell, load: Load, seed: u64) -> anyhow::Result<u64> {
    let mut question = Experiment {
        warm_up: cell.warm_up(),
        duration: plan.duration,
        seed,
        ..Experiment::new(cell.link_config(), cell.link_config())
    };
    if load == Load::Cubic {
        // Let the tunnel send one byte, after which it stays idle.
        question.bytes = Some(1);
        question.traffic = vec![CrossTraffic::Tcp(Tcp::default())];
    }
    let answer = predict(&question)?;
    let rate = match load {
        Load::Tunnel => answer.goodput,
        Load::Cubic => answer.traffic.first().copied().unwrap_or(0.0),
    };
    Ok((rate * 8.0) as u64)
}

/// Makes a run, and repeats it if the machine disturbed it. Returns the rate of the last run, whether that run is good,
/// and the number of repetitions. Only the emulator's account decides, never the rate.
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
    fn a_disturbed_run_is_repeated_at_most_three_times() {
        assert_eq!(after(0), (1, true, 0));
        assert_eq!(after(2), (3, true, 2));
        assert_eq!(after(3), (3, false, 2));
    }
}
