//! `quictun perf`: measures traffic between two programs.
//!
//! [`parse`] turns flags and variables into an [`Action`]; [`main`] runs it. Crate `quictun-perf` makes the traffic;
//! this module has flags, progress and results.

use std::io::{IsTerminal as _, Write as _};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::ArgMatches;
use quictun_link::units::Rate;
use quictun_perf::client::ProgressUpdate;
use quictun_perf::server::{FinishedMeasurement, ServerOptions};
use quictun_perf::{Amount, EventLoop, Mode, PerfError, Plan, Report, Stop};
use quictun_sys::Signals;
use quictun_tunnel::settings::HostPort;
use rustix::process::Signal;

use crate::exit::{self, ProgramError};
use quictun_args::fault::{Exit, Fault};
use quictun_args::inputs::Inputs;
use quictun_args::layers::Layers;
use quictun_args::options::InvalidValue;

pub mod flags;
mod text;

const PROGRAM: &str = "quictun perf";

/// The action of one `quictun perf` command.
#[derive(Debug)]
pub enum Action {
    /// Serve clients, and take part in their measurements.
    Server(PerfServer),
    /// Measure once, with a server.
    Client(Box<PerfClient>),
}

/// The settings of `quictun perf server`.
#[derive(Clone, Debug)]
pub struct PerfServer {
    /// The address, transports and event loop of the server.
    pub options: ServerOptions,
    /// The file that gets one JSON object for each measurement.
    pub json: Option<PathBuf>,
}

/// The settings of `quictun perf client`.
#[derive(Clone, Debug)]
pub struct PerfClient {
    /// Name and port of the server.
    pub server: HostPort,
    /// The traffic to generate and measure.
    pub plan: Plan,
    /// The file for the result; `-` means standard output.
    pub json: Option<PathBuf>,
}

/// Parses the arguments after `quictun perf`.
pub fn parse(matches: &ArgMatches, inputs: &Inputs<'_>) -> Result<Action, Fault> {
    let (command, matches) = matches
        .subcommand()
        .expect("invariant: clap requires a command");
    if command == "server" {
        return server(&Layers::new(&flags::SERVER, matches, inputs));
    }
    client(&Layers::new(&flags::CLIENT, matches, inputs))
}

/// Runs the action and returns its exit code.
pub fn main(action: Action) -> ExitCode {
    let outcome = match action {
        Action::Server(server) => serve(&server)
            .map(|()| Exit::Ok)
            .map_err(ProgramError::from),
        Action::Client(client) => measure(&client),
    };
    exit::code(PROGRAM, outcome.map(|exit| exit as u8))
}

fn server(layers: &Layers<'_>) -> Result<Action, Fault> {
    Ok(Action::Server(PerfServer {
        options: ServerOptions {
            listen: layers.get(&flags::LISTEN)?,
            only: layers.get(&flags::ONLY)?,
            event_loop: layers.get(&flags::SERVER_LOOP)?,
        },
        json: layers.get(&flags::NOTES)?,
    }))
}

fn client(layers: &Layers<'_>) -> Result<Action, Fault> {
    let Some(server) = layers.get(&flags::CONNECT)? else {
        let fault = Fault::usage("--connect", "is missing: name the server");
        return Err(fault.next("quictun perf client --connect HOST:7600"));
    };
    let mode = layers.get(&flags::MODE)?;
    let event_loop = layers.get(&flags::LOOP)?;
    let (request, response) = layers.get(&flags::RR)?;
    let rate = layers.get(&flags::RATE)?.map(|text| {
        let rate = rate(&text, mode == Mode::Stream);
        rate.map_err(|InvalidValue(why)| layers.fault(&flags::RATE, why))
    });
    let by_loop = event_loop == EventLoop::EventGso;
    let plan = Plan {
        amount: amount(layers)?,
        warm_up: layers.get(&flags::WARM_UP)?,
        request,
        response,
        rate: rate.transpose()?,
        flows: layers.get(&flags::FLOWS)?,
        connections: layers.get(&flags::CONNECTIONS)?,
        reverse: layers.get(&flags::REVERSE)?,
        congestion: layers.get(&flags::CONGESTION)?,
        mtu: layers.get(&flags::MTU)?,
        event_loop,
        gso: layers.get(&flags::GSO)?.unwrap_or(by_loop),
        gro: layers.get(&flags::GRO)?.unwrap_or(by_loop),
        ack_every: layers.get(&flags::ACK_EVERY)?,
        ..Plan::new(layers.get(&flags::TRANSPORT)?, mode)
    };
    plan.check()
        .map_err(|why| Fault::usage("command line", why))?;
    Ok(Action::Client(Box::new(PerfClient {
        server,
        plan,
        json: layers.get(&flags::JSON)?,
    })))
}

/// Returns the bytes or the count if one is given, else the time.
fn amount(layers: &Layers<'_>) -> Result<Amount, Fault> {
    let bytes = layers.get(&flags::BYTES)?;
    let count = layers.get(&flags::COUNT)?;
    match (bytes, count, layers.is_given(&flags::DURATION)) {
        (Some(bytes), None, false) => Ok(Amount::Bytes(bytes)),
        (None, Some(count), false) => Ok(Amount::Count(count)),
        (None, None, _) => layers.get(&flags::DURATION).map(Amount::Time),
        _ => Err(Fault::usage(
            "command line",
            "--duration, --bytes and --count exclude each other: give one of them",
        )),
    }
}

/// Parses a rate: bits per second of a stream, else transactions per second.
fn rate(text: &str, stream: bool) -> Result<u64, InvalidValue> {
    if stream {
        let Rate(bytes) = text.parse()?;
        return Ok(bytes.saturating_mul(8));
    }
    let number = text.trim_end_matches("/s").parse();
    number.map_err(|_| format!("{text:?} is not a transaction rate: write 1000/s").into())
}

fn serve(server: &PerfServer) -> anyhow::Result<()> {
    let stop = stop_by_signal()?;
    let mut notes = match &server.json {
        Some(path) => {
            let file = std::fs::File::create(path);
            Some(file.with_context(|| format!("cannot write {}", path.display()))?)
        }
        None => None,
    };
    let mut ready = |address: SocketAddr| exit::say(&format!("listening on {address}"));
    let mut served = |served: FinishedMeasurement| {
        exit::say(&text::served(&served));
        if let Some(file) = &mut notes {
            let note = text::note(&served);
            if let Err(cause) = writeln!(file, "{note}") {
                exit::say(&format!("{PROGRAM}: cannot write the JSON file: {cause}"));
            }
        }
    };
    quictun_perf::server::run(&server.options, &stop, &mut ready, &mut served)?;
    Ok(())
}

/// Returns a [`Stop`] that the first SIGINT or SIGTERM raises. The second signal ends the program. Must be called
/// before other threads start, so that all of them inherit the blocked signals.
#[expect(
    clippy::exit,
    reason = "a second signal asks for an end without waiting for the other side"
)]
fn stop_by_signal() -> anyhow::Result<Stop> {
    let signals = Signals::hold(&[Signal::INT, Signal::TERM]).context("cannot block signals")?;
    let stop = Stop::new().context("cannot make the stop event")?;
    let raise = stop.clone();
    std::thread::spawn(move || {
        let await_signal = || while let Ok(None) = signals.wait(FOR_EVER) {};
        await_signal();
        raise.raise();
        await_signal();
        std::process::exit(Exit::Interrupted as i32);
    });
    Ok(stop)
}

/// Time for which a thread waits at once if it has nothing else to do.
const FOR_EVER: Duration = Duration::from_hours(1);

fn measure(client: &PerfClient) -> Result<Exit, ProgramError> {
    let stop = stop_by_signal()?;
    let HostPort { host, port, .. } = &client.server;
    let address = (host.as_str(), *port)
        .to_socket_addrs()
        .with_context(|| format!("cannot look up {host}"))?
        .next()
        .with_context(|| format!("{host} has no address"))?;
    let mut progress = ProgressLine::new(client.plan.mode);
    let report = quictun_perf::client::run(address, &client.plan, &stop, &mut |moment| {
        progress.note(moment);
    });
    let report = report.map_err(with_next_step)?;
    print(client, &report)?;
    // The exit code shows that the result is incomplete.
    Ok(if report.interrupted {
        Exit::Interrupted
    } else {
        Exit::Ok
    })
}

fn print(client: &PerfClient, report: &Report) -> anyhow::Result<()> {
    let mut text = text::report(&client.plan, report);
    match &client.json {
        Some(path) if path == Path::new("-") => text = serde_json::to_string(report)? + "\n",
        Some(path) => std::fs::write(path, exit::json(report)?)
            .with_context(|| format!("cannot write {}", path.display()))?,
        None => {}
    }
    Ok(exit::print(&text)?)
}

/// Converts an error, and adds the next step if one is known.
fn with_next_step(error: PerfError) -> ProgramError {
    match error {
        PerfError::Connect(address, source) => {
            let fault = Fault::failure(format!("cannot connect to {address}"), source);
            fault
                .next("`quictun perf server` on the other machine, and its port here")
                .into()
        }
        error => anyhow::Error::from(error).into(),
    }
}

/// Prints a progress line every second, if standard error is a terminal.
struct ProgressLine {
    mode: Mode,
    watched: bool,
    last: ProgressUpdate,
}

impl ProgressLine {
    fn new(mode: Mode) -> Self {
        Self {
            mode,
            watched: std::io::stderr().is_terminal(),
            last: ProgressUpdate {
                elapsed: Duration::ZERO,
                moved: 0,
            },
        }
    }

    fn note(&mut self, moment: ProgressUpdate) {
        let passed = moment.elapsed.saturating_sub(self.last.elapsed);
        if self.watched && passed >= Duration::from_secs(1) {
            let moved = moment.moved.saturating_sub(self.last.moved);
            let rate = text::rate(self.mode, moved, passed.as_secs_f64());
            exit::say(&format!("{:4} s  {rate}", moment.elapsed.as_secs()));
            self.last = moment;
        }
    }
}
