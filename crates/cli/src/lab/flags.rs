//! The flags and commands of `quictun lab`.

use clap::{Arg, Command, ValueHint};

use quictun_args::options::{self, Opt, Section};

/// Prefix of the environment variables.
pub const PREFIX: &str = "QUICTUN_LAB_";

/// Flags of `quictun lab run`.
pub static RUN: &[&Section] = &[&MEASUREMENT, &PATH];

/// Flags of `quictun lab calibrate`.
pub static CALIBRATE: &[&Section] = &[&MEASUREMENT];

/// Flags of `quictun lab agent`.
pub static AGENT: &[&Section] = &[&SERVING];

static PATH: Section = Section {
    heading: "Two machines",
    options: &[
        Opt::one(
            "remote",
            "HOST[:PORT]",
            "",
            "Over the real path to an agent there; no link is emulated",
        ),
        Opt::one(
            "token-file",
            "FILE",
            "",
            "Holds the token that the agent knows, 16 bytes or more",
        ),
    ],
};

static SERVING: Section = Section {
    heading: "Agent",
    options: &[
        Opt::one(
            "listen",
            "ADDR",
            "[::]:7610",
            "TCP address; programs of arms take the two ports behind it, TCP and UDP",
        ),
        Opt::one(
            "token-file",
            "FILE",
            "",
            "Holds the token of those who may measure, 16 bytes or more",
        ),
    ],
};

/// Flags of `quictun lab crosscheck`.
pub static CROSSCHECK: &[&Section] = &[&MEASUREMENT, &OTHERS];

static OTHERS: Section = Section {
    heading: "Other programs",
    options: &[Opt::one(
        "emulator",
        "COMMAND",
        "",
        "Across a link of another emulator too, started by this command: see docs/scenarios.md",
    )],
};

static MEASUREMENT: Section = Section {
    heading: "Measurement",
    options: &[
        Opt::switch(
            "quick",
            "Fewer and shorter runs, as the scenario says: minutes",
        ),
        Opt::one(
            "reps",
            "N",
            "",
            "Repetitions of each cell; unset: as the scenario says",
        ),
        Opt::list(
            "only",
            "NAMES",
            "",
            "These arms and cases only, separated by commas; repeatable",
        ),
        Opt::one("seed", "N", "1", "What order and losses follow from"),
        Opt::one(
            "out",
            "DIR",
            "",
            "Where to write; unset: lab-results/NAME-TIME, made where it is missing",
        ),
    ],
};

/// `quictun lab`.
pub fn command() -> Command {
    Command::new("lab")
        .about("Measure what was published, and anything else, and say how far to trust it")
        .after_help(include_str!("help.txt"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommands([
            list(),
            show(),
            run(),
            report(),
            compare(),
            calibrate(),
            crosscheck(),
            agent(),
        ])
}

fn list() -> Command {
    Command::new("list").about("List the scenarios that come with the program")
}

fn show() -> Command {
    Command::new("show")
        .about("Print a scenario, to read it or to make another of it")
        .arg(scenario())
}

fn run() -> Command {
    let command = Command::new("run")
        .about("Measure a scenario and write a report")
        .after_help(include_str!("run_help.txt"))
        .arg(scenario());
    options::add_to(command, RUN)
}

fn calibrate() -> Command {
    let command = Command::new("calibrate")
        .about("Measure how fast a link this machine can emulate: the scenario `capacity`");
    options::add_to(command, CALIBRATE)
}

fn crosscheck() -> Command {
    let command = Command::new("crosscheck")
        .about("Measure with another program too, iperf3: the scenario `crosscheck`");
    options::add_to(command, CROSSCHECK)
}

fn agent() -> Command {
    let command = Command::new("agent")
        .about("Be the far end of measurements over a real path")
        .after_help(include_str!("agent_help.txt"));
    options::add_to(command, AGENT)
}

fn report() -> Command {
    Command::new("report")
        .about("Make the report of a run again, from its raw data")
        .arg(dir("dir", "Directory of a run, which holds run.json"))
}

fn compare() -> Command {
    Command::new("compare")
        .about("Compare what two runs have in common")
        .after_help(include_str!("compare_help.txt"))
        .arg(dir("before", "Directory of the one run"))
        .arg(dir("after", "Directory of the other"))
}

fn scenario() -> Arg {
    Arg::new("scenario")
        .value_name("SCENARIO")
        .value_hint(ValueHint::FilePath)
        .required(true)
        .help("A name that `quictun lab list` lists, or a file that ends in .toml")
}

fn dir(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .value_name("DIR")
        .value_hint(ValueHint::DirPath)
        .required(true)
        .help(help)
}
