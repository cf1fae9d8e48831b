//! Drops UDP under running programs and lets it pass again: the programs see time only.
//!
//! Each round has a tunnel and a program of its own. A time without progress is the longest one that the program saw in
//! one direction, from the loss of UDP until a second after the return to QUIC.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use quictun_lab::stats::quantile;
use quictun_testbed::deadline;

use super::CarriersPlan;
use super::native_tunnel::{NativeClient, NativeServer};
use super::program::{BEGUN, FarApplications, ProgramKind};
use super::progress::ProgressWatch;
use super::udp_block::{UdpFate, block_udp, pass_udp};
use crate::load::machines::{LinkKind, LinkedMachines};
use crate::load::measured::pause;
use crate::load::report::LoadReport;

/// The rounds to run, and their limits.
#[derive(Args, Clone, Debug)]
pub struct OutageOptions {
    /// Program to run. Repeatable. [default: all]
    #[arg(long = "program", value_enum)]
    pub programs: Vec<ProgramKind>,
    /// Number of rounds for each program.
    #[arg(long, default_value_t = 20)]
    pub times: usize,
    /// Seconds for which UDP does not pass, at least until TLS carries.
    #[arg(long, default_value_t = 8.0)]
    pub seconds: f64,
    /// Maximum of the median time without progress in milliseconds.
    #[arg(long, default_value_t = 1000.0)]
    pub max_median: f64,
    /// Maximum time without progress in any round in milliseconds.
    #[arg(long, default_value_t = 1500.0)]
    pub max_worst: f64,
    /// Maximum number of seconds until QUIC carries again.
    #[arg(long, default_value_t = 30.0)]
    pub max_return: f64,
}

/// The port of the server.
const PORT: u16 = 7500;

/// The lines that the client logs.
const OVER_TLS: &str = "QUIC has not answered in time";
const BACK: &str = "QUIC passes to the server again";

/// The time for which a program runs before the outage, and after the return to QUIC.
const REST: Duration = Duration::from_secs(1);

/// The time limits for leaving QUIC, and for the return to it. A round that takes longer fails.
const LEAVE: Duration = Duration::from_secs(30);
const RETURN: Duration = Duration::from_mins(2);

/// The interval between two looks at the client's HTTP interface.
const LOOK: Duration = Duration::from_millis(50);

/// The time for which a transfer lasts beyond the outage. QUIC is usually back by then.
const BEYOND: Duration = Duration::from_secs(14);

/// The result of one round.
struct OutageRound {
    /// The longest time without progress, and the longest one that began after UDP passed again.
    still: Duration,
    still_after: Duration,
    /// The time until TLS carried, and the time from when UDP passed again until QUIC carried.
    to_tls: Duration,
    to_quic: Duration,
}

/// Runs all rounds.
///
/// # Errors
///
/// Fails if a program fails, if a byte is wrong, or if QUIC does not carry again.
pub fn run(plan: &CarriersPlan, load: &OutageOptions) -> Result<LoadReport> {
    let programs = match &load.programs[..] {
        [] => &ProgramKind::ALL,
        some => some,
    };
    ensure!(load.times > 0, "nothing to do: --times must be at least 1");
    let outage = Duration::try_from_secs_f64(load.seconds)?;
    let machines = LinkedMachines::new(&LinkKind::Emulated(plan.path.clone()))?;
    let applications =
        FarApplications::start(&machines, programs, plan.path.rate, outage + BEYOND)?;
    let mut rounds: Vec<Vec<OutageRound>> = programs.iter().map(|_| Vec::new()).collect();
    for number in 0..load.times {
        for (program, rounds) in programs.iter().zip(&mut rounds) {
            let round = one_round(plan, &machines, &applications, *program, outage);
            let name = program.name();
            rounds.push(round.with_context(|| format!("{name}, round {number}"))?);
        }
    }
    applications.stop()?;
    machines.end()?;
    let mut report = LoadReport::new(format!(
        "UDP dropped for {} s under running programs, {} rounds: time without progress",
        load.seconds, load.times
    ));
    for (program, rounds) in programs.iter().zip(&rounds) {
        add_to(&mut report, program.name(), load, rounds);
    }
    Ok(report)
}

fn one_round(
    plan: &CarriersPlan,
    machines: &LinkedMachines,
    applications: &FarApplications<'_>,
    program: ProgramKind,
    outage: Duration,
) -> Result<OutageRound> {
    let target = applications.target(program)?;
    let server = NativeServer::start(machines, None, PORT, &target, &plan.server)?;
    let flags = program.client_flags().iter().map(ToString::to_string);
    let mut client = server.client(&[&plan.client[..], &flags.collect::<Vec<_>>()].concat())?;
    let running = applications.run(program, client.port()?)?;
    for mut counter in running.counters() {
        let begun = || Ok(counter()?.is_some_and(|count| count > 0).then_some(()));
        deadline::wait("the program to receive its first bytes", BEGUN, begun)?;
    }
    let watch = ProgressWatch::start(running.counters());
    carried_by(&client, "quic", LEAVE)?;
    pause(REST);
    let lost = Instant::now();
    block_udp(machines, UdpFate::Swallowed)?;
    let to_tls = carried_by(&client, "tls", LEAVE)?;
    client.client.program.wait_for(OVER_TLS, LEAVE)?;
    pause((lost + outage).saturating_duration_since(Instant::now()));
    pass_udp(machines)?;
    let passes = Instant::now();
    let to_quic = carried_by(&client, "quic", RETURN)?;
    client.client.program.wait_for(BACK, RETURN)?;
    pause(REST);
    let still = watch.end()?;
    running.finish()?;
    client.end()?;
    server.end()?;
    Ok(OutageRound {
        still: still.longest_after(lost),
        still_after: still.longest_begun_after(passes),
        to_tls,
        to_quic,
    })
}

/// Waits until a carrier carries; returns the time that this took.
fn carried_by(client: &NativeClient<'_>, carrier: &str, within: Duration) -> Result<Duration> {
    let begin = Instant::now();
    let carried = deadline::wait(&format!("{carrier} to carry"), within, || {
        pause(LOOK);
        Ok(client.is_carried_by(carrier)?.then_some(begin.elapsed()))
    });
    carried.or_else(|error| Err(error.context(client.account()?)))
}

fn add_to(report: &mut LoadReport, program: &str, load: &OutageOptions, rounds: &[OutageRound]) {
    for (number, round) in rounds.iter().enumerate() {
        let mut add = |what: &str, time: Duration| {
            let name = format!("{program}, round {number}: {what}");
            report.add_detail(name, time.as_secs_f64() * 1e3, "ms");
        };
        add("without progress", round.still);
        add("without progress since UDP passes again", round.still_after);
        add("TLS carries", round.to_tls);
        add("QUIC carries again", round.to_quic);
    }
    let sorted = |time: fn(&OutageRound) -> Duration| {
        let mut times: Vec<f64> = rounds.iter().map(|it| time(it).as_secs_f64()).collect();
        times.sort_by(f64::total_cmp);
        times
    };
    let still = sorted(|it| it.still);
    let (median, worst) = (quantile(&still, 0.5) * 1e3, quantile(&still, 1.0) * 1e3);
    report.add_limited(
        format!("{program}: median"),
        median,
        "ms",
        Some(load.max_median),
    );
    report.add_limited(
        format!("{program}: worst"),
        worst,
        "ms",
        Some(load.max_worst),
    );
    let after = quantile(&sorted(|it| it.still_after), 1.0) * 1e3;
    let name = format!("{program}: worst since UDP passes again");
    report.add(name, after, "ms");
    let back = sorted(|it| it.to_quic);
    let name = format!("{program}: QUIC again after, median");
    report.add(name, quantile(&back, 0.5), "s");
    let name = format!("{program}: QUIC again after, worst");
    report.add_limited(name, quantile(&back, 1.0), "s", Some(load.max_return));
}
