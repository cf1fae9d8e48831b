//! The flags and commands of `quictun link`.

use clap::{Arg, ArgAction, Command, ValueHint};

use quictun_args::options::{self, Opt, Section};

/// Prefix of the environment variables.
pub const PREFIX: &str = "QUICTUN_LINK_";

/// Flags of `quictun link shell` and `quictun link run`.
pub static SESSION: &[&Section] = &[&LINK, &EACH_WAY, &WORLD];

/// Flags of `quictun link calibrate`.
pub static CALIBRATE: &[&Section] = &[&CALIBRATION];

/// Flags of `quictun link check`.
pub static CHECK: &[&Section] = &[&COMPARISON];

/// Flags of `quictun link artefact`.
pub static ARTEFACT: &[&Section] = &[&UNITS];

static LINK: Section = Section {
    heading: "Link, both ways",
    options: &[
        Opt::one(
            "rate",
            "RATE",
            "",
            "Bytes on the wire: 600mbit, 1.5gbit, 75MB/s; unset: no limit",
        )
        .key("link.rate"),
        Opt::one(
            "delay",
            "TIME",
            "0",
            "Propagation delay one way; a round trip takes it twice",
        )
        .key("link.delay"),
        Opt::one(
            "loss",
            "SHARE",
            "0",
            "Packets lost independently of each other: 1%, 0.001",
        )
        .key("link.loss"),
        Opt::one(
            "burst",
            "PACKETS",
            "",
            "Lose them in bursts of so many on average instead",
        )
        .key("link.burst"),
        Opt::one(
            "loss-at",
            "PLACE",
            "exit",
            "exit: behind queue and rate; entry: before them",
        )
        .choices(&["exit", "entry"])
        .key("link.loss_at"),
        Opt::one(
            "queue",
            "SIZE",
            "auto",
            "What may wait: 64kB, 100p; auto: a round trip's worth, at least 64p",
        )
        .key("link.queue"),
        Opt::one(
            "jitter",
            "TIME",
            "0",
            "Extra delay, up to so much, that keeps the order",
        )
        .key("link.jitter"),
        Opt::one(
            "reorder",
            "SHARE:TIME",
            "",
            "Packets that come so much later: 1%:5ms",
        )
        .key("link.reorder"),
        Opt::one("duplicate", "SHARE", "0", "Packets that come twice").key("link.duplicate"),
        Opt::one(
            "codel",
            "TARGET:INTERVAL",
            "",
            "Keep the queue short (RFC 8289): 5ms:100ms",
        )
        .key("link.codel"),
        Opt::one(
            "ecn",
            "TIME|codel",
            "",
            "Mark ECN-capable packets that waited longer; codel: when it would drop",
        )
        .key("link.ecn"),
        Opt::one(
            "policer",
            "RATE:SIZE",
            "",
            "Drop what comes faster, past a burst: 50mbit:64kB",
        )
        .key("link.policer"),
        Opt::list(
            "outage",
            "AT+LENGTH",
            "",
            "Let nothing pass: 10s+2s; repeatable",
        )
        .key("link.outage"),
        Opt::list(
            "change",
            "AT:WHAT=VALUE",
            "",
            "Change rate, delay or loss: 5s:rate=100mbit; repeatable",
        )
        .key("link.change"),
        Opt::one(
            "overhead",
            "NAME|BYTES",
            "ethernet",
            "Wire bytes per packet beyond IP: ethernet (38), vlan, pppoe, ip (0)",
        )
        .key("link.overhead"),
    ],
};

static EACH_WAY: Section = Section {
    heading: "One way only, in place of the above (up: from here to the far side)",
    options: &[
        Opt::one("rate-up", "RATE", "", "Rate up").key("link.up.rate"),
        Opt::one("rate-down", "RATE", "", "Rate down").key("link.down.rate"),
        Opt::one("delay-up", "TIME", "", "Delay up").key("link.up.delay"),
        Opt::one("delay-down", "TIME", "", "Delay down").key("link.down.delay"),
        Opt::one("loss-up", "SHARE", "", "Loss up").key("link.up.loss"),
        Opt::one("loss-down", "SHARE", "", "Loss down").key("link.down.loss"),
        Opt::one("queue-up", "SIZE", "", "Queue up").key("link.up.queue"),
        Opt::one("queue-down", "SIZE", "", "Queue down").key("link.down.queue"),
        Opt::one(
            "trace-up",
            "FILE",
            "",
            "Send when a mahimahi trace says, in place of a rate",
        )
        .key("link.up.trace"),
        Opt::one("trace-down", "FILE", "", "The same, down").key("link.down.trace"),
    ],
};

static WORLD: Section = Section {
    heading: "Emulation",
    options: &[
        Opt::one(
            "far",
            "COMMAND",
            "",
            "Run this (sh -c) at the far side, in a network of its own",
        )
        .key("far.command"),
        Opt::one(
            "backend",
            "WHO",
            "emulator",
            "Who emulates: emulator (this program) or kernel (netem and TBF); see below",
        )
        .choices(&["emulator", "kernel"])
        .key("backend"),
        Opt::one("seed", "N", "1", "The same seed loses the same packets").key("seed"),
        Opt::one(
            "mtu",
            "BYTES",
            "1500",
            "Longest packet, its IP header included",
        )
        .key("mtu"),
        Opt::one(
            "offload",
            "WHO",
            "",
            "Who cuts streams into packets: full (unset), receive or none; see below",
        )
        .choices(&["full", "receive", "none"])
        .key("offload"),
        Opt::one(
            "coalesce",
            "TIME",
            "50us",
            "Deliver together what the wire would bring within so much time",
        )
        .key("coalesce"),
        Opt::one("time-limit", "TIME", "", "End everything after so long").key("time_limit"),
        Opt::one(
            "json",
            "FILE",
            "",
            "Write what was set and what was achieved here, as JSON",
        ),
    ],
};

static CALIBRATION: Section = Section {
    heading: "Calibration",
    options: &[
        Opt::list(
            "rates",
            "RATES",
            "100mbit,300mbit,600mbit,1gbit,2gbit,4gbit",
            "Rates to try, separated by commas",
        ),
        Opt::one("delay", "TIME", "10ms", "Delay one way"),
        Opt::one("duration", "TIME", "1s", "How long each rate is tried"),
        TABLE,
    ],
};

const EACH_DURATION: Opt = Opt::one("duration", "TIME", "5s", "What counts of each run");
const RUNS: Opt = Opt::one("runs", "N", "3", "Runs of each cell; the median counts");
const TABLE: Opt = Opt::one("json", "FILE", "", "Write the table here, as JSON");

static COMPARISON: Section = Section {
    heading: "Comparison",
    options: &[
        Opt::list(
            "cells",
            "RATE:RTT:LOSS",
            "",
            "Links, separated by commas; the loss is that of each way; unset: the ten below",
        ),
        Opt::list(
            "loads",
            "LOADS",
            "tunnel",
            "What crosses them: tunnel, cubic (TCP alone), or both",
        )
        .choices(&["tunnel", "cubic"]),
        EACH_DURATION,
        RUNS,
        TABLE,
    ],
};

static UNITS: Section = Section {
    heading: "Comparison",
    options: &[
        Opt::list(
            "cells",
            "RATE:RTT:LOSS",
            "600mbit:1ms:1%,600mbit:5ms:1%",
            "Links, separated by commas; the loss is that of each way",
        ),
        Opt::list(
            "loads",
            "LOADS",
            "cubic,tunnel",
            "What crosses them: cubic (TCP alone), tunnel, or both",
        )
        .choices(&["cubic", "tunnel"]),
        EACH_DURATION,
        RUNS,
        TABLE,
    ],
};

/// `quictun link`.
pub fn command() -> Command {
    Command::new("link")
        .about("Emulate a link: delay, loss, rate and queue for any program, without root")
        .after_help(include_str!("help.txt"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommands([shell(), run(), calibrate(), check(), artefact()])
}

fn shell() -> Command {
    let command = Command::new("shell")
        .about("Run a shell, or a command, behind an emulated link")
        .after_help(include_str!("shell_help.txt"))
        .arg(
            Arg::new("command")
                .value_name("COMMAND")
                .value_hint(ValueHint::CommandWithArguments)
                .help("The command and its arguments; unset: your shell")
                .num_args(1..)
                .action(ArgAction::Append)
                .last(true),
        );
    options::add_to(command, SESSION)
}

fn run() -> Command {
    let command = Command::new("run")
        .about("Run the commands of a plan at both sides of an emulated link")
        .after_help(include_str!("run_help.txt"))
        .arg(
            Arg::new("plan")
                .value_name("PLAN")
                .value_hint(ValueHint::FilePath)
                .required(true)
                .help("The plan, TOML; flags hold over what it says"),
        );
    options::add_to(command, SESSION)
}

fn calibrate() -> Command {
    let command = Command::new("calibrate")
        .about("Find out what this machine can emulate honestly")
        .after_help(include_str!("calibrate_help.txt"));
    options::add_to(command, CALIBRATE)
}

fn check() -> Command {
    let command = Command::new("check")
        .about("Compare what crosses the same links in virtual time and in real time")
        .after_help(include_str!("check_help.txt"));
    options::add_to(command, CHECK)
}

fn artefact() -> Command {
    let command = Command::new("artefact")
        .about("Show what loss drawn for super-packets does to measurements")
        .after_help(include_str!("artefact_help.txt"));
    options::add_to(command, ARTEFACT)
}
