//! Flags that several benchmarks share, and the values of flags that clap has checked.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::{Arg, ArgAction, ArgMatches, ValueHint};

const SVG: &str = "svg";

/// The flag for a helper process has arguments that the measurement itself never passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("only `{program}` itself may use this flag: run it without the flag")]
pub struct InvalidHelperFlag {
    /// The name of the flag, with its dashes.
    pub flag: &'static str,
    /// The command that starts the helper process.
    pub program: &'static str,
}

pub(crate) fn switch(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .action(ArgAction::SetTrue)
        .help(help)
}

pub(crate) fn number(
    name: &'static str,
    default: &'static str,
    range: RangeInclusive<u64>,
    help: &'static str,
) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name("N")
        .value_parser(clap::value_parser!(u64).range(range))
        .default_value(default)
        .help(help)
}

pub(crate) fn list(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name("LIST")
        .value_delimiter(',')
        .help(help)
}

pub(crate) fn numbers(
    name: &'static str,
    default: &'static str,
    range: RangeInclusive<u64>,
    help: &'static str,
) -> Arg {
    list(name, help)
        .default_value(default)
        .value_parser(clap::value_parser!(u64).range(range))
}

pub(crate) fn svg(help: &'static str) -> Arg {
    Arg::new(SVG)
        .long(SVG)
        .value_name("FILE")
        .value_hint(ValueHint::FilePath)
        .help(help)
}

pub(crate) fn number_of(matches: &ArgMatches, name: &str) -> u64 {
    *matches.get_one(name).expect("invariant: it has a default")
}

pub(crate) fn count_of(matches: &ArgMatches, name: &str) -> usize {
    small(number_of(matches, name))
}

pub(crate) fn counts_of(matches: &ArgMatches, name: &str) -> Vec<usize> {
    let all = matches.get_many::<u64>(name).into_iter().flatten();
    all.copied().map(small).collect()
}

/// Returns the words of a [`list`], or `None` if the flag was not given.
pub(crate) fn words_of<'a>(matches: &'a ArgMatches, name: &str) -> Option<Vec<&'a str>> {
    let words = matches.get_many::<String>(name)?;
    Some(words.map(String::as_str).collect())
}

pub(crate) fn svg_of(matches: &ArgMatches) -> Option<PathBuf> {
    matches.get_one::<String>(SVG).map(PathBuf::from)
}

fn small(number: u64) -> usize {
    usize::try_from(number).expect("invariant: clap limits values")
}

pub(crate) fn draw(path: Option<&Path>, svg: impl FnOnce() -> String) -> Result<()> {
    if let Some(path) = path {
        std::fs::write(path, svg()).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}
