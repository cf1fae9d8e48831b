//! The command line of `quictun bench netstack`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgMatches, Command};

use super::calls::{Grid, Mode, Polling, Setup, WireKind};
use crate::flags::{
    InvalidHelperFlag, count_of, counts_of, list, number, number_of, numbers, svg, svg_of, switch,
    words_of,
};

pub(crate) const PROGRAM: &str = "quictun bench netstack";

const BULK: &str = "bulk";

const CROWD: &str = "crowd";

/// Maximum flows of a crowd. For more of them, the addresses would not have enough ports.
const CROWD_MAX: u64 = 20_000;

const SERVE: &str = "serve";

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) bulk: bool,
    pub(crate) grid: Grid,
    /// Number of flows of the crowd; 0 means that it is not measured.
    pub(crate) crowd: usize,
    pub(crate) flows: Vec<usize>,
    pub(crate) repeats: usize,
    pub(crate) run: Duration,
    pub(crate) json: bool,
    pub(crate) svg: Option<PathBuf>,
    pub(crate) force: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Invocation {
    Measure(Options),
    /// Act as the process with the stack, on this core.
    Serve(Setup, usize),
}

pub(crate) fn command() -> Command {
    let modes = Mode::ALL.map(Mode::word);
    Command::new("netstack")
        .about("Measure the user-space TCP stack: throughput and delay through a TUN device, and applications that reach it through calls")
        .after_help(include_str!("help.txt"))
        .arg(
            list("only", "Parts to measure")
                .default_value("bulk,crowd,read,write,call")
                .value_parser([&[BULK, CROWD][..], &modes].concat()),
        )
        .arg(number(CROWD, "10000", 1..=CROWD_MAX, "Concurrent flows, most of them idle"))
        .arg(numbers("flows", "1,8", 1..=64, "Numbers of concurrent bulk flows"))
        .arg(numbers("connections", "1,2,4,8,16,32", 1..=64, "Numbers of concurrent connections of an application"))
        .arg(
            list("wire", "Wire below the stack of an application")
                .default_value("memory,tun")
                .value_parser(WireKind::ALL.map(WireKind::word)),
        )
        .arg(
            list("poll", "When an application's packets are sent")
                .default_value("each-send,batch")
                .value_parser(Polling::ALL.map(Polling::word)),
        )
        .arg(numbers("bytes", "1", 1..=64, "Sizes of an application's messages, bytes"))
        .arg(number("repeats", "3", 1..=99, "Runs of each measurement; the result is the median"))
        .arg(number(
            "run-ms",
            "1000",
            1..=60_000,
            "Duration of each run, milliseconds; a quarter of it for read, write and call",
        ))
        .arg(switch("json", "Print one JSON object"))
        .arg(
            svg("Draw the results of applications into FILE"),
        )
        .arg(
            Arg::new(SERVE)
                .long(SERVE)
                .num_args(8)
                .hide(true)
                .help("Act as the process with the stack; only `quictun bench netstack` itself uses this"),
        )
        .arg(switch(
            "force",
            "Measure even if the machine is busy, and note that in the result",
        ))
}

pub(crate) fn parse(matches: &ArgMatches) -> Result<Invocation, InvalidHelperFlag> {
    if let Some(words) = words_of(matches, SERVE) {
        let part = words.split_first().and_then(|(core, setup)| {
            let setup = Setup::parse(setup)?;
            Some(Invocation::Serve(setup, core.parse().ok()?))
        });
        return part.ok_or(InvalidHelperFlag {
            flag: "--serve",
            program: PROGRAM,
        });
    }
    let says =
        |name: &str, word: &str| words_of(matches, name).is_some_and(|words| words.contains(&word));
    Ok(Invocation::Measure(Options {
        bulk: says("only", BULK),
        crowd: if says("only", CROWD) {
            count_of(matches, CROWD)
        } else {
            0
        },
        grid: Grid {
            modes: wanted(Mode::ALL, |mode| says("only", mode.word())),
            wires: wanted(WireKind::ALL, |wire| says("wire", wire.word())),
            pollings: wanted(Polling::ALL, |polling| says("poll", polling.word())),
            connections: counts_of(matches, "connections"),
            bytes: counts_of(matches, "bytes"),
        },
        flows: counts_of(matches, "flows"),
        repeats: count_of(matches, "repeats"),
        run: Duration::from_millis(number_of(matches, "run-ms")),
        json: matches.get_flag("json"),
        svg: svg_of(matches),
        force: matches.get_flag("force"),
    }))
}

fn wanted<T: Copy, const N: usize>(all: [T; N], is_wanted: impl Fn(T) -> bool) -> Vec<T> {
    all.into_iter().filter(|one| is_wanted(*one)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(line: &str) -> Options {
        let words = std::iter::once("netstack").chain(line.split_whitespace());
        let matches = command().try_get_matches_from(words).expect("valid flags");
        match parse(&matches) {
            Ok(Invocation::Measure(options)) => options,
            other => panic!("{line}: not a measurement: {other:?}"),
        }
    }

    #[test]
    fn the_defaults_are_the_published_connections_both_ways() {
        let options = options("");
        assert!(options.bulk && options.svg.is_none());
        assert_eq!(options.grid.modes, [Mode::Read, Mode::Write, Mode::Call]);
        assert_eq!(options.grid.connections, [1, 2, 4, 8, 16, 32]);
        assert_eq!(options.grid.wires, [WireKind::Memory, WireKind::Tun]);
        assert_eq!(options.grid.pollings, [Polling::EachSend, Polling::Batch]);
        assert_eq!(options.grid.bytes, [1]);
        assert_eq!(options.flows, [1, 8]);
    }

    #[test]
    fn flags_select_a_part_of_the_measurement() {
        let line = "--only call --wire tun --poll batch --connections 3 --bytes 1,64";
        let options = options(line);
        assert!(!options.bulk);
        assert_eq!(options.grid.modes, [Mode::Call]);
        assert_eq!(options.grid.connections, [3]);
        assert_eq!(options.grid.bytes, [1, 64]);
        assert_eq!(options.grid.wires, [WireKind::Tun]);
        assert_eq!(options.grid.pollings, [Polling::Batch]);
    }
}
