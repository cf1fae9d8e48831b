//! The flags and commands of `quictun link`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, Command, ValueHint};
use quictun_args::options;
use quictun_args::options::{Many, Maybe, One, Section, Table};
use quictun_args::values::{number, path, text, time};
use quictun_emu::Offload;
use quictun_lab_run::link::{Backend, CheckCell, Load};
use quictun_link::{Change, Codel, LossAt, NamedLink, Outage, Policer, Queue, Reorder, Stall};

use super::values::{
    Ecn, bytes_beyond, change, check_cell, codel, ecn, load, mean_burst, outage, policer, queue,
    rate, reorder, share, stall,
};

const PREFIX: &str = "QUICTUN_LINK_";

/// Smallest MTU, in bytes: IPv6 requires it (RFC 8200 section 5).
const MIN_MTU: u32 = 1280;

/// Largest MTU of a veth pair between two namespaces, in bytes.
const MAX_MTU: u32 = 65_535;

pub(super) static SESSION: Table = Table {
    prefix: PREFIX,
    sections: &[&LINK, &EACH_WAY, &WORLD],
};

pub(super) static CALIBRATE: Table = Table {
    prefix: PREFIX,
    sections: &[&Section {
        heading: "Calibration",
        options: &[&RATES, &CALIBRATED_DELAY, &RATE_DURATION, &TABLE],
    }],
};

pub(super) static CHECK: Table = Table {
    prefix: PREFIX,
    sections: &[&Section {
        heading: "Comparison",
        options: &[&CHECK_CELLS, &CHECK_LOADS, &DURATION, &RUNS, &TABLE],
    }],
};

pub(super) static ARTEFACT: Table = Table {
    prefix: PREFIX,
    sections: &[&Section {
        heading: "Comparison",
        options: &[&ARTEFACT_CELLS, &ARTEFACT_LOADS, &DURATION, &RUNS, &TABLE],
    }],
};

static LINK: Section = Section {
    heading: "Link, both ways",
    options: &[
        &LIKE, &RATE, &DELAY, &LOSS, &BURST, &LOSS_AT, &QUEUE, &JITTER, &STALL, &REORDER,
        &DUPLICATE, &CODEL, &ECN, &POLICER, &OUTAGE, &CHANGE, &OVERHEAD,
    ],
};

static EACH_WAY: Section = Section {
    heading: "One direction only, instead of the above (up: from here to the far side)",
    options: &[
        &RATE_UP,
        &RATE_DOWN,
        &DELAY_UP,
        &DELAY_DOWN,
        &LOSS_UP,
        &LOSS_DOWN,
        &QUEUE_UP,
        &QUEUE_DOWN,
        &TRACE_UP,
        &TRACE_DOWN,
    ],
};

static WORLD: Section = Section {
    heading: "Emulation",
    options: &[
        &FAR,
        &BACKEND,
        &SEED,
        &MTU,
        &OFFLOAD,
        &COALESCE,
        &TIME_LIMIT,
        &REPORT,
    ],
};

options! {
    pub(super) LIKE: Maybe<NamedLink> = "like" "NAME", choice NamedLink::ALL, key "link.like";
        "Emulate lte, 5g, satellite or wifi, see below; other flags override it"
    pub(super) RATE: Maybe<u64> = "rate" "RATE", by rate, key "link.rate";
        "Rate of all bytes on the wire: 600mbit, 1.5gbit, 75MB/s; unset: unlimited"
    pub(super) DELAY: One<Duration> = "delay" "TIME", by time, default "0", key "link.delay";
        "One-way propagation delay; a round trip takes twice as long"
    pub(super) LOSS: One<f64> = "loss" "SHARE", by share, default "0", key "link.loss";
        "Share of packets lost, independently of each other: 1%, 0.001"
    pub(super) BURST: Maybe<f64> = "burst" "PACKETS", by mean_burst, key "link.burst";
        "Lose packets in bursts of this mean length instead"
    pub(super) LOSS_AT: One<LossAt> = "loss-at" "PLACE", choice &[("exit", LossAt::Exit), ("entry", LossAt::Entry)], default "exit", key "link.loss_at";
        "Lose packets at exit (after queue and rate) or entry (before them)"
    pub(super) QUEUE: One<Option<Queue>> = "queue" "SIZE", by queue, words &["auto"], default "auto", key "link.queue";
        "Queue capacity: 64kB, 100p; auto: a round trip's worth, at least 64p"
    pub(super) JITTER: One<Duration> = "jitter" "TIME", by time, default "0", key "link.jitter";
        "Random extra delay of at most TIME, without reordering"
    pub(super) STALL: Maybe<Stall> = "stall" "LENGTH:PERIOD", by stall, key "link.stall";
        "Deliver nothing for LENGTH once per PERIOD, then everything at once: 5ms:25ms"
    pub(super) REORDER: Maybe<Reorder> = "reorder" "SHARE:TIME", by reorder, key "link.reorder";
        "Share of packets that are delivered TIME later: 1%:5ms"
    pub(super) DUPLICATE: One<f64> = "duplicate" "SHARE", by share, default "0", key "link.duplicate";
        "Share of packets that are delivered twice"
    pub(super) CODEL: Maybe<Codel> = "codel" "TARGET:INTERVAL", by codel, key "link.codel";
        "Keep the queue short with CoDel (RFC 8289): 5ms:100ms"
    pub(super) ECN: Maybe<Ecn> = "ecn" "TIME|codel", by ecn, words &["codel"], key "link.ecn";
        "Mark ECN-capable packets that waited longer than TIME; codel: those that CoDel would drop"
    pub(super) POLICER: Maybe<Policer> = "policer" "RATE:SIZE", by policer, key "link.policer";
        "Drop packets above RATE, after a burst of SIZE: 50mbit:64kB"
    pub(super) OUTAGE: Many<Outage> = "outage" "AT+LENGTH", by outage, key "link.outage";
        "Deliver nothing from AT on for LENGTH: 10s+2s; repeatable"
    pub(super) CHANGE: Many<Change> = "change" "AT:WHAT=VALUE", by change, key "link.change";
        "Change rate, delay or loss at a time: 5s:rate=100mbit; repeatable"
    pub(super) OVERHEAD: One<usize> = "overhead" "NAME|BYTES", by bytes_beyond, words &["ethernet", "vlan", "pppoe", "ip"], default "ethernet", key "link.overhead";
        "Bytes on the wire per packet besides IP: ethernet (38), vlan, pppoe, ip (0)"

    pub(super) RATE_UP: Maybe<u64> = "rate-up" "RATE", by rate, key "link.up.rate";
        "Rate up"
    pub(super) RATE_DOWN: Maybe<u64> = "rate-down" "RATE", by rate, key "link.down.rate";
        "Rate down"
    pub(super) DELAY_UP: One<Duration> = "delay-up" "TIME", by time, key "link.up.delay";
        "Delay up"
    pub(super) DELAY_DOWN: One<Duration> = "delay-down" "TIME", by time, key "link.down.delay";
        "Delay down"
    pub(super) LOSS_UP: One<f64> = "loss-up" "SHARE", by share, key "link.up.loss";
        "Loss up"
    pub(super) LOSS_DOWN: One<f64> = "loss-down" "SHARE", by share, key "link.down.loss";
        "Loss down"
    pub(super) QUEUE_UP: One<Option<Queue>> = "queue-up" "SIZE", by queue, key "link.up.queue";
        "Queue up"
    pub(super) QUEUE_DOWN: One<Option<Queue>> = "queue-down" "SIZE", by queue, key "link.down.queue";
        "Queue down"
    pub(super) TRACE_UP: Maybe<PathBuf> = "trace-up" "FILE", by path, key "link.up.trace";
        "Mahimahi trace of the times to send at, up; replaces the rate"
    pub(super) TRACE_DOWN: Maybe<PathBuf> = "trace-down" "FILE", by path, key "link.down.trace";
        "Mahimahi trace of the times to send at, down; replaces the rate"

    pub(super) FAR: Maybe<String> = "far" "COMMAND", by text, key "far.command";
        "Run COMMAND (sh -c) at the far side, in its own network namespace"
    pub(super) BACKEND: One<Backend> = "backend" "WHO", choice &[("emulator", Backend::Emulator), ("kernel", Backend::Kernel)], default "emulator", key "backend";
        "Emulation by emulator (this program) or kernel (netem and TBF); see below"
    pub(super) SEED: One<u64> = "seed" "N", by |text| number(text, 0..=u64::MAX), default "1", key "seed";
        "Seed; the same seed loses the same packets and draws the same link"
    pub(super) MTU: One<u32> = "mtu" "BYTES", by |text| number(text, MIN_MTU..=MAX_MTU), default "1500", key "mtu";
        "Largest packet, including its IP header"
    pub(super) OFFLOAD: Maybe<Offload> = "offload" "WHO", choice &[("full", Offload::Full), ("receive", Offload::Receive), ("none", Offload::None)], key "offload";
        "Segmentation offload of the devices: full (unset), receive or none; see below"
    pub(super) COALESCE: One<Duration> = "coalesce" "TIME", by time, default "50us", key "coalesce";
        "Deliver packets together that are due within TIME of each other"
    pub(super) TIME_LIMIT: Maybe<Duration> = "time-limit" "TIME", by time, key "time_limit";
        "End everything after TIME"
    pub(super) REPORT: Maybe<PathBuf> = "json" "FILE", by path;
        "Write the settings and the achieved values to FILE as JSON"

    pub(super) RATES: Many<u64> = "rates" "RATES", by rate, default "100mbit,300mbit,600mbit,1gbit,2gbit,4gbit";
        "Rates to test, separated by commas"
    pub(super) CALIBRATED_DELAY: One<Duration> = "delay" "TIME", by time, default "10ms";
        "One-way delay"
    pub(super) RATE_DURATION: One<Duration> = "duration" "TIME", by time, default "1s";
        "Test time of each rate"
    pub(super) CHECK_CELLS: Many<CheckCell> = "cells" "RATE:RTT:LOSS", by check_cell;
        "Links, separated by commas; LOSS is per direction; unset: the ten below"
    pub(super) CHECK_LOADS: Many<Load> = "loads" "LOADS", by load, words &["tunnel", "cubic"], default "tunnel";
        "Traffic across the links: tunnel, cubic (TCP alone), or both"
    pub(super) ARTEFACT_CELLS: Many<CheckCell> = "cells" "RATE:RTT:LOSS", by check_cell, default "600mbit:1ms:1%,600mbit:5ms:1%";
        "Links, separated by commas; LOSS is per direction"
    pub(super) ARTEFACT_LOADS: Many<Load> = "loads" "LOADS", by load, words &["cubic", "tunnel"], default "cubic,tunnel";
        "Traffic across the links: cubic (TCP alone), tunnel, or both"
    pub(super) DURATION: One<Duration> = "duration" "TIME", by time, default "5s";
        "Measured time of each run"
    pub(super) RUNS: One<u32> = "runs" "N", by |text| number(text, 1..=99), default "3";
        "Runs of each cell; the result is the median"
    pub(super) TABLE: Maybe<PathBuf> = "json" "FILE", by path;
        "Write the table to FILE as JSON"
}

/// Returns the definition of `quictun link` for clap.
pub fn command() -> Command {
    Command::new("link")
        .about("Emulate a link: delay, loss, rate and queue for any program, without root")
        .after_help(include_str!("help.txt"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommands([
            SESSION.add_to(
                Command::new("shell")
                    .about("Run a shell or a command behind an emulated link")
                    .after_help(include_str!("shell_help.txt"))
                    .arg(
                        Arg::new("command")
                            .value_name("COMMAND")
                            .value_hint(ValueHint::CommandWithArguments)
                            .help("Command and its arguments; unset: your shell")
                            .num_args(1..)
                            .action(ArgAction::Append)
                            .last(true),
                    ),
            ),
            SESSION.add_to(
                Command::new("run")
                    .about("Run the commands of a plan on both sides of an emulated link")
                    .after_help(include_str!("run_help.txt"))
                    .arg(
                        Arg::new("plan")
                            .value_name("PLAN")
                            .value_hint(ValueHint::FilePath)
                            .required(true)
                            .help("Plan file, TOML; flags override it"),
                    ),
            ),
            CALIBRATE.add_to(
                Command::new("calibrate")
                    .about("Measure which rates this machine can emulate accurately")
                    .after_help(include_str!("calibrate_help.txt")),
            ),
            CHECK.add_to(
                Command::new("check")
                    .about("Compare traffic across the same links in virtual time and in real time")
                    .after_help(include_str!("check_help.txt")),
            ),
            ARTEFACT.add_to(
                Command::new("artefact")
                    .about("Show how loss of whole super-packets distorts measurements")
                    .after_help(include_str!("artefact_help.txt")),
            ),
        ])
}
