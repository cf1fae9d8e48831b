//! The command line of `quictun bench netstack`.

use std::time::Duration;

use clap::{Arg, ArgMatches, Command};

use super::action::Action;
use super::calls::{Mode, Polling, Setup, WireKind};
use super::options::Options;
use crate::flags::{
    OnlyForItself, count_of, counts_of, list, number, number_of, numbers, svg, svg_of, switch,
    words_of,
};

pub(crate) const PROGRAM: &str = "quictun bench netstack";

/// The word for bulk flows and echoes.
const BULK: &str = "bulk";

/// The word for many flows, and the name of how many.
const CROWD: &str = "crowd";

/// More, and their addresses would have no more ports.
const CROWD_MAX: u64 = 20_000;

/// For who starts the process with the stack.
const SERVE: &str = "serve";

/// The command line.
pub(crate) fn command() -> Command {
    let modes = Mode::ALL.map(Mode::word);
    Command::new("netstack")
        .about("Measure the user-space TCP stack: bulk and delay through a TUN device, and applications that reach it through calls")
        .after_help(include_str!("help.txt"))
        .arg(
            list("only", "Measure only these")
                .default_value("bulk,crowd,read,write,call")
                .value_parser([&[BULK, CROWD][..], &modes].concat()),
        )
        .arg(number(CROWD, "10000", 1..=CROWD_MAX, "Flows at a time, of which most are idle"))
        .arg(numbers("flows", "1,8", 1..=64, "Bulk flows at a time"))
        .arg(numbers("connections", "1,2,4,8,16,32", 1..=64, "Connections of an application at a time"))
        .arg(
            list("wire", "What is behind the stack of an application")
                .default_value("memory,tun")
                .value_parser(WireKind::ALL.map(WireKind::word)),
        )
        .arg(
            list("poll", "When packets of an application go out")
                .default_value("each-send,batch")
                .value_parser(Polling::ALL.map(Polling::word)),
        )
        .arg(numbers("bytes", "1", 1..=64, "Bytes of an application's messages"))
        .arg(number("repeats", "3", 1..=99, "Runs of each, of which the median counts"))
        .arg(number(
            "run-ms",
            "1000",
            1..=60_000,
            "Milliseconds of each run; a quarter of it where there are many",
        ))
        .arg(switch("json", "Print one JSON object"))
        .arg(
            svg("Draw what applications reach into this file"),
        )
        .arg(
            Arg::new(SERVE)
                .long(SERVE)
                .num_args(8)
                .hide(true)
                .help("Be the process with the stack, as `quictun bench netstack` itself asks for"),
        )
        .arg(switch(
            "force",
            "Measure although the machine is busy, and say so in the result",
        ))
}

/// Reads what follows `quictun bench netstack`.
pub(crate) fn parse(matches: &ArgMatches) -> Result<Action, OnlyForItself> {
    if let Some(words) = words_of(matches, SERVE) {
        let part = words.split_first().and_then(|(core, setup)| {
            Some(Action::Serve(Setup::parse(setup)?, core.parse().ok()?))
        });
        return part.ok_or(OnlyForItself {
            flag: "--serve",
            program: PROGRAM,
        });
    }
    let says =
        |name: &str, word: &str| words_of(matches, name).is_some_and(|words| words.contains(&word));
    Ok(Action::Measure(Options {
        bulk: says("only", BULK),
        crowd: if says("only", CROWD) {
            count_of(matches, CROWD)
        } else {
            0
        },
        modes: wanted(Mode::ALL, |mode| says("only", mode.word())),
        flows: counts_of(matches, "flows"),
        connections: counts_of(matches, "connections"),
        wires: wanted(WireKind::ALL, |wire| says("wire", wire.word())),
        pollings: wanted(Polling::ALL, |polling| says("poll", polling.word())),
        bytes: counts_of(matches, "bytes"),
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
