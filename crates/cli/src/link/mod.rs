//! `quictun link`: an emulated link for any program.
//!
//! [`parse`] turns flags, variables and plan into what is to be done, [`main`] does it. The process splits in
//! two ([`quictun_sys::contain`]): the half that stays outside only waits and passes signals on, the half inside makes networks,
//! emulator and commands, and takes all of them with it when it ends.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::ArgMatches;
use quictun_emu::{KernelLink, LossUnit, Offload, Plan};
use quictun_link::{LinkConfig, LossAt};
use quictun_sys::{Came, Identity, Inside, Side, contain};
use rustix::process::Signal;

use crate::exit::{self, Fault};
use crate::inputs::Inputs;
use crate::layers::{FileLayer, Layers};
use crate::options::{self, Section};
use plan_file::PlanFile;

mod artefact;
mod backend;
mod bulk;
mod calibrate;
mod check;
pub mod flags;
mod plan_file;
mod report;
pub(crate) mod session;
mod ways;

pub use backend::Backend;
pub use check::{CheckCell, Load};

const PROGRAM: &str = "quictun link";

/// Longest coalescing window: beyond it the emulator would make delay of its own.
const MAX_COALESCE: Duration = Duration::from_millis(10);

/// Coalescing of measurements: as a network card with its interrupt moderation.
const COALESCE: Duration = Duration::from_micros(50);

/// What to do.
#[derive(Debug)]
pub enum Action {
    /// Run a command behind a link.
    Session(Box<Session>),
    /// Find out what this machine can do.
    Calibrate(Calibration),
    /// Compare virtual and real time.
    Check(Checking),
    /// Compare loss of packets with loss of super-packets.
    Artefact(Checking),
}

/// A command behind a link.
#[derive(Clone, Debug)]
pub struct Session {
    /// From near to far, and back.
    pub ways: [LinkConfig; 2],
    /// Who emulates it.
    pub backend: Backend,
    /// Decides what is lost.
    pub seed: u64,
    /// Wire time within which packets are delivered together.
    pub coalesce: Duration,
    /// Longest packet.
    pub mtu: u32,
    /// Who cuts streams into packets.
    pub offload: Offload,
    /// What runs at the near side.
    pub near: Near,
    /// What runs at the far side, if anything, for `sh -c`.
    pub far: Option<String>,
    /// When everything ends at the latest.
    pub time_limit: Option<Duration>,
    /// Where to write the report.
    pub json: Option<PathBuf>,
}

/// What runs at the near side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Near {
    /// The user's shell.
    Shell(String),
    /// A program and its arguments.
    Command(Vec<String>),
    /// A line for `sh -c`.
    Line(String),
}

/// What to try.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// Bytes per second.
    pub rates: Vec<u64>,
    /// One way.
    pub delay: Duration,
    /// For each rate.
    pub duration: Duration,
    /// Where to write the table.
    pub json: Option<PathBuf>,
}

/// What to compare.
#[derive(Clone, Debug)]
pub struct Checking {
    /// The links.
    pub cells: Vec<CheckCell>,
    /// What crosses each.
    pub loads: Vec<Load>,
    /// What counts of each run.
    pub duration: Duration,
    /// Runs of each, of which the median counts; each has a seed of its own.
    pub runs: u32,
    /// Where to write the table.
    pub json: Option<PathBuf>,
}

/// Reads what follows `quictun link`.
pub fn parse(matches: &ArgMatches, inputs: &Inputs<'_>) -> Result<Action, Fault> {
    let (command, matches) = matches
        .subcommand()
        .expect("invariant: clap requires a command");
    match command {
        "shell" => {
            let near = match words(matches, "command") {
                words if words.is_empty() => Near::Shell(shell(inputs)),
                words => Near::Command(words),
            };
            session(matches, inputs, None, near)
        }
        "run" => {
            let path = words(matches, "plan").pop().map(PathBuf::from);
            let path = path.expect("invariant: clap requires a plan");
            let plan = PlanFile::read(&path, inputs)?;
            let layer = plan.layer(&path)?;
            session(matches, inputs, Some(layer), Near::Line(plan.near.command))
        }
        "check" => checking(matches, inputs, flags::CHECK).map(Action::Check),
        "artefact" => checking(matches, inputs, flags::ARTEFACT).map(Action::Artefact),
        _ => calibration(matches, inputs),
    }
}

/// Does it, and ends with the exit code of the command.
pub fn main(action: Action) -> ExitCode {
    let inside = match contain(Identity::Root) {
        Ok(Side::Inside(inside)) => inside,
        Ok(Side::Outside(contained)) => {
            let code = match action {
                Action::Session(_) => contained.wait(relay),
                Action::Calibrate(_) | Action::Check(_) | Action::Artefact(_) => {
                    contained.wait_or_kill()
                }
            };
            return code.map_or_else(
                |error| exit::report(PROGRAM, Err(error.into())).into(),
                ExitCode::from,
            );
        }
        Err(error) => return exit::report(PROGRAM, Err(error.into())).into(),
    };
    match act(action, inside) {
        Ok(code) => ExitCode::from(code),
        Err(error) => exit::report(PROGRAM, Err(error)).into(),
    }
}

fn act(action: Action, inside: Inside) -> anyhow::Result<u8> {
    match action {
        Action::Session(plan) => session::run(&plan, inside),
        Action::Calibrate(plan) => calibrate::run(&plan, inside).map(|()| 0),
        Action::Check(plan) => check::run(&plan, inside).map(|()| 0),
        Action::Artefact(plan) => artefact::run(&plan, inside).map(|()| 0),
    }
}

fn emulation(plan: &Session) -> Plan {
    let [up, down] = plan.ways.clone();
    Plan {
        up,
        down,
        seed: plan.seed,
        coalesce: plan.coalesce,
        loss_unit: LossUnit::Segment,
    }
}

/// The terminal's Ctrl-C reaches the command itself, which may have its own idea of it.
pub(crate) fn relay(came: Came) -> Option<Signal> {
    let interrupt = came.by_terminal && matches!(came.signal, Signal::INT | Signal::QUIT);
    (!interrupt).then_some(came.signal)
}

fn session(
    matches: &ArgMatches,
    inputs: &Inputs<'_>,
    file: Option<FileLayer>,
    near: Near,
) -> Result<Action, Fault> {
    let given = options::given(matches, flags::SESSION);
    let layers = Layers::new(flags::SESSION, given, inputs, flags::PREFIX).with_file(file);
    let coalesce = layers.value("coalesce", ways::time)?;
    if coalesce > MAX_COALESCE {
        let why = format!(
            "{coalesce:?} is more than {MAX_COALESCE:?}: it would be delay, and the link has its own"
        );
        return Err(layers.fault("coalesce", why));
    }
    let offload = [
        ("full", Offload::Full),
        ("receive", Offload::Receive),
        ("none", Offload::None),
    ];
    let ways = ways::both(&layers)?;
    let backend = [("emulator", Backend::Emulator), ("kernel", Backend::Kernel)];
    let backend = layers.choice("backend", &backend)?;
    if backend == Backend::Kernel {
        let lost_later = layers.is_given("loss-at") && ways[0].loss_at == LossAt::Exit;
        for (name, given) in [
            ("coalesce", layers.is_given("coalesce")),
            ("loss-at", lost_later),
        ] {
            if given {
                let why = "the kernel delivers packets as they come, and loses them before the queue: leave it out, or --backend";
                return Err(layers.fault(name, why));
            }
        }
        for way in &ways {
            KernelLink::check(way).map_err(|why| {
                layers.fault("backend", format!("{why}: leave that out, or --backend"))
            })?;
        }
    }
    let offload = if layers.is_given("offload") {
        layers.choice("offload", &offload)?
    } else {
        backend.offload()
    };
    Ok(Action::Session(Box::new(Session {
        ways,
        backend,
        seed: layers.number("seed", 0..=u64::MAX)?,
        coalesce,
        mtu: ways::mtu(&layers)?,
        offload,
        near,
        far: layers.text("far"),
        time_limit: layers.optional("time-limit", ways::time)?,
        json: layers.text("json").map(PathBuf::from),
    })))
}

fn calibration(matches: &ArgMatches, inputs: &Inputs<'_>) -> Result<Action, Fault> {
    let given = options::given(matches, flags::CALIBRATE);
    let layers = Layers::new(flags::CALIBRATE, given, inputs, flags::PREFIX);
    let rates = layers.all("rates", ways::rate)?;
    let duration: Duration = layers.value("duration", ways::time)?;
    if !calibrate::DURATIONS.contains(&duration) {
        let (least, most) = (calibrate::DURATIONS.start(), calibrate::DURATIONS.end());
        let why = format!("{duration:?} is not between {least:?} and {most:?}");
        return Err(layers.fault("duration", why));
    }
    let delay = layers.value("delay", ways::time)?;
    if delay > calibrate::MAX_DELAY {
        let why = format!("{delay:?} is more than {:?}", calibrate::MAX_DELAY);
        return Err(layers.fault("delay", why));
    }
    Ok(Action::Calibrate(Calibration {
        rates,
        delay,
        duration,
        json: layers.text("json").map(PathBuf::from),
    }))
}

fn checking(
    matches: &ArgMatches,
    inputs: &Inputs<'_>,
    sections: &'static [&'static Section],
) -> Result<Checking, Fault> {
    let given = options::given(matches, sections);
    let layers = Layers::new(sections, given, inputs, flags::PREFIX);
    let duration: Duration = layers.value("duration", ways::time)?;
    if !calibrate::DURATIONS.contains(&duration) {
        let (least, most) = (calibrate::DURATIONS.start(), calibrate::DURATIONS.end());
        let why = format!("{duration:?} is not between {least:?} and {most:?}");
        return Err(layers.fault("duration", why));
    }
    let mut cells: Vec<CheckCell> = layers.all("cells", str::parse)?;
    if cells.is_empty() {
        cells = check::ten();
    }
    Ok(Checking {
        cells,
        loads: layers.all("loads", |word| {
            let known = [Load::Tunnel, Load::Cubic];
            let found = known.into_iter().find(|load| load.word() == word);
            found.ok_or_else(|| format!("`{word}` is neither tunnel nor cubic"))
        })?,
        duration,
        runs: layers.number("runs", 1..=99)?,
        json: layers.text("json").map(PathBuf::from),
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
