//! `quictun bench netstack`: how fast the user-space stack serves ordinary programs, and applications that reach it through
//! calls.
//!
//! Everything happens in a network of its own: kernel sockets on one core, the stack on another, and for comparison the
//! kernel's own loopback in the same run ([`bulk`], and of thousands of flows [`crowd`]); or the stack in a process of its own, as in the published system
//! ([`calls`]).

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};
use quictun_sys::{ContainError, NetNamespace, Network, Tun, set_sysctl};
use serde_json::json;

use self::calls::Grid;
pub use self::calls::{Mode, Polling, Setup, WireKind};
use super::machine::Machine;
use super::plot;
use crate::OnlyForItself;

mod answering;
mod bulk;
mod calls;
mod crowd;
mod device;
mod load;

/// What to do, or what to be for who does it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Measure.
    Measure(Options),
    /// Be the process with the stack, on a core.
    Serve(Setup, usize),
}

/// How to measure and to show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bulk flows and echoes.
    pub bulk: bool,
    /// What an application does through calls.
    pub modes: Vec<Mode>,
    /// Many flows.
    pub crowd: usize,
    /// Bulk flows at a time.
    pub flows: Vec<usize>,
    /// Connections of an application at a time.
    pub connections: Vec<usize>,
    /// What is behind the stack.
    pub wires: Vec<WireKind>,
    /// When its packets go out.
    pub pollings: Vec<Polling>,
    /// Bytes of an application's messages.
    pub bytes: Vec<usize>,
    /// Runs of each, of which the median counts.
    pub repeats: usize,
    /// Time of each run.
    pub run: Duration,
    /// Print JSON.
    pub json: bool,
    /// Where to draw the figure.
    pub svg: Option<PathBuf>,
    /// Also on a machine that is busy.
    pub force: bool,
}

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
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .action(ArgAction::SetTrue)
            .help(help)
    };
    let list = |name: &'static str, default: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("LIST")
            .value_delimiter(',')
            .default_value(default)
            .help(help)
    };
    let numbers = |name: &'static str, default: &'static str, help: &'static str| {
        list(name, default, help).value_parser(clap::value_parser!(u64).range(1..=64))
    };
    let number = |name: &'static str, default: &'static str, most: u64, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("N")
            .value_parser(clap::value_parser!(u64).range(1..=most))
            .default_value(default)
            .help(help)
    };
    let modes = Mode::ALL.map(Mode::word);
    Command::new("netstack")
        .about("Measure the user-space TCP stack: bulk and delay through a TUN device, and applications that reach it through calls")
        .after_help(include_str!("../netstack_help.txt"))
        .arg(
            list("only", "bulk,crowd,read,write,call", "Measure only these")
                .value_parser([&[BULK, CROWD][..], &modes].concat()),
        )
        .arg(number(CROWD, "10000", CROWD_MAX, "Flows at a time, of which most are idle"))
        .arg(numbers("flows", "1,8", "Bulk flows at a time"))
        .arg(numbers("connections", "1,2,4,8,16,32", "Connections of an application at a time"))
        .arg(
            list("wire", "memory,tun", "What is behind the stack of an application")
                .value_parser(WireKind::ALL.map(WireKind::word)),
        )
        .arg(
            list("poll", "each-send,batch", "When packets of an application go out")
                .value_parser(Polling::ALL.map(Polling::word)),
        )
        .arg(numbers("bytes", "1", "Bytes of an application's messages"))
        .arg(number("repeats", "3", 99, "Runs of each, of which the median counts"))
        .arg(number(
            "run-ms",
            "1000",
            60_000,
            "Milliseconds of each run; a quarter of it where there are many",
        ))
        .arg(flag("json", "Print one JSON object"))
        .arg(
            Arg::new("svg")
                .long("svg")
                .value_name("FILE")
                .value_hint(ValueHint::FilePath)
                .help("Draw what applications reach into this file"),
        )
        .arg(
            Arg::new(SERVE)
                .long(SERVE)
                .num_args(8)
                .hide(true)
                .help("Be the process with the stack, as `quictun bench netstack` itself asks for"),
        )
        .arg(flag(
            "force",
            "Measure although the machine is busy, and say so in the result",
        ))
}

/// Reads what follows `quictun bench netstack`.
pub(crate) fn parse(matches: &ArgMatches) -> Result<Action, OnlyForItself> {
    if let Some(words) = matches.get_many::<String>(SERVE) {
        let words: Vec<&str> = words.map(String::as_str).collect();
        let part = words.split_first().and_then(|(core, setup)| {
            Some(Action::Serve(Setup::parse(setup)?, core.parse().ok()?))
        });
        return part.ok_or(OnlyForItself {
            flag: "--serve",
            program: "quictun bench netstack",
        });
    }
    let number = |name| {
        *matches
            .get_one::<u64>(name)
            .expect("invariant: it has a default")
    };
    let small = |number: u64| usize::try_from(number).expect("invariant: clap has bounded it");
    let numbers = |name| -> Vec<usize> {
        let all = matches.get_many::<u64>(name).into_iter().flatten();
        all.copied().map(small).collect()
    };
    let says = |name: &str, word: &str| {
        let mut words = matches.get_many::<String>(name).into_iter().flatten();
        words.any(|said| said == word)
    };
    Ok(Action::Measure(Options {
        bulk: says("only", BULK),
        crowd: if says("only", CROWD) {
            small(number(CROWD))
        } else {
            0
        },
        modes: wanted(Mode::ALL, |mode| says("only", mode.word())),
        flows: numbers("flows"),
        connections: numbers("connections"),
        wires: wanted(WireKind::ALL, |wire| says("wire", wire.word())),
        pollings: wanted(Polling::ALL, |polling| says("poll", polling.word())),
        bytes: numbers("bytes"),
        repeats: small(number("repeats")),
        run: Duration::from_millis(number("run-ms")),
        json: matches.get_flag("json"),
        svg: matches.get_one::<String>("svg").map(PathBuf::from),
        force: matches.get_flag("force"),
    }))
}

fn wanted<T: Copy, const N: usize>(all: [T; N], is_wanted: impl Fn(T) -> bool) -> Vec<T> {
    all.into_iter().filter(|one| is_wanted(*one)).collect()
}

/// Does it.
pub(crate) fn run(action: &Action, say: &dyn Fn(&str)) -> Result<String> {
    match action {
        Action::Measure(options) => measure(options, say),
        Action::Serve(setup, core) => calls::serve(setup, *core).map(|()| String::new()),
    }
}

fn measure(options: &Options, say: &dyn Fn(&str)) -> Result<String> {
    let mut machine = Machine::examine()?;
    if let Some(noise) = machine.noise().filter(|_| !options.force) {
        return Err(anyhow!("{noise}: wait, or say --force"));
    }
    let network = NetNamespace::new().map_err(ContainError::Forbidden)?;
    network
        .within(|| Network::open()?.set_up("lo"))
        .context("a loopback device")?;
    let grid = Grid {
        modes: &options.modes,
        wires: &options.wires,
        pollings: &options.pollings,
        connections: &options.connections,
        bytes: &options.bytes,
    };
    let cells = if options.bulk {
        bulk::cells(options)
    } else {
        Vec::new()
    };
    let setups = grid.setups();
    let crowds = if options.crowd > 0 {
        crowd::SIDES.len()
    } else {
        0
    };
    let (mut number, count) = (0, cells.len() + crowds + setups.len());
    let mut note = |name: &str| {
        number += 1;
        if !options.json {
            say(&format!("{number}/{count}: {name}"));
        }
    };
    let mut rows = Vec::new();
    for cell in &cells {
        note(&cell.name());
        rows.push(bulk::repeat(cell, options, &machine, &network)?);
    }
    let crowds = if options.crowd > 0 {
        crowd::measure(options, &machine, &network, &mut note)?
    } else {
        Vec::new()
    };
    let mut answers = Vec::new();
    if !setups.is_empty() {
        // Once in a process, and not beside what is measured.
        quictun_ipc::wake_cost();
    }
    for setup in &setups {
        note(&setup.name());
        let (repeats, run) = (options.repeats, options.run / 4);
        let row = calls::measure(setup, repeats, run, &machine, &network);
        answers.push(row.with_context(|| setup.name())?);
    }
    machine.note_steal()?;
    let noise = machine.noise();
    let name = format!("{}, Linux {}", machine.cpu, machine.kernel);
    if let Some(path) = &options.svg {
        let warning = noise.as_ref().map(|_| "NOT TO BE PUBLISHED: noisy machine");
        let panels = calls::report::panels(&grid, &answers);
        std::fs::write(path, plot::draw(&name, warning, &panels))
            .with_context(|| format!("writing {}", path.display()))?;
    }
    if options.json {
        let all = json!({
            "cpu": machine.cpu,
            "kernel": machine.kernel,
            "load": machine.load,
            "steal": machine.steal,
            "noise": noise,
            "rows": bulk::to_json(&rows),
            "crowds": crowd::to_json(&crowds),
            "calls": calls::report::to_json(&answers),
        });
        return Ok(format!("{all}\n"));
    }
    let mut text = format!("{name}\n");
    if let Some(noise) = noise {
        let _infallible = writeln!(text, "Not to be believed: {noise}.");
    }
    Ok(text
        + &bulk::table(&rows)
        + &crowd::table(&crowds)
        + &calls::report::tables(&grid, &answers))
}

/// A device with addresses of both families; what it leads to is the stack.
fn device(offload: bool) -> std::io::Result<Tun> {
    let tun = Tun::create(NAME, offload)?;
    let mut network = Network::open()?;
    network.set_queue_length(NAME, QUEUE)?;
    network.add_address(NAME, IpAddr::from([10, 77, 0, 2]), 24)?;
    network.add_address(NAME, "fd77::2".parse().map_err(std::io::Error::other)?, 64)?;
    network.set_up(NAME)?;
    set_sysctl("net/ipv4/tcp_no_metrics_save", "1")?;
    Ok(tun)
}

#[expect(clippy::cast_precision_loss, reason = "counts of a measurement")]
fn float(count: u64) -> f64 {
    count as f64
}

fn micros(nanos: u64) -> f64 {
    float(nanos) / 1000.0
}

/// The device's name; the network is ours alone.
const NAME: &str = "bench0";
/// Packets that may wait for the stack: with the kernel's 500, bursts of several flows would be dropped.
const QUEUE: u32 = 10_000;
