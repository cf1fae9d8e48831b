//! The flags and commands of `quictun lab`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Arg, Command, ValueHint};
use quictun_args::address::{Wildcard, parse_listen, parse_server_at};
use quictun_args::options;
use quictun_args::options::{InvalidValue, Many, Maybe, One, Section, Suggest, Switch, Table};
use quictun_args::values::{number, path, switch, text};
use quictun_lab::scenarios;
use quictun_tunnel::settings::HostPort;

const PREFIX: &str = "QUICTUN_LAB_";

/// Default port of an agent.
const AGENT_PORT: u16 = 7610;

pub(crate) static RUN: Table = Table {
    prefix: PREFIX,
    sections: &[
        &MEASUREMENT,
        &Section {
            heading: "Two machines",
            options: &[&REMOTE, &REMOTE_TOKEN_FILE],
        },
    ],
};

pub(crate) static CALIBRATE: Table = Table {
    prefix: PREFIX,
    sections: &[&MEASUREMENT],
};

pub(crate) static AGENT: Table = Table {
    prefix: PREFIX,
    sections: &[&Section {
        heading: "Agent",
        options: &[&LISTEN, &TOKEN_FILE],
    }],
};

pub(crate) static CROSSCHECK: Table = Table {
    prefix: PREFIX,
    sections: &[
        &MEASUREMENT,
        &Section {
            heading: "Other programs",
            options: &[&EMULATOR],
        },
    ],
};

static MEASUREMENT: Section = Section {
    heading: "Measurement",
    options: &[&QUICK, &REPS, &ONLY, &SEED, &OUT],
};

options! {
    pub(crate) REMOTE: Maybe<HostPort> = "remote" "HOST[:PORT]", by |text| parse_server_at(text, AGENT_PORT);
        "Measure over the real path to the agent at HOST, without an emulated link"
    pub(crate) REMOTE_TOKEN_FILE: Maybe<PathBuf> = "token-file" "FILE", by path;
        "File with the agent's token, 16 bytes or more"
    pub(crate) LISTEN: One<SocketAddr> = "listen" "ADDR", by |text| parse_listen(text, Wildcard::AsWritten), default "[::]:7610";
        "TCP address; measured programs use the next two ports, TCP and UDP"
    pub(crate) TOKEN_FILE: Maybe<PathBuf> = "token-file" "FILE", by path;
        "File with the token that clients must have, 16 bytes or more"
    pub(crate) EMULATOR: Maybe<String> = "emulator" "COMMAND", by text;
        "Also measure across the link of another emulator, started by COMMAND; see docs/scenarios.md"
    pub(crate) QUICK: Switch = "quick" "BOOL", by switch;
        "Fewer and shorter runs, as the scenario defines; takes minutes"
    pub(crate) REPS: Maybe<u32> = "reps" "N", by repetitions;
        "Repetitions of each cell; unset: as the scenario defines"
    pub(crate) ONLY: Many<String> = "only" "NAMES", by text;
        "Measure only these arms and cases, separated by commas; repeatable"
    pub(crate) SEED: One<u64> = "seed" "N", by |text| number(text, 0..=u64::MAX), default "1";
        "Seed for the order of runs and for the losses"
    pub(crate) OUT: Maybe<PathBuf> = "out" "DIR", by path;
        "Output directory, with a subdirectory per scenario if there are several; unset: lab-results/NAME-TIME"
}

fn repetitions(text: &str) -> Result<u32, InvalidValue> {
    let reps = text.parse().ok();
    reps.ok_or_else(|| format!("{text:?} is not a number of repetitions").into())
}

/// Returns the command `quictun lab` with its subcommands.
pub fn command() -> Command {
    Command::new("lab")
        .about("Run the published measurements or your own, and judge how reliable the results are")
        .after_help(include_str!("help.txt"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommands([
            Command::new("list").about("List the scenarios that come with the program"),
            Command::new("show")
                .about("Print a scenario, to read it or to base another on it")
                .arg(scenario()),
            RUN.add_to(
                Command::new("run")
                    .about("Measure scenarios one after the other, and write a report of each")
                    .after_help(include_str!("run_help.txt"))
                    .arg(scenario().num_args(1..)),
            ),
            Command::new("report")
                .about("Write the report of a run again from its raw data")
                .arg(dir("dir", "Directory of a run, with its run.json")),
            Command::new("compare")
                .about("Compare the measurements that two runs have in common")
                .after_help(include_str!("compare_help.txt"))
                .arg(dir("before", "Directory of the first run"))
                .arg(dir("after", "Directory of the second run")),
            CALIBRATE.add_to(Command::new("calibrate").about(
                "Measure how fast a link this machine can emulate: the scenario `capacity`",
            )),
            CROSSCHECK.add_to(Command::new("crosscheck").about(
                "Repeat measurements with another program, iperf3: the scenario `crosscheck`",
            )),
            AGENT.add_to(
                Command::new("agent")
                    .about("Serve as the far end of measurements over a real path")
                    .after_help(include_str!("agent_help.txt")),
            ),
        ])
}

fn scenario() -> Arg {
    Arg::new("scenario")
        .value_name("SCENARIO")
        .value_parser(Suggest(
            scenarios::ALL.iter().map(|(name, _)| *name).collect(),
        ))
        .hide_possible_values(true)
        .value_hint(ValueHint::FilePath)
        .required(true)
        .help("Name from `quictun lab list`, or a file whose name ends in .toml")
}

fn dir(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .value_name("DIR")
        .value_hint(ValueHint::DirPath)
        .required(true)
        .help(help)
}
