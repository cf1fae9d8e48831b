//! Replaces the processes of a tunnel under running programs (docs/HANDOVER.md): the programs see time only.
//!
//! Each program has a tunnel of its own, whose server and client are replaced in turns. A time without progress is the
//! longest one that the program saw in one direction, from the start of the next process until that of the one after it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use quictun_lab::stats::quantile;
use quictun_testbed::deadline;
use quictun_testbed::tunnel::Client;

use super::CarriersPlan;
use super::native_tunnel::{NativeServer, free_port, replace};
use super::program::{BEGUN, FarApplications, ProgramKind};
use super::progress::ProgressWatch;
use crate::load::machines::{LinkKind, LinkedMachines};
use crate::load::measured::pause;
use crate::load::report::LoadReport;

/// The upgrades, and their limits.
#[derive(Args, Clone, Debug)]
pub struct UpgradeOptions {
    /// Program to run. Repeatable. [default: all]
    #[arg(long = "program", value_enum)]
    pub programs: Vec<ProgramKind>,
    /// Number of upgrades of each process, under each program.
    #[arg(long, default_value_t = 20)]
    pub times: u32,
    /// Maximum of the median time without progress in milliseconds.
    #[arg(long, default_value_t = 200.0)]
    pub max_median: f64,
    /// Maximum time without progress at any upgrade in milliseconds.
    #[arg(long, default_value_t = 500.0)]
    pub max_worst: f64,
}

/// The port of the server.
const PORT: u16 = 7500;

/// The processes that are replaced, in turns.
const PROCESSES: [&str; 2] = ["server", "client"];

/// The least time from one upgrade to the next, and what is added at most.
const REST: Duration = Duration::from_millis(700);
const REST_MORE: Duration = Duration::from_secs(1);

/// The time that an upgrade takes at most, on average: an old client lives for three more seconds. Transfers last for as
/// long.
const UPGRADE: Duration = Duration::from_millis(3200);

/// Runs all upgrades.
///
/// # Errors
///
/// Fails if a program fails, if a byte is wrong, or if a process goes on that is to be replaced.
pub fn run(plan: &CarriersPlan, load: &UpgradeOptions) -> Result<LoadReport> {
    let programs = match &load.programs[..] {
        [] => &ProgramKind::ALL,
        some => some,
    };
    ensure!(load.times > 0, "nothing to do: --times must be at least 1");
    let machines = LinkedMachines::new(&LinkKind::Emulated(plan.path.clone()))?;
    let time = UPGRADE * 2 * load.times;
    let applications = FarApplications::start(&machines, programs, plan.path.rate, time)?;
    let title = format!(
        "{} upgrades of each process: time without progress",
        load.times
    );
    let mut report = LoadReport::new(title);
    for program in programs {
        let pauses = upgrade(plan, &machines, &applications, *program, load.times);
        let pauses = pauses.with_context(|| program.name())?;
        for (process, pauses) in PROCESSES.iter().zip(pauses) {
            add_to(
                &mut report,
                &format!("{}, {process}", program.name()),
                load,
                &pauses,
            );
        }
    }
    applications.stop()?;
    machines.end()?;
    Ok(report)
}

/// Returns the times without progress at the upgrades of each process.
fn upgrade(
    plan: &CarriersPlan,
    machines: &LinkedMachines,
    applications: &FarApplications<'_>,
    program: ProgramKind,
    times: u32,
) -> Result<[Vec<Duration>; 2]> {
    let target = applications.target(program)?;
    let mut server = NativeServer::start(machines, None, PORT, &target, &plan.server)?;
    let (home, port) = (server.client_home()?, free_port(&machines.near)?);
    let flags = program.client_flags().iter().map(ToString::to_string);
    let flags = [&plan.client[..], &flags.collect::<Vec<_>>()].concat();
    let start = |server: &NativeServer<'_>, more: &[&str]| {
        let mut command = server.client_command(&home, port, &flags)?;
        command
            .args(["--http", "off", "--state-dir", "client"])
            .args(more);
        Client::from_command(server.client_home()?, &mut command)
    };
    let mut client = start(&server, &[])?;
    let running = applications.run(program, port)?;
    for mut counter in running.counters() {
        let begun = || Ok(counter()?.is_some_and(|count| count > 0).then_some(()));
        deadline::wait("the program to receive its first bytes", BEGUN, begun)?;
    }
    let watch = ProgressWatch::start(running.counters());
    let mut starts = Vec::new();
    for number in 0..2 * times {
        // The moments are spread evenly over what the program does.
        let part = (f64::from(number) * 0.618).fract();
        pause(REST + REST_MORE.mul_f64(part));
        starts.push(Instant::now());
        if number % 2 == 0 {
            server.take_over(&plan.server)?;
        } else {
            let next = start(&server, &["--take-over"])?;
            replace(&mut client.program, next.program)?;
        }
    }
    pause(REST);
    starts.push(Instant::now());
    for mut counter in running.counters() {
        let name = program.name();
        ensure!(
            counter()?.is_some(),
            "{name} ended before the last upgrade: choose a lower --rate or fewer --times"
        );
    }
    let still = watch.end()?;
    running.finish()?;
    client.program.silence();
    server.end()?;
    let mut pauses = [Vec::new(), Vec::new()];
    for (number, window) in starts.windows(2).enumerate() {
        pauses[number % 2].push(still.longest_within(window[0], window[1]));
    }
    Ok(pauses)
}

fn add_to(report: &mut LoadReport, name: &str, load: &UpgradeOptions, pauses: &[Duration]) {
    let mut ms: Vec<f64> = pauses.iter().map(|it| it.as_secs_f64() * 1e3).collect();
    ms.sort_by(f64::total_cmp);
    let mut add = |what: &str, quantile: f64, max: f64| {
        report.add_limited(format!("{name}: {what}"), quantile, "ms", Some(max));
    };
    add("median", quantile(&ms, 0.5), load.max_median);
    add("worst", quantile(&ms, 1.0), load.max_worst);
}
