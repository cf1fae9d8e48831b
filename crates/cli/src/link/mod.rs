//! `quictun link`: an emulated link for any program.
//!
//! [`parse`] turns flags, variables and a plan into an [`Action`]; [`main`] runs it. The process splits in two
//! ([`quictun_sys::contain`]). The outer half only waits and forwards signals. The inner half makes the networks, the
//! emulator and the commands, and ends all of them when it ends.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::ArgMatches;
use quictun_emu::KernelLink;
use quictun_lab_run::link::{
    self, Backend, CalibrationOptions, CheckCell, CheckOptions, DELAY_MAX, DURATIONS, Load,
    NearCommand, SessionOptions,
};
use quictun_link::LossAt;
use quictun_sys::{ForkResult, NamespaceUser, ReceivedSignal, contain};

use crate::lab;
use quictun_args::fault::Fault;
use quictun_args::file::{File, Schema};
use quictun_args::inputs::Inputs;
use quictun_args::layers::{FileLayer, Layers};
use quictun_args::options::{Flag, Many, One, Table};
use serde::Deserialize;

mod directions;
pub mod flags;
mod values;

/// Longest coalescing window: a longer one would add noticeable delay.
const MAX_COALESCE: Duration = Duration::from_millis(10);

static PLAN: Schema = Schema {
    table: &flags::SESSION,
    other: &[],
    extra: "near",
    extra_is_array: false,
    tables: None,
};

/// The table `[near]` of a plan: the command that runs behind the link.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NearTable {
    /// The command, for `sh -c`.
    command: String,
}

/// The action of one `quictun link` command.
#[derive(Debug)]
pub enum Action {
    /// Run a command behind a link.
    Session(Box<SessionOptions>),
    /// Measure the rates that this machine can emulate.
    Calibrate(CalibrationOptions),
    /// Compare links in virtual time with the same links in real time.
    Check(CheckOptions),
    /// Compare loss of packets with loss of super-packets.
    Artefact(CheckOptions),
}

/// Parses the arguments after `quictun link`.
pub fn parse(matches: &ArgMatches, inputs: &Inputs<'_>) -> Result<Action, Fault> {
    let (command, matches) = matches
        .subcommand()
        .expect("invariant: clap requires a command");
    match command {
        "shell" => {
            let near = match words(matches, "command") {
                words if words.is_empty() => NearCommand::Shell(shell(inputs)),
                words => NearCommand::Command(words),
            };
            session(matches, inputs, None, near)
        }
        "run" => {
            let path = words(matches, "plan").pop().map(PathBuf::from);
            let path = path.expect("invariant: clap requires a plan");
            let file: File<NearTable> = PLAN.read(&path, inputs)?;
            let missing = || Fault::usage(path.display().to_string(), "missing field `near`");
            let near = NearCommand::Line(file.extra.ok_or_else(missing)?.command);
            session(matches, inputs, Some(file.layer), near)
        }
        "check" => {
            let (cells, loads) = (&flags::CHECK_CELLS, &flags::CHECK_LOADS);
            checking(matches, inputs, &flags::CHECK, cells, loads).map(Action::Check)
        }
        "artefact" => {
            let (cells, loads) = (&flags::ARTEFACT_CELLS, &flags::ARTEFACT_LOADS);
            checking(matches, inputs, &flags::ARTEFACT, cells, loads).map(Action::Artefact)
        }
        _ => calibration(matches, inputs),
    }
}

/// Runs the action. The exit code of a session is that of its command.
pub fn main(action: Action) -> ExitCode {
    lab::code(link::PROGRAM, run(action))
}

fn run(action: Action) -> anyhow::Result<u8> {
    let inside = match contain(NamespaceUser::Root)? {
        ForkResult::Inside(inside) => inside,
        ForkResult::Outside(contained) => {
            return Ok(match action {
                Action::Session(_) => contained.wait(ReceivedSignal::to_pass_on)?,
                Action::Calibrate(_) | Action::Check(_) | Action::Artefact(_) => {
                    contained.wait_or_kill()?
                }
            });
        }
    };
    match action {
        Action::Session(plan) => return link::session(&plan, inside),
        Action::Calibrate(plan) => link::calibrate(&plan)?,
        Action::Check(plan) => link::check(&plan)?,
        Action::Artefact(plan) => link::artefact(&plan)?,
    }
    Ok(0)
}

fn session(
    matches: &ArgMatches,
    inputs: &Inputs<'_>,
    file: Option<FileLayer>,
    near: NearCommand,
) -> Result<Action, Fault> {
    let layers = Layers::new(&flags::SESSION, matches, inputs).with_file(file);
    let coalesce = layers.get(&flags::COALESCE)?;
    if coalesce > MAX_COALESCE {
        let why = format!(
            "{coalesce:?} is more than {MAX_COALESCE:?}: it would add delay, which --delay sets"
        );
        return Err(layers.fault(&flags::COALESCE, why));
    }
    let directions = directions::both(&layers)?;
    let backend = layers.get(&flags::BACKEND)?;
    if backend == Backend::Kernel {
        let lost_later = layers.is_given(&flags::LOSS_AT) && directions[0].loss_at == LossAt::Exit;
        let useless: [(&dyn Flag, bool); 2] = [
            (&flags::COALESCE, layers.is_given(&flags::COALESCE)),
            (&flags::LOSS_AT, lost_later),
        ];
        for (option, given) in useless {
            if given {
                let why = "the kernel delivers packets one by one, and loses them before the queue: leave out this flag or --backend";
                return Err(layers.fault(option, why));
            }
        }
        for direction in &directions {
            KernelLink::check(direction).map_err(|why| {
                layers.fault(
                    &flags::BACKEND,
                    format!("{why}: leave out that setting or --backend"),
                )
            })?;
        }
    }
    Ok(Action::Session(Box::new(SessionOptions {
        links: directions,
        backend,
        seed: layers.get(&flags::SEED)?,
        coalesce,
        mtu: layers.get(&flags::MTU)?,
        offload: layers.get(&flags::OFFLOAD)?.unwrap_or(backend.offload()),
        near,
        far: layers.get(&flags::FAR)?,
        time_limit: layers.get(&flags::TIME_LIMIT)?,
        json: layers.get(&flags::REPORT)?,
    })))
}

fn calibration(matches: &ArgMatches, inputs: &Inputs<'_>) -> Result<Action, Fault> {
    let layers = Layers::new(&flags::CALIBRATE, matches, inputs);
    let rates = layers.get(&flags::RATES)?;
    let duration = duration(&layers, &flags::RATE_DURATION)?;
    let delay = layers.get(&flags::CALIBRATED_DELAY)?;
    if delay > DELAY_MAX {
        let why = format!("{delay:?} is more than {DELAY_MAX:?}");
        return Err(layers.fault(&flags::CALIBRATED_DELAY, why));
    }
    Ok(Action::Calibrate(CalibrationOptions {
        rates,
        delay,
        duration,
        json: layers.get(&flags::TABLE)?,
    }))
}

fn duration(layers: &Layers<'_>, option: &One<Duration>) -> Result<Duration, Fault> {
    let duration = layers.get(option)?;
    if !DURATIONS.contains(&duration) {
        let (least, most) = (DURATIONS.start(), DURATIONS.end());
        let why = format!("{duration:?} is not between {least:?} and {most:?}");
        return Err(layers.fault(option, why));
    }
    Ok(duration)
}

fn checking(
    matches: &ArgMatches,
    inputs: &Inputs<'_>,
    table: &'static Table,
    cells: &Many<CheckCell>,
    loads: &Many<Load>,
) -> Result<CheckOptions, Fault> {
    let layers = Layers::new(table, matches, inputs);
    let duration = duration(&layers, &flags::DURATION)?;
    let mut cells = layers.get(cells)?;
    if cells.is_empty() {
        cells = link::ten();
    }
    Ok(CheckOptions {
        cells,
        loads: layers.get(loads)?,
        duration,
        runs: layers.get(&flags::RUNS)?,
        json: layers.get(&flags::TABLE)?,
    })
}

fn words(matches: &ArgMatches, name: &str) -> Vec<String> {
    let values = matches.get_many::<String>(name);
    values.into_iter().flatten().cloned().collect()
}

fn shell(inputs: &Inputs<'_>) -> String {
    let shell = inputs
        .variable("SHELL")
        .filter(|path| Path::new(path).is_absolute());
    shell.unwrap_or("/bin/sh").to_owned()
}
