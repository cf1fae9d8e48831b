//! `quictun link`: an emulated link for any program.
//!
//! [`parse`] turns flags, variables and plan into what is to be done, [`main`] does it. The process splits in
//! two ([`quictun_sys::contain`]): the half that stays outside only waits and passes signals on, the half inside makes networks,
//! emulator and commands, and takes all of them with it when it ends.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::ArgMatches;
use quictun_emu::{KernelLink, Offload};
use quictun_lab_run::link::{
    self, Backend, Calibration, Checking, DELAY_MAX, DURATIONS, Load, Near, Session,
};
use quictun_link::LossAt;
use quictun_sys::{Came, Identity, Side, contain};

use crate::exit;
use crate::lab::told;
use plan_file::PlanFile;
use quictun_args::fault::Fault;
use quictun_args::inputs::Inputs;
use quictun_args::layers::{FileLayer, Layers};
use quictun_args::options::{self, Section};

pub mod flags;
mod plan_file;
mod ways;

const PROGRAM: &str = link::PROGRAM;

/// Longest coalescing window: beyond it the emulator would make delay of its own.
const MAX_COALESCE: Duration = Duration::from_millis(10);

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
                Action::Session(_) => contained.wait(Came::to_pass_on),
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
    let code = match action {
        Action::Session(plan) => link::session(&plan, inside),
        Action::Calibrate(plan) => link::calibrate(&plan).map(|()| 0),
        Action::Check(plan) => link::check(&plan).map(|()| 0),
        Action::Artefact(plan) => link::artefact(&plan).map(|()| 0),
    };
    code.map_or_else(
        |error| exit::report(PROGRAM, Err(told(error))).into(),
        ExitCode::from,
    )
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
    if !DURATIONS.contains(&duration) {
        let (least, most) = (DURATIONS.start(), DURATIONS.end());
        let why = format!("{duration:?} is not between {least:?} and {most:?}");
        return Err(layers.fault("duration", why));
    }
    let delay = layers.value("delay", ways::time)?;
    if delay > DELAY_MAX {
        let why = format!("{delay:?} is more than {DELAY_MAX:?}");
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
    if !DURATIONS.contains(&duration) {
        let (least, most) = (DURATIONS.start(), DURATIONS.end());
        let why = format!("{duration:?} is not between {least:?} and {most:?}");
        return Err(layers.fault("duration", why));
    }
    let mut cells = layers.all("cells", ways::check_cell)?;
    if cells.is_empty() {
        cells = link::ten();
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
