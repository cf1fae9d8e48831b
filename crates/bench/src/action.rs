//! The choice of a benchmark by its name.

use anyhow::Result;
use clap::{ArgMatches, Command};

use crate::flags::InvalidHelperFlag;
use crate::{ipc, netstack};

/// A benchmark to run, or the role of a helper process in one.
#[derive(Clone, Debug)]
pub struct Action(Benchmark);

#[derive(Clone, Debug)]
enum Benchmark {
    Ipc(ipc::Invocation),
    Netstack(netstack::Invocation),
}

impl Action {
    /// Returns the command that error messages name.
    pub fn program(&self) -> &'static str {
        match self.0 {
            Benchmark::Ipc(_) => ipc::PROGRAM,
            Benchmark::Netstack(_) => netstack::PROGRAM,
        }
    }
}

/// Returns the definition of the command line of `quictun bench`.
pub fn command() -> Command {
    Command::new("bench")
        .about("Measure the cost of parts of this program on this machine")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommand(ipc::command())
        .subcommand(netstack::command())
}

/// Parses the arguments of `quictun bench`.
///
/// # Errors
///
/// Fails if the hidden flag of a helper process has arguments that the measurement itself never passes.
pub fn parse(matches: &ArgMatches) -> Result<Action, InvalidHelperFlag> {
    let (name, matches) = matches
        .subcommand()
        .expect("invariant: clap requires a command");
    let asked = match name {
        "netstack" => netstack::parse(matches).map(Benchmark::Netstack),
        _ => ipc::parse(matches).map(Benchmark::Ipc),
    };
    asked.map(Action)
}

/// Runs a measurement, or serves one until it ends. Returns the text to print. `say` receives each progress line.
///
/// # Errors
///
/// [`ContainError`](quictun_sys::ContainError) if a network namespace is needed and not permitted; otherwise the
/// failure of the measurement.
pub fn run(action: &Action, say: &dyn Fn(&str)) -> Result<String> {
    match &action.0 {
        Benchmark::Ipc(asked) => ipc::run(asked, say),
        Benchmark::Netstack(asked) => netstack::run(asked, say),
    }
}
