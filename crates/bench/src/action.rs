//! Benchmarks by name.

use anyhow::Result;
use clap::{ArgMatches, Command};

use crate::flags::OnlyForItself;
use crate::{ipc, netstack};

/// A benchmark, or a helper process of one.
#[derive(Clone, Debug)]
pub struct Action(Asked);

#[derive(Clone, Debug)]
enum Asked {
    Ipc(ipc::Asked),
    Netstack(netstack::Asked),
}

impl Action {
    /// The command that errors are reported for.
    pub fn program(&self) -> &'static str {
        match self.0 {
            Asked::Ipc(_) => ipc::PROGRAM,
            Asked::Netstack(_) => netstack::PROGRAM,
        }
    }
}

/// The command line.
pub fn command() -> Command {
    Command::new("bench")
        .about("Measure what parts of this program cost on this machine")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommand(ipc::command())
        .subcommand(netstack::command())
}

/// Reads what follows `quictun bench`.
///
/// # Errors
///
/// Words of a helper process that the measurement itself does not use.
pub fn parse(matches: &ArgMatches) -> Result<Action, OnlyForItself> {
    let (name, matches) = matches
        .subcommand()
        .expect("invariant: clap requires a command");
    let asked = match name {
        "netstack" => netstack::parse(matches).map(Asked::Netstack),
        _ => ipc::parse(matches).map(Asked::Ipc),
    };
    asked.map(Action)
}

/// Measures, or serves a measurement until it ends. Returns what to print; `say` takes each line about the progress.
///
/// # Errors
///
/// [`ContainError`](quictun_sys::ContainError) where a network namespace is needed and forbidden; otherwise what kept it
/// from measuring.
pub fn run(action: &Action, say: &dyn Fn(&str)) -> Result<String> {
    match &action.0 {
        Asked::Ipc(asked) => ipc::run(asked, say),
        Asked::Netstack(asked) => netstack::run(asked, say),
    }
}
