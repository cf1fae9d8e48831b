//! `quictun lab`, from the command line to the exit code.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ArgMatches;
use quictun_args::fault::{Exit, Fault};
use quictun_args::inputs::Inputs;
use quictun_args::layers::Layers;
use quictun_args::options::{self, Table};
use quictun_args::terminal::print;
use quictun_lab::{Scenario, Schedule, Selection, SelectionError, scenarios, wrapped};
use quictun_sys::{ForkResult, NamespaceUser, ReceivedSignal, contain};

use crate::agent::{self, Agent};
use crate::processors::HostThreads;
use crate::remote::RemoteOptions;
use crate::run::{self, RunSettings};
use crate::{flags, past, progress};

/// The action that the command line asks for.
#[derive(Debug)]
pub enum Action {
    /// Print this text and end.
    Print(String),
    /// Measure these scenarios, one after the other.
    Run(Vec<RunSettings>),
    /// Write the report of a directory again.
    Report(PathBuf),
    /// Compare the runs of two directories.
    Compare([PathBuf; 2]),
    /// Serve as the far end of measurements.
    Agent(Agent),
}

/// Parses the arguments of `quictun lab`.
pub fn parse(matches: &ArgMatches, inputs: &Inputs<'_>) -> Result<Action, Fault> {
    let (command, matches) = matches
        .subcommand()
        .expect("invariant: clap requires a command");
    let text = |name: &str| {
        let value = matches.get_one::<String>(name);
        value.expect("invariant: clap requires it").clone()
    };
    match command {
        "list" => Ok(Action::Print(list(progress::list_width()))),
        "show" => source(&text("scenario"), inputs).map(Action::Print),
        "agent" => agent_of(matches, inputs).map(Action::Agent),
        "run" => {
            let names = matches.get_many::<String>("scenario");
            let names: Vec<&str> = names.into_iter().flatten().map(String::as_str).collect();
            measurings(matches, &flags::RUN, &names, inputs)
        }
        "calibrate" => measurings(matches, &flags::CALIBRATE, &["capacity"], inputs),
        "crosscheck" => measurings(matches, &flags::CROSSCHECK, &["crosscheck"], inputs),
        "report" => Ok(Action::Report(text("dir").into())),
        _ => Ok(Action::Compare([
            text("before").into(),
            text("after").into(),
        ])),
    }
}

/// Performs the action and returns the exit code.
///
/// # Errors
///
/// Returns [`Fault`] if the user can fix the problem. Otherwise returns the error that prevented the action.
pub fn run(action: Action) -> anyhow::Result<u8> {
    match action {
        Action::Print(text) => print(&text)?,
        Action::Report(dir) => past::report(&dir)?,
        Action::Compare(dirs) => past::compare(&dirs)?,
        Action::Agent(agent) => agent::run(&agent)?,
        Action::Run(measurings) => return measure(&measurings),
    }
    Ok(Exit::Ok as u8)
}

/// Measures each scenario and returns the worst of their exit codes. An interruption ends the remaining ones, too.
fn measure(measurings: &[RunSettings]) -> anyhow::Result<u8> {
    // Open these first: inside the container the kernel's threads are invisible.
    let threads = Arc::new(HostThreads::open());
    if measurings.iter().all(|one| one.remote.is_none())
        && let ForkResult::Outside(contained) = contain(NamespaceUser::Root)?
    {
        return Ok(contained.wait(ReceivedSignal::to_pass_on)?);
    }
    let mut worst = Exit::Ok;
    for measuring in measurings {
        match run::run(measuring, Arc::clone(&threads))? {
            Exit::Ok => {}
            Exit::Interrupted => return Ok(Exit::Interrupted as u8),
            exit => worst = exit,
        }
    }
    Ok(worst as u8)
}

/// Returns a line for each scenario. Titles that exceed the width of a terminal continue below their beginning.
fn list(columns: Option<usize>) -> String {
    let names = scenarios::ALL.iter().map(|(name, _)| name.len());
    let indent = names.max().unwrap_or(0) + 2;
    let room = columns.map_or(usize::MAX, |columns| columns.saturating_sub(indent));
    let line = |(name, text): &(&str, &str)| {
        let scenario = Scenario::parse(text).expect("invariant: a test parses all of them");
        let title = wrapped(&scenario.title, room).join(&format!("\n{:indent$}", ""));
        format!("{name:<indent$}{title}\n")
    };
    scenarios::ALL.iter().map(line).collect()
}

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

fn measurings(
    matches: &ArgMatches,
    table: &'static Table,
    names: &[&str],
    inputs: &Inputs<'_>,
) -> Result<Action, Fault> {
    let layers = Layers::new(table, matches, inputs);
    let mut measurings = Vec::new();
    for named in names {
        let mut one = measuring(&layers, named, inputs)?;
        if let [_, _, ..] = names {
            one.out = one.out.map(|dir| dir.join(&one.scenario.name));
        }
        measurings.push(one);
    }
    Ok(Action::Run(measurings))
}

fn measuring(layers: &Layers<'_>, named: &str, inputs: &Inputs<'_>) -> Result<RunSettings, Fault> {
    let mut text = source(named, inputs)?;
    let emulator = layers.get(&flags::EMULATOR)?;
    let remote = remote_of(layers)?;
    if let Some(command) = &emulator {
        text += &scenarios::other_emulator(command);
    }
    let scenario = Scenario::parse(&text).map_err(|why| Fault::usage(named, why))?;
    let selection = Selection {
        only: layers.get(&flags::ONLY)?,
        reps: layers.get(&flags::REPS)?,
        quick: layers.get(&flags::QUICK)?,
    };
    let seed = layers.get(&flags::SEED)?;
    let schedule = Schedule::new(&scenario, &selection, seed).map_err(|why| {
        if matches!(why, SelectionError::Reps(_)) {
            layers.fault(&flags::REPS, why)
        } else {
            layers.fault(&flags::ONLY, why)
        }
    })?;
    Ok(RunSettings {
        named: named.to_owned(),
        scenario,
        selection,
        seed,
        out: layers.get(&flags::OUT)?,
        schedule,
        emulator,
        remote,
    })
}

fn remote_of(layers: &Layers<'_>) -> Result<Option<RemoteOptions>, Fault> {
    let host = layers.get(&flags::REMOTE)?;
    let token_file = layers.get(&flags::REMOTE_TOKEN_FILE)?;
    match (host, token_file) {
        (Some(host), Some(token_file)) => Ok(Some(RemoteOptions { host, token_file })),
        (Some(_), None) => Err(
            Fault::usage("--remote", "needs the token that the agent knows")
                .next("--token-file FILE; `openssl rand -base64 32` makes one"),
        ),
        (None, Some(_)) => Err(Fault::usage("--token-file", "goes with --remote")),
        (None, None) => Ok(None),
    }
}

fn agent_of(matches: &ArgMatches, inputs: &Inputs<'_>) -> Result<Agent, Fault> {
    let layers = Layers::new(&flags::AGENT, matches, inputs);
    let Some(token_file) = layers.get(&flags::TOKEN_FILE)? else {
        return Err(
            Fault::usage("--token-file", "is missing: who may measure here?")
                .next("`openssl rand -base64 32 > FILE`, and the same file at the other end"),
        );
    };
    Ok(Agent {
        listen: layers.get(&flags::LISTEN)?,
        token_file,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_fits_a_terminal_and_otherwise_has_a_line_for_each_scenario() {
        let narrow = list(Some(80));
        assert!(
            narrow.lines().all(|line| line.chars().count() <= 80),
            "{narrow}"
        );
        let wide = list(None);
        assert_eq!(wide.lines().count(), scenarios::ALL.len());
        assert!(narrow.lines().count() > scenarios::ALL.len());
    }
}
