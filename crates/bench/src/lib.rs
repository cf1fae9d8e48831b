//! `quictun bench`: what this product's parts cost on this machine.
//!
//! `quictun bench netstack` measures the user-space network stack ([`netstack`]).
//! `quictun bench ipc` measures calls between two processes, asynchronous and synchronous, on one core and on two, and shows
//! them beside the published figures. This process is the client, the same program once more the server ([`peer`]).

#![forbid(unsafe_code)]

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};
use quictun_ipc::WaitPolicy;

mod asynchronous;
mod chart;
mod extras;
mod idle;
mod machine;
pub mod netstack;
mod payload;
mod peer;
mod plot;
mod published;
mod report;
mod run;
mod synchronous;
mod syscalls;

/// What to measure, or what to be for who measures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Everything.
    Ipc(Options),
    /// The network stack.
    Netstack(netstack::Action),
    /// The server of a measurement.
    Peer(peer::Part),
}

/// What can be measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// The synchronous baselines.
    Baselines,
    /// Calls by how many are under way.
    Calls,
    /// Calls that make the server work.
    Load,
    /// Ways to wait.
    Modes,
    /// Calls that carry something.
    Payload,
    /// System calls in batches.
    Syscalls,
    /// Nothing at all.
    Idle,
}

impl Action {
    /// The command that errors are reported for.
    pub fn program(&self) -> &'static str {
        match self {
            Self::Ipc(_) | Self::Peer(_) => "quictun bench ipc",
            Self::Netstack(_) => "quictun bench netstack",
        }
    }
}

impl Section {
    const ALL: [Self; 7] = [
        Self::Baselines,
        Self::Calls,
        Self::Load,
        Self::Modes,
        Self::Payload,
        Self::Syscalls,
        Self::Idle,
    ];

    /// In the words of the command line.
    fn word(self) -> &'static str {
        match self {
            Self::Baselines => "baselines",
            Self::Calls => "calls",
            Self::Load => "load",
            Self::Modes => "modes",
            Self::Payload => "payload",
            Self::Syscalls => "syscalls",
            Self::Idle => "idle",
        }
    }
}

/// How to measure and to show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// What to measure.
    pub sections: Vec<Section>,
    /// Calls under way at a time.
    pub concurrency: Vec<usize>,
    /// How both sides wait.
    pub policy: WaitPolicy,
    /// Runs of each, of which the median counts.
    pub repeats: usize,
    /// Time of each run.
    pub run_ms: u64,
    /// Seconds without anything to do.
    pub idle_s: u64,
    /// Print JSON.
    pub json: bool,
    /// Print CSV.
    pub csv: bool,
    /// Where to draw the figure.
    pub svg: Option<PathBuf>,
    /// Also on a machine that is busy.
    pub force: bool,
}

/// A flag for helper processes holds words that the measurement itself does not use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is for `{program}` itself: run that without it")]
pub struct OnlyForItself {
    /// The flag, with its dashes.
    pub flag: &'static str,
    /// The command that starts the helper process.
    pub program: &'static str,
}

/// The command line.
pub fn command() -> Command {
    Command::new("bench")
        .about("Measure what parts of this program cost on this machine")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommand(ipc())
        .subcommand(netstack::command())
}

fn ipc() -> Command {
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .action(ArgAction::SetTrue)
            .help(help)
    };
    let number = |name: &'static str,
                  default: &'static str,
                  range: std::ops::RangeInclusive<u64>,
                  help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("N")
            .value_parser(clap::value_parser!(u64).range(range))
            .default_value(default)
            .help(help)
    };
    Command::new("ipc")
        .about("Measure calls between two processes: asynchronous and synchronous, on one core and on two")
        .after_help(include_str!("ipc_help.txt"))
        .arg(
            Arg::new("only")
                .long("only")
                .value_name("LIST")
                .value_delimiter(',')
                .value_parser(Section::ALL.map(Section::word))
                .help("Measure only these, not all"),
        )
        .arg(
            Arg::new("concurrency")
                .long("concurrency")
                .value_name("LIST")
                .value_delimiter(',')
                .value_parser(clap::value_parser!(u64).range(1..=4096))
                .default_value("1,2,4,8,16,32,64,128,512")
                .help("Calls under way at a time"),
        )
        .arg(
            Arg::new("policy")
                .long("policy")
                .value_name("POLICY")
                .value_parser(["interrupt", "polling", "hybrid"])
                .default_value("hybrid")
                .help("What both sides do when there is nothing to do"),
        )
        .arg(number("repeats", "5", 1..=99, "Runs of each, of which the median counts"))
        .arg(number("run-ms", "200", 1..=10_000, "Milliseconds of each run"))
        .arg(number("idle-s", "5", 1..=3600, "Seconds in which both sides have nothing to do"))
        .arg(flag("json", "Print one JSON object"))
        .arg(flag("csv", "Print comma-separated values").conflicts_with("json"))
        .arg(
            Arg::new("svg")
                .long("svg")
                .value_name("FILE")
                .value_hint(ValueHint::FilePath)
                .help("Draw the figure into this file"),
        )
        .arg(peer::arg())
        .arg(flag("force", "Measure although the machine is busy, and say so in the result"))
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
    if name == "netstack" {
        return netstack::parse(matches).map(Action::Netstack);
    }
    if let Some(words) = matches.get_many::<String>(peer::FLAG) {
        let words: Vec<&str> = words.map(String::as_str).collect();
        return peer::parse(&words).map(Action::Peer);
    }
    let number = |name| {
        *matches
            .get_one::<u64>(name)
            .expect("invariant: it has a default")
    };
    let small = |number: u64| usize::try_from(number).expect("invariant: clap has bounded it");
    let concurrency = matches.get_many::<u64>("concurrency").into_iter().flatten();
    let policy = matches
        .get_one::<String>("policy")
        .expect("invariant: it has a default");
    let only: Vec<&String> = matches.get_many("only").into_iter().flatten().collect();
    let is_wanted =
        |section: &Section| only.is_empty() || only.iter().any(|word| *word == section.word());
    Ok(Action::Ipc(Options {
        sections: Section::ALL.into_iter().filter(is_wanted).collect(),
        concurrency: concurrency.copied().map(small).collect(),
        policy: policy_of(policy),
        repeats: small(number("repeats")),
        run_ms: number("run-ms"),
        idle_s: number("idle-s"),
        json: matches.get_flag("json"),
        csv: matches.get_flag("csv"),
        svg: matches.get_one::<String>("svg").map(PathBuf::from),
        force: matches.get_flag("force"),
    }))
}

/// Measures, or serves a measurement until it ends. Returns what to print; `say` takes each line about the progress.
///
/// # Errors
///
/// [`ContainError`](quictun_sys::ContainError) where a network namespace is needed and forbidden; otherwise what kept it
/// from measuring.
pub fn run(action: &Action, say: &dyn Fn(&str)) -> anyhow::Result<String> {
    match action {
        Action::Ipc(options) => measure(options, say),
        Action::Netstack(action) => netstack::run(action, say),
        Action::Peer(part) => peer::run(part).map(|()| String::new()),
    }
}

fn measure(options: &Options, say: &dyn Fn(&str)) -> anyhow::Result<String> {
    let results = run::all(options, say)?;
    if let Some(path) = &options.svg {
        std::fs::write(path, chart::draw(&results))
            .with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(if options.json {
        report::json(&results)
    } else if options.csv {
        report::csv(&results)
    } else {
        report::table(&results)
    })
}

fn policy_of(word: &str) -> WaitPolicy {
    let all = [WaitPolicy::Interrupt, WaitPolicy::Polling];
    all.into_iter()
        .find(|policy| policy.word() == word)
        .unwrap_or_default()
}
