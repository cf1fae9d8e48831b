//! `quictun forbidden`: tries what a confined process must not be able to do, and prints what came of it.
//!
//! A hidden command, for the tests and for whoever wants to see it on a kernel of theirs.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command};
use quictun_trust::confinement;

use crate::exit;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forbidden {
    /// A directory that the process could write to if it were not confined.
    outside: PathBuf,
    confine: bool,
}

pub(crate) fn command() -> Command {
    Command::new("forbidden")
        .about("Try what a confined process must not be able to do")
        .hide(true)
        .arg(
            Arg::new("outside")
                .long("outside")
                .value_name("DIR")
                .default_value("/tmp")
                .help("A directory to write to"),
        )
        .arg(
            Arg::new("no-confine")
                .long("no-confine")
                .action(ArgAction::SetTrue)
                .help("Try it without confinement"),
        )
}

pub(crate) fn parse(matches: &ArgMatches) -> Forbidden {
    let outside = matches.get_one::<String>("outside");
    Forbidden {
        outside: outside.map(PathBuf::from).unwrap_or_default(),
        confine: !matches.get_flag("no-confine"),
    }
}

/// One line for each attempt; `refused` or `possible` comes first.
pub(crate) fn main(plan: &Forbidden) -> anyhow::Result<()> {
    let attempts = confinement::attempts(&plan.outside, plan.confine);
    let mut text = String::new();
    for attempt in &attempts {
        let verdict = if attempt.is_refused() {
            "refused"
        } else {
            "possible"
        };
        let answer = match &attempt.outcome {
            Ok(()) => "done".to_owned(),
            Err(error) => error.to_string(),
        };
        writeln!(text, "{verdict}  {}: {answer}", attempt.name)?;
    }
    exit::print(&text)
}
