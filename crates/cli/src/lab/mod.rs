//! `quictun lab`: scenarios measured, and their reports.
//!
//! [`parse`] turns the command line into what is to be done, [`main`] does it. What is measured and how it is judged
//! is `quictun-lab`'s; here programs are started (`arm`), a cell is measured (`cell`), a run is made of them (`run`),
//! and files are read and written (`results`).

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ArgMatches;
use quictun_lab::{Findings, Metric, Scenario, Schedule, Selection, compare_runs, scenarios};
use quictun_sys::{Side, contain};

use crate::exit::{self, Fault};
use crate::inputs::Inputs;
use crate::layers::Layers;
use crate::options::Section;
use crate::{link, options};
use processors::HostThreads;

mod arm;
mod cell;
mod client;
mod environment;
pub mod flags;
mod foreign;
mod generator;
mod processors;
mod profile;
mod results;
mod run;
mod symbols;
mod tally;

const PROGRAM: &str = "quictun lab";

/// What to do.
#[derive(Debug)]
pub enum Action {
    /// Print this.
    Print(String),
    /// Measure.
    Run(Box<Measuring>),
    /// Make the report of this directory again.
    Report(PathBuf),
    /// Compare the runs of two directories.
    Compare([PathBuf; 2]),
}

/// What to measure.
#[derive(Debug)]
pub struct Measuring {
    /// As it was named.
    pub named: String,
    /// The scenario.
    pub scenario: Scenario,
    /// Which part of it.
    pub selection: Selection,
    /// What order and losses follow from.
    pub seed: u64,
    /// Where to write.
    pub out: Option<PathBuf>,
    /// All runs, in order.
    pub schedule: Schedule,
    /// `quictun lab crosscheck`: somebody else's emulator.
    pub emulator: Option<String>,
}

/// Reads what follows `quictun lab`.
pub fn parse(matches: &ArgMatches, inputs: &Inputs<'_>) -> Result<Action, Fault> {
    let (command, matches) = matches
        .subcommand()
        .expect("invariant: clap requires a command");
    let text = |name: &str| {
        let value = matches.get_one::<String>(name);
        value.expect("invariant: clap requires it").clone()
    };
    match command {
        "list" => Ok(Action::Print(list())),
        "show" => source(&text("scenario"), inputs).map(Action::Print),
        "run" => measuring(matches, flags::RUN, text("scenario"), inputs).map(Action::Run),
        "calibrate" => {
            measuring(matches, flags::RUN, "capacity".to_owned(), inputs).map(Action::Run)
        }
        "crosscheck" => {
            measuring(matches, flags::CROSSCHECK, "crosscheck".to_owned(), inputs).map(Action::Run)
        }
        "report" => Ok(Action::Report(text("dir").into())),
        _ => Ok(Action::Compare([
            text("before").into(),
            text("after").into(),
        ])),
    }
}

/// Does it.
pub fn main(action: Action) -> ExitCode {
    let outcome = match action {
        Action::Print(text) => exit::print(&text),
        Action::Report(dir) => report(&dir),
        Action::Compare(dirs) => compare(&dirs),
        Action::Run(measuring) => return measure(&measuring),
    };
    exit::report(PROGRAM, outcome).into()
}

fn measure(measuring: &Measuring) -> ExitCode {
    // Inside, the kernel's threads cannot be seen.
    let threads = HostThreads::open();
    let code = match contain() {
        Ok(Side::Outside(contained)) => contained.wait(link::relay).map_err(anyhow::Error::from),
        Ok(Side::Inside(_)) => run::run(measuring, threads),
        Err(error) => Err(link::explain(&error).into()),
    };
    code.map_or_else(
        |error| exit::report(PROGRAM, Err(error)).into(),
        ExitCode::from,
    )
}

fn list() -> String {
    let width = scenarios::ALL.iter().map(|(name, _)| name.len()).max();
    let line = |(name, text): &(&str, &str)| {
        let scenario = Scenario::parse(text).expect("invariant: a test parses all of them");
        format!(
            "{name:<width$}  {}\n",
            scenario.title,
            width = width.unwrap_or(0)
        )
    };
    scenarios::ALL.iter().map(line).collect()
}

/// The text of a scenario, by its name or from its file.
fn source(named: &str, inputs: &Inputs<'_>) -> Result<String, Fault> {
    if named.contains('/')
        || Path::new(named)
            .extension()
            .is_some_and(|end| end == "toml")
    {
        let unreadable =
            |error| Fault::failure(named, format!("cannot read the scenario: {error}"));
        return inputs.files.read(Path::new(named)).map_err(unreadable);
    }
    scenarios::find(named).map(str::to_owned).ok_or_else(|| {
        let names = scenarios::ALL.iter().map(|(name, _)| *name);
        let next = match options::nearest(named, names) {
            Some(near) => format!("did you mean {near}?"),
            None => "quictun lab list; a file of your own ends in .toml".to_owned(),
        };
        Fault::usage(named, "there is no such scenario").next(next)
    })
}

fn measuring(
    matches: &ArgMatches,
    sections: &'static [&'static Section],
    named: String,
    inputs: &Inputs<'_>,
) -> Result<Box<Measuring>, Fault> {
    let given = options::given(matches, sections);
    let layers = Layers::new(sections, given, inputs, flags::PREFIX);
    let mut text = source(&named, inputs)?;
    let is_crosscheck = sections.len() > flags::RUN.len();
    let emulator = if is_crosscheck {
        layers.text("emulator")
    } else {
        None
    };
    if let Some(command) = &emulator {
        text += &scenarios::other_emulator(command);
    }
    let scenario = Scenario::parse(&text).map_err(|why| Fault::usage(&named, why))?;
    let selection = Selection {
        only: layers.all("only", |name| Ok::<_, String>(name.to_owned()))?,
        reps: layers.optional("reps", |text| {
            let reps = text.parse().ok();
            reps.ok_or_else(|| format!("{text:?} is not a number of repetitions"))
        })?,
        quick: layers.switch("quick")?,
    };
    let seed = layers.number("seed", 0..=u64::MAX)?;
    let schedule = Schedule::new(&scenario, &selection, seed).map_err(|why| {
        let flag = if selection.reps.is_some_and(|reps| reps == 0) {
            "reps"
        } else {
            "only"
        };
        layers.fault(flag, why)
    })?;
    Ok(Box::new(Measuring {
        named,
        scenario,
        selection,
        seed,
        out: layers.text("out").map(PathBuf::from),
        schedule,
        emulator,
    }))
}

fn report(dir: &Path) -> anyhow::Result<()> {
    let (run, scenario) = results::read(dir)?;
    let findings = Findings::new(&run, &scenario);
    results::write_reports(dir, &findings)?;
    exit::print(&quictun_lab::text(&findings))?;
    exit::print(&format!("\n{}\n", results::report_path(dir).display()))
}

/// What a comparison of whole runs is about.
const COMPARED: [&str; 6] = [
    "receiver_mbit_per_s",
    "transactions_per_s",
    "total_ms",
    "latency_p50_us",
    "latency_p99_us",
    "cpu_s_per_gb",
];

fn compare(dirs: &[PathBuf; 2]) -> anyhow::Result<()> {
    let [before, after] = dirs;
    let ((first, _), (second, _)) = (results::read(before)?, results::read(after)?);
    let metrics: Vec<_> = COMPARED.iter().filter_map(|id| Metric::find(id)).collect();
    let rivals = compare_runs(&first, &second, &metrics);
    anyhow::ensure!(
        !rivals.is_empty(),
        "the two runs have no arm under the same case in common"
    );
    exit::print(&format!("{} -> {}\n\n", before.display(), after.display()))?;
    for one in rivals {
        let [(a, before), (b, after)] = one.sides;
        exit::print(&format!(
            "{:<18} {:<12} {:<24} {a:>9.2} [{:.2}, {:.2}] -> {b:>9.2} [{:.2}, {:.2}]  x{:.3}  {}\n",
            one.case,
            one.arm,
            one.metric.title(),
            before.low,
            before.high,
            after.low,
            after.high,
            one.ratio,
            one.word(),
        ))?;
    }
    Ok(())
}
