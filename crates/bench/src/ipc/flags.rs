//! The command line of `quictun bench ipc`.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command};
use quictun_ipc::WaitPolicy;

use crate::flags::{
    InvalidHelperFlag, count_of, counts_of, list, number, number_of, numbers, svg, svg_of, switch,
    words_of,
};
use crate::kind::Kind;
use crate::words::words;

pub(crate) const PROGRAM: &str = "quictun bench ipc";

const PEER: &str = "peer";

words! {
    /// A part of the benchmark that can be measured separately.
    Section {
        /// Synchronous calls as a baseline.
        Baselines = "baselines",
        /// Calls at several numbers of calls in flight.
        Calls = "calls",
        /// Calls that give the server work to do.
        Load = "load",
        /// Calls under each wait policy.
        Modes = "modes",
        /// Calls that carry a payload.
        Payload = "payload",
        /// System calls in batches.
        Syscalls = "syscalls",
        Idle = "idle",
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) sections: Vec<Section>,
    pub(crate) concurrency: Vec<usize>,
    pub(crate) policy: WaitPolicy,
    pub(crate) repeats: usize,
    pub(crate) run_ms: u64,
    pub(crate) idle_s: u64,
    pub(crate) json: bool,
    pub(crate) csv: bool,
    pub(crate) svg: Option<PathBuf>,
    pub(crate) force: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Invocation {
    Measure(Options),
    Serve(ServerOptions),
}

#[derive(Clone, Debug)]
pub(crate) struct ServerOptions {
    pub(crate) kind: Kind,
    pub(crate) cpu: usize,
    pub(crate) policy: WaitPolicy,
}

impl ServerOptions {
    fn parse(words: &[&str]) -> Option<Self> {
        let [kind, cpu, policy] = *words else {
            return None;
        };
        Some(Self {
            kind: Kind::find(kind)?,
            cpu: cpu.parse().ok()?,
            policy: policy_of(policy),
        })
    }
}

/// Returns the policy of this name, or the default policy for any other word.
fn policy_of(word: &str) -> WaitPolicy {
    let all = [WaitPolicy::Interrupt, WaitPolicy::Polling];
    all.into_iter()
        .find(|policy| policy.word() == word)
        .unwrap_or_default()
}

pub(crate) fn command() -> Command {
    Command::new("ipc")
        .about("Measure calls between two processes: asynchronous and synchronous, on one core and on two")
        .after_help(include_str!("help.txt"))
        .arg(list("only", "Measure only these parts; unset: all").value_parser(Section::ALL.map(Section::word)))
        .arg(numbers(
            "concurrency",
            "1,2,4,8,16,32,64,128,512",
            1..=4096,
            "Numbers of concurrent calls",
        ))
        .arg(
            Arg::new("policy")
                .long("policy")
                .value_name("POLICY")
                .value_parser(["interrupt", "polling", "hybrid"])
                .default_value("hybrid")
                .help("Wait policy of both sides when idle"),
        )
        .arg(number("repeats", "5", 1..=99, "Runs of each measurement; the result is the median"))
        .arg(number("run-ms", "200", 1..=10_000, "Duration of each run, milliseconds"))
        .arg(number("idle-s", "5", 1..=3600, "Duration of the idle measurement, seconds"))
        .arg(switch("json", "Print one JSON object"))
        .arg(switch("csv", "Print comma-separated values").conflicts_with("json"))
        .arg(svg("Draw the figure into FILE"))
        .arg(
            Arg::new(PEER)
                .long(PEER)
                .num_args(3)
                .value_names(["KIND", "CPU", "POLICY"])
                .hide(true)
                .help("Act as the server; only `quictun bench ipc` itself uses this"),
        )
        .arg(switch("force", "Measure even if the machine is busy, and note that in the result"))
}

pub(crate) fn parse(matches: &ArgMatches) -> Result<Invocation, InvalidHelperFlag> {
    if let Some(words) = words_of(matches, PEER) {
        return ServerOptions::parse(&words)
            .map(Invocation::Serve)
            .ok_or(InvalidHelperFlag {
                flag: "--peer",
                program: PROGRAM,
            });
    }
    let policy = matches
        .get_one::<String>("policy")
        .expect("invariant: the option has a default");
    let only = words_of(matches, "only");
    let only = only.map(|only| {
        only.into_iter()
            .filter_map(Section::find)
            .collect::<Vec<_>>()
    });
    let is_wanted = |section: &Section| only.as_ref().is_none_or(|only| only.contains(section));
    Ok(Invocation::Measure(Options {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn options(line: &str) -> Options {
        let words = std::iter::once("ipc").chain(line.split_whitespace());
        let matches = command().try_get_matches_from(words).expect("valid flags");
        match parse(&matches) {
            Ok(Invocation::Measure(options)) => options,
            other => panic!("{line}: not a measurement: {other:?}"),
        }
    }

    #[test]
    fn the_defaults_are_the_published_concurrencies_in_five_runs() {
        let options = options("");
        assert_eq!(options.concurrency, [1, 2, 4, 8, 16, 32, 64, 128, 512]);
        assert_eq!((options.repeats, options.run_ms), (5, 200));
        assert_eq!(options.policy, WaitPolicy::Hybrid);
        assert_eq!((options.sections.len(), options.idle_s), (7, 5));
        assert!(!options.force && !options.json && !options.csv && options.svg.is_none());
    }

    #[test]
    fn every_flag_has_an_effect() {
        let line = "--concurrency 3,7 --policy polling --repeats 2 --run-ms 10 --only idle,payload --idle-s 60 --csv --svg f.svg --force";
        let options = options(line);
        assert_eq!(options.concurrency, [3, 7]);
        assert_eq!((options.repeats, options.run_ms), (2, 10));
        assert_eq!(options.policy, WaitPolicy::Polling);
        assert_eq!(options.sections, [Section::Payload, Section::Idle]);
        assert_eq!(options.idle_s, 60);
        assert!(options.force && options.csv && !options.json);
        assert_eq!(options.svg.as_deref(), Some(std::path::Path::new("f.svg")));
    }
}
