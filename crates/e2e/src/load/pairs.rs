//! Compares two builds of the programs in turn, or one build with and without an option, to find whether one is slower.
//!
//! Each pair measures both builds one after the other, on fresh processes, and the order alternates from pair to pair.
//! The median of the pairs' ratios gets an exact 95 % interval. A disturbance of the machine that lasts minutes affects
//! both builds of a pair. For throughput without an emulated link, both builds run at once, and their uploads take turns
//! of a tenth of a second: most disturbances last longer than a turn.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use quictun_lab::stats;

use super::machines::LinkKind;
use super::measured::{
    self, MeasuredApplication, RateClock, Transfer, connects, echo, take_turns, upload_by,
};
use super::report::LoadReport;
use super::tunnel::{LoadOptions, LoadTunnel};

/// The quantity to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Measure {
    /// Mbit/s of one upload.
    Throughput,
    /// Mbit of one upload per second of processor time of both programs' threads.
    Cpu,
    /// Mbit of one upload per thousand wake-ups of both programs' threads.
    Wakes,
    /// Round trips of one byte per second, from the median delay.
    Echo,
    /// Round trips of one byte per second, from the 99th percentile of the delay.
    EchoTail,
    /// New connections per second.
    Connects,
}

/// The size of the measurement.
#[derive(Clone, Debug)]
pub struct Pairs {
    /// The directory of the earlier build's programs; `None` for the programs under test.
    pub before: Option<PathBuf>,
    /// Additional arguments for both programs of the earlier build.
    pub before_arguments: Vec<String>,
    /// The quantity to measure.
    pub measure: Measure,
    /// The number of pairs.
    pub pairs: usize,
    /// The duration of one measurement, without its warm-up.
    pub time: Duration,
    /// The minimum ratio of the later build to the earlier one that the interval may reach.
    pub least: f64,
}

/// The number of round trips in one measurement: fewer on a long path, so that they take about ten seconds.
const ECHOES: usize = 4000;
const ECHOES_LEAST: usize = 400;
const ECHO_TIME: Duration = Duration::from_secs(10);

/// Compares the programs under test with an earlier build.
///
/// # Errors
///
/// Fails if a tunnel does not work.
pub fn run(plan: &LoadOptions, load: &Pairs) -> Result<LoadReport> {
    let before = LoadOptions {
        programs: load.before.clone().or_else(|| plan.programs.clone()),
        server: [&plan.server[..], &load.before_arguments].concat(),
        client: [&plan.client[..], &load.before_arguments].concat(),
        ..plan.clone()
    };
    // After each turn without data, a sender on an emulated link would have to find the rate again.
    let takes_turns =
        load.measure == Measure::Throughput && !matches!(plan.link, LinkKind::Emulated(_));
    let mut pairs = Vec::new();
    for number in 0..load.pairs {
        if takes_turns {
            let [later, earlier] = upload_in_turns([plan, &before], number % 2, load.time)?;
            pairs.push((later, earlier));
            continue;
        }
        let later = |plan| measure(plan, load).context("measuring the build under test");
        let earlier = || measure(&before, load).context("measuring the earlier build");
        pairs.push(if number % 2 == 0 {
            let first = later(plan)?;
            (first, earlier()?)
        } else {
            let second = earlier()?;
            (later(plan)?, second)
        });
    }
    let unit = match load.measure {
        Measure::Throughput => "Mbit/s",
        Measure::Cpu => "Mbit/CPU-s",
        Measure::Wakes => "Mbit/1000 wakes",
        Measure::Echo | Measure::EchoTail | Measure::Connects => "1/s",
    };
    let title = format!("{:?}, {} pairs", load.measure, load.pairs);
    report(
        title,
        ["this build", "earlier build"],
        unit,
        &pairs,
        load.least,
    )
}

/// Reports pairs of figures: see [`add_to`].
pub(super) fn report(
    title: String,
    names: [&str; 2],
    unit: &'static str,
    pairs: &[(f64, f64)],
    least: f64,
) -> Result<LoadReport> {
    let mut report = LoadReport::new(title);
    add_to(&mut report, "", names, unit, pairs, least)?;
    Ok(report)
}

/// Adds pairs of figures to a report: the medians of both, and the ratio of the first to the second, with its interval,
/// which may reach down to `least`. The rows begin with `prefix`.
pub(super) fn add_to(
    report: &mut LoadReport,
    prefix: &str,
    [this, other]: [&str; 2],
    unit: &'static str,
    pairs: &[(f64, f64)],
    least: f64,
) -> Result<()> {
    let paired = stats::compare(pairs).context("nothing was measured")?;
    for (number, (first, second)) in pairs.iter().enumerate() {
        report.add_detail(format!("{prefix}pair {number}: {this}"), *first, unit);
        report.add_detail(format!("{prefix}pair {number}: {other}"), *second, unit);
    }
    let medians = [
        (other, pairs.iter().map(|pair| pair.1).collect()),
        (this, pairs.iter().map(|pair| pair.0).collect()),
    ];
    for (name, values) in medians {
        let values: Vec<f64> = values;
        report.add(
            format!("{prefix}{name}, median"),
            stats::median(&values).unwrap_or(f64::NAN),
            unit,
        );
    }
    let row = |what: &str| format!("{prefix}{what}");
    report.add(row("ratio, median"), paired.ratio, "");
    report.add_floor(row("ratio, interval from"), paired.interval.low, least);
    report.add(row("ratio, interval to"), paired.interval.high, "");
    report.add(
        row("level of the interval"),
        paired.interval.level * 100.0,
        "%",
    );
    Ok(())
}

/// Returns the throughput of two builds in Mbit/s. They upload in turns, and build number `first` begins.
fn upload_in_turns(plans: [&LoadOptions; 2], first: usize, time: Duration) -> Result<[f64; 2]> {
    let start = |plan: &LoadOptions| {
        let application = MeasuredApplication::default();
        let serve = application.clone();
        let (site, _) = LoadTunnel::start(plan, move |listener| serve.serve(listener))?;
        let upload = site.near(|client| Transfer::upload(client.forward.connect()?, &application));
        Ok::<_, anyhow::Error>((site, upload?))
    };
    let (later, of_later) = start(plans[0]).context("starting the build under test")?;
    let (earlier, of_earlier) = start(plans[1]).context("starting the earlier build")?;
    let rates = take_turns([of_later, of_earlier], first, time)?;
    later.end()?;
    earlier.end()?;
    Ok(rates)
}

fn echoes(link: &LinkKind) -> usize {
    let LinkKind::Emulated(path) = link else {
        return ECHOES;
    };
    let most = ECHO_TIME.as_micros() / path.round_trip.as_micros().max(1);
    usize::try_from(most).map_or(ECHOES, |most| most.clamp(ECHOES_LEAST, ECHOES))
}

fn measure(plan: &LoadOptions, load: &Pairs) -> Result<f64> {
    let application = MeasuredApplication::default();
    let serve = application.clone();
    let (site, _) = LoadTunnel::start(plan, move |listener| serve.serve(listener))?;
    let value = site.near(|client| {
        let forward = &client.forward;
        let upload = |clock: &RateClock<'_>| upload_by(forward, &application, load.time, clock);
        match load.measure {
            Measure::Throughput => measured::upload(forward, &application, load.time),
            Measure::Cpu => upload(&|| Ok(site.work()?.time)),
            Measure::Wakes => upload(&|| Ok(Duration::from_millis(site.work()?.wakes))),
            Measure::Echo => Ok(1e6 / stats::quantile(&echo(forward, echoes(&plan.link))?, 0.5)),
            Measure::EchoTail => {
                Ok(1e6 / stats::quantile(&echo(forward, echoes(&plan.link))?, 0.99))
            }
            Measure::Connects => connects(forward, load.time),
        }
    })?;
    site.end()?;
    Ok(value)
}
