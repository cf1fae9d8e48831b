//! Runs a scenario: measures every cell in order, and writes the report even if the run ends early.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use jiff::Timestamp;
use quictun_args::fault::{Exit, Fault};
use quictun_args::terminal::{print, say};
use quictun_lab::{
    Arm, ArmKind, Background, Cell, Findings, Mode, PlannedCell, RecordedOptions, Run, SCHEMA,
    Scenario, Schedule, Selection, text,
};
use quictun_tunnel::settings::HostPort;

use crate::cell::Measurer;
use crate::client::{Interrupted, SignalWaiter};
use crate::processors::{HostThreads, Observer};
use crate::progress::{self, Progress, minutes};
use crate::remote::Remote;
use crate::{PROGRAM, arm, environment, remote, results};

/// Number of first attempts after which the run ends if none of them counts: the remaining ones would not count either.
const HOPELESS: usize = 8;

/// Maximum attempts at a cell that the machine disturbs. Only link and machine decide about another attempt, never the
/// result. All attempts are recorded.
const ATTEMPTS: u32 = 3;

/// Limits additional attempts to one per this many cells in total, so that the run takes little longer than estimated.
const AGAIN_SHARE: usize = 4;

/// The settings of a run.
#[derive(Debug)]
pub struct RunSettings {
    /// The scenario's name, or the path of its file.
    pub named: String,
    /// The scenario, parsed and checked.
    pub scenario: Scenario,
    /// The part of the scenario to measure.
    pub selection: Selection,
    /// Seed of the order of cells and of the random events on the links.
    pub seed: u64,
    /// The output directory. `None` for the default.
    pub out: Option<PathBuf>,
    /// The planned cells, in order.
    pub schedule: Schedule,
    /// The command of another emulator, for `quictun lab crosscheck`.
    pub emulator: Option<String>,
    /// The far end of a real path. `None` to emulate links.
    pub remote: Option<remote::RemoteOptions>,
}

/// Measures and writes the report. Returns a failure if no measurement counts or an assertion does not hold.
pub(crate) fn run(settings: &RunSettings, host: Arc<HostThreads>) -> Result<Exit> {
    // Signals must be blocked before the process has other threads.
    let waiter = SignalWaiter::new()?;
    let measurer = Measurer {
        observer: Observer { waiter, host },
        remote: settings.remote.as_ref().map(Remote::connect).transpose()?,
    };
    let (scenario, begin, started) = (&settings.scenario, Instant::now(), Timestamp::now());
    let mut cells = possible(settings)?;
    if settings.remote.is_some() {
        cells = over_the_path(settings, cells)?;
    }
    let (cells, shown) = (cells, scenario.over_a_path(settings.remote.is_some()));
    let out = results::prepare(settings.out.as_deref(), &scenario.name, started)?;
    let mut run = Run {
        schema: SCHEMA.to_owned(),
        scenario: scenario.text.clone(),
        asked: RecordedOptions {
            only: settings.selection.only.clone(),
            reps: settings.schedule.reps,
            quick: settings.selection.quick,
            seed: settings.seed,
        },
        command: repeat_command(settings),
        started: started.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        seconds: 0.0,
        planned: cells.len(),
        ended_early: None,
        warnings: settings.remote.iter().map(not_emulated).collect(),
        environment: match &measurer.remote {
            Some(remote) => remote.environment()?,
            None => environment::snapshot(),
        },
        remote: settings
            .remote
            .as_ref()
            .map(|asked| asked.host.host.clone()),
        cells: Vec::new(),
        profiles: Vec::new(),
    };
    introduce(settings, &cells, &out);
    let outcome = environment::noise(&measurer.observer.waiter).and_then(|warnings| {
        for warning in &warnings {
            say(&format!("{PROGRAM}: warning: {warning}"));
        }
        run.warnings.extend(warnings);
        let quick = settings.selection.quick;
        let mut progress = Progress::new(&shown, &cells, quick, Instant::now());
        let planned = (&*cells, &mut progress);
        measure(&measurer, settings, planned, &mut run, &out, begin)?;
        profile_arms(&measurer, settings, &cells, &mut run, &progress)
    });
    run.seconds = begin.elapsed().as_secs_f64();
    let interrupted = match outcome {
        Ok(()) => false,
        Err(error) if error.is::<Interrupted>() => {
            run.ended_early = Some("interrupted".to_owned());
            true
        }
        Err(error) => return Err(error),
    };
    results::write(&out, &run, &shown)?;
    let findings = Findings::new(&run, &shown);
    print(&text(&findings, progress::report_width()))?;
    print(&format!("\n{}\n", results::report_path(&out).display()))?;
    Ok(if interrupted {
        Exit::Interrupted
    } else if findings.all_hold() && findings.validity().0 > 0 {
        Exit::Ok
    } else {
        Exit::Failure
    })
}

fn possible(settings: &RunSettings) -> Result<Vec<PlannedCell>> {
    let mut cells = settings.schedule.cells.clone();
    for (at, one) in settings.scenario.arms.iter().enumerate() {
        if !cells.iter().any(|cell| cell.arm == at) {
            continue;
        }
        let setups = cells.iter().filter(|cell| cell.arm == at);
        let mut loads = setups
            .clone()
            .map(|cell| &settings.scenario.setup(cell.case, at, false).load);
        let takes_streams = one.kind != ArmKind::Iperf3 && one.commands.is_none();
        if !takes_streams && loads.any(|load| load.background != Background::None) {
            let why = format!("{}: this arm supports no background stream", arm_line(one));
            return Err(Fault::usage(&settings.named, why)
                .next("remove background, or use another kind of arm")
                .into());
        }
        let mut loads = setups
            .clone()
            .map(|cell| &settings.scenario.setup(cell.case, at, false).load);
        if let Some(why) = loads.find_map(|load| arm::missing_for_rival(one, load)) {
            return Err(Fault::failure(&settings.named, format!("rival: {why}"))
                .next("leave out the cases that have it, with --only")
                .into());
        }
        let mut modes = setups.map(|cell| settings.scenario.setup(cell.case, at, false).load.mode);
        if one.kind == ArmKind::Iperf3 && modes.any(|mode| mode != Mode::Stream) {
            let why = format!("{}: iperf3 supports no requests", arm_line(one));
            return Err(Fault::usage(&settings.named, why)
                .next("mode = \"stream\", or kind = \"tcp\"")
                .into());
        }
        let Some(why) = arm::missing(one) else {
            continue;
        };
        if !one.optional {
            let fault = Fault::failure(&settings.named, format!("{}: {why}", arm_line(one)));
            return Err(fault
                .next(format!(
                    "leave it out with --only {}",
                    others(&settings.scenario, one)
                ))
                .into());
        }
        say(&format!("{PROGRAM}: without {}: {why}", one.id));
        cells.retain(|cell| cell.arm != at);
    }
    Ok(cells)
}

/// Keeps one cell for each load. Over a real path nothing is emulated, so cases that differ only in their links are the
/// same.
fn over_the_path(settings: &RunSettings, mut cells: Vec<PlannedCell>) -> Result<Vec<PlannedCell>> {
    let scenario = &settings.scenario;
    let load = |case, arm| &scenario.setup(case, arm, settings.selection.quick).load;
    let chosen: Vec<usize> = (0..scenario.cases.len())
        .filter(|case| cells.iter().any(|cell| cell.case == *case))
        .collect();
    cells.retain(|cell| {
        let earlier = chosen.iter().take_while(|case| **case < cell.case);
        let own = load(cell.case, cell.arm);
        !earlier.clone().any(|case| load(*case, cell.arm) == own)
    });
    let refuse = |why: &str| Err(Fault::usage("--remote", why).into());
    for cell in &cells {
        if scenario.arms[cell.arm].commands.is_some() {
            return refuse(
                "an agent starts no commands of the user: leave these arms out with --only",
            );
        }
        if load(cell.case, cell.arm).background != Background::None {
            return refuse("background streams do not work over a real path");
        }
        if load(cell.case, cell.arm).rival.is_some() {
            return refuse("a rival cannot be measured over a real path");
        }
    }
    Ok(cells)
}

fn arm_line(arm: &Arm) -> String {
    format!("line {}: arm {:?}", arm.line, arm.id)
}

fn others(scenario: &Scenario, but: &Arm) -> String {
    let others = scenario
        .arms
        .iter()
        .map(|arm| &*arm.id)
        .filter(|id| *id != but.id);
    others.collect::<Vec<_>>().join(",")
}

fn not_emulated(asked: &remote::RemoteOptions) -> String {
    format!(
        "over the real path to {}: the scenario's links were not emulated, nor their loss and delay",
        asked.host.host
    )
}

fn introduce(settings: &RunSettings, cells: &[PlannedCell], out: &Path) {
    let (scenario, quick) = (&settings.scenario, settings.selection.quick);
    say(&format!(
        "{PROGRAM}: {}: {} cells ({} repetitions), about {}; writes to {}",
        scenario.name,
        cells.len(),
        settings.schedule.reps,
        minutes(scenario.estimate_all(cells, quick)),
        out.display()
    ));
}

fn measure(
    measurer: &Measurer,
    settings: &RunSettings,
    (cells, progress): (&[PlannedCell], &mut Progress<'_>),
    run: &mut Run,
    out: &Path,
    begin: Instant,
) -> Result<()> {
    let (scenario, quick) = (&settings.scenario, settings.selection.quick);
    let mut spare = cells.len() / AGAIN_SHARE;
    for (number, planned) in cells.iter().enumerate() {
        let arm = &scenario.arms[planned.arm];
        let setup = scenario.setup(planned.case, planned.arm, quick);
        for attempt in 1..=ATTEMPTS {
            let blank = Cell {
                at_s: begin.elapsed().as_secs_f64(),
                ..blank(scenario, planned)
            };
            progress.begins(number, &blank);
            let cell = measurer.measure(arm, setup, blank)?;
            progress.ended(number, &cell);
            let repeat_command = cell.noise && attempt < ATTEMPTS && spare > 0;
            run.cells.push(cell);
            run.seconds = begin.elapsed().as_secs_f64();
            if !repeat_command {
                break;
            }
            spare -= 1;
        }
        let next = cells.get(number + 1);
        if next.is_some_and(|next| next.block != planned.block) {
            results::write(out, run, &scenario.over_a_path(run.remote.is_some()))?;
        }
        let none_counts = run.cells.iter().all(|cell| !cell.valid);
        if run.cells.len() >= HOPELESS && next.is_some() && none_counts {
            let tried = run.cells.len();
            let why = format!(
                "none of the first {tried} attempts counts: this machine cannot measure now"
            );
            progress.say(&format!("{PROGRAM}: {why}"));
            run.ended_early = Some(why);
            break;
        }
    }
    Ok(())
}

fn blank(scenario: &Scenario, planned: &PlannedCell) -> Cell {
    Cell {
        case: scenario.cases[planned.case].id.clone(),
        arm: scenario.arms[planned.arm].id.clone(),
        block: planned.block,
        seed: planned.seed,
        ..Cell::default()
    }
}

fn profile_arms(
    measurer: &Measurer,
    settings: &RunSettings,
    cells: &[PlannedCell],
    run: &mut Run,
    progress: &Progress<'_>,
) -> Result<()> {
    let (scenario, quick) = (&settings.scenario, settings.selection.quick);
    let Some(asked) = scenario
        .profile
        .as_ref()
        .filter(|_| measurer.remote.is_none())
    else {
        return Ok(());
    };
    let wanted = cells.iter().filter(|planned| {
        let case = &scenario.cases[planned.case].id;
        let arm = &scenario.arms[planned.arm].id;
        planned.block == 1 && asked.cases.contains(case) && asked.arms.contains(arm)
    });
    for planned in wanted {
        if run.ended_early.is_some() {
            break;
        }
        let arm = &scenario.arms[planned.arm];
        let setup = scenario.setup(planned.case, planned.arm, quick);
        match measurer.profile(arm, setup, blank(scenario, planned)) {
            Ok(profiles) => {
                let samples: u64 = profiles.iter().map(|profile| profile.samples).sum();
                progress.say(&format!("[profile] {}: {samples} samples", arm.id));
                run.profiles.extend(profiles);
            }
            Err(error) if error.is::<Interrupted>() => return Err(error),
            Err(error) => {
                progress.say(&format!("{PROGRAM}: no profile of {}: {error:#}", arm.id));
                break;
            }
        }
    }
    Ok(())
}

/// Returns the command line that repeats the run.
fn repeat_command(settings: &RunSettings) -> String {
    let (named, selection) = (quoted(&settings.named), &settings.selection);
    let mut words = match &settings.emulator {
        Some(command) => vec![format!(
            "quictun lab crosscheck --emulator {}",
            quoted(command)
        )],
        None => vec![format!("quictun lab run {named}")],
    };
    if selection.quick {
        words.push("--quick".to_owned());
    }
    words.extend(selection.reps.map(|reps| format!("--reps {reps}")));
    if !selection.only.is_empty() {
        words.push(format!("--only {}", quoted(&selection.only.join(","))));
    }
    words.push(format!("--seed {}", settings.seed));
    words.extend(settings.remote.iter().map(|asked| {
        let HostPort { host, port } = &asked.host;
        let host = if host.contains(':') {
            format!("[{host}]")
        } else {
            host.clone()
        };
        let (host, file) = (quoted(&host), quoted(&asked.token_file.to_string_lossy()));
        format!("--remote {host}:{port} --token-file {file}")
    }));
    words.join(" ")
}

/// Quotes a word for a shell, if needed.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=%,".contains(c);
    if word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}
