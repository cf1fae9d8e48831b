//! The command line of `quictun bench ipc`.

use clap::{Arg, ArgMatches, Command};

use super::action::Action;
use super::options::{Options, Part, Section, policy_of};
use crate::flags::{
    OnlyForItself, count_of, counts_of, list, number, number_of, numbers, svg, svg_of, switch,
    words_of,
};

pub(crate) const PROGRAM: &str = "quictun bench ipc";

/// The flag of the helper process.
const PEER: &str = "peer";

/// The command line.
pub(crate) fn command() -> Command {
    Command::new("ipc")
        .about("Measure calls between two processes: asynchronous and synchronous, on one core and on two")
        .after_help(include_str!("help.txt"))
        .arg(list("only", "Measure only these, not all").value_parser(Section::ALL.map(Section::word)))
        .arg(numbers(
            "concurrency",
            "1,2,4,8,16,32,64,128,512",
            1..=4096,
            "Calls under way at a time",
        ))
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
        .arg(switch("json", "Print one JSON object"))
        .arg(switch("csv", "Print comma-separated values").conflicts_with("json"))
        .arg(svg("Draw the figure into this file"))
        .arg(
            Arg::new(PEER)
                .long(PEER)
                .num_args(3)
                .value_names(["KIND", "CPU", "POLICY"])
                .hide(true)
                .help("Be the server, as `quictun bench ipc` itself asks for"),
        )
        .arg(switch("force", "Measure although the machine is busy, and say so in the result"))
}

/// Reads what follows `quictun bench ipc`.
pub(crate) fn parse(matches: &ArgMatches) -> Result<Action, OnlyForItself> {
    if let Some(words) = words_of(matches, PEER) {
        return Part::parse(&words).map(Action::Serve).ok_or(OnlyForItself {
            flag: "--peer",
            program: PROGRAM,
        });
    }
    let policy = matches
        .get_one::<String>("policy")
        .expect("invariant: it has a default");
    let only = words_of(matches, "only");
    let is_wanted = |section: &Section| {
        only.as_ref()
            .is_none_or(|only| only.contains(&section.word()))
    };
    Ok(Action::Measure(Options {
        sections: Section::ALL.into_iter().filter(is_wanted).collect(),
        concurrency: counts_of(matches, "concurrency"),
        policy: policy_of(policy),
        repeats: count_of(matches, "repeats"),
        run_ms: number_of(matches, "run-ms"),
        idle_s: number_of(matches, "idle-s"),
        json: matches.get_flag("json"),
        csv: matches.get_flag("csv"),
        svg: svg_of(matches),
        force: matches.get_flag("force"),
    }))
}
