//! `quictun forbidden`: tries actions that confinement must prevent, and prints the outcome of each.
//!
//! This hidden command serves the tests, and users who want to check another kernel.

use std::fmt::Write as _;
use std::path::Path;

use clap::{Arg, ArgAction, Command};
use quictun_trust::confinement;

use crate::exit;

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

/// Prints one line for each attempt, which begins with `refused` or `possible`. `outside` is a directory that the
/// process could write to if it were not confined.
pub(crate) fn main(outside: &Path, confine: bool) -> anyhow::Result<()> {
    let mut text = String::new();
    for attempt in confinement::attempts(outside, confine) {
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
    Ok(exit::print(&text)?)
}
