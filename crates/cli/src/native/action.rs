//! The command line of `quictun`, and what it asks for.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{ArgMatches, Command};
use quictun_control::settings::HttpListen;
use quictun_tunnel::settings::ClientSettings;

use crate::{
    connect, demo, doctor, forbidden, invite, join, lab, link, perf, reconnect, status, version,
    wrapped,
};
use quictun_args::fault::Fault;
use quictun_args::inputs::Inputs;
use quictun_args::native::settings::Server;
use quictun_args::native::{self, Configured, PROGRAM, commands};

/// What the user asked for.
#[derive(Debug)]
pub enum Action {
    /// Print this.
    Print(String),
    /// Too little was asked for: print this as an error.
    Usage(String),
    /// Run a server.
    Server(Server),
    /// Run a client.
    Client(ClientSettings),
    /// Carry standard input and output.
    Connect(Box<connect::Plan>),
    /// Keep a tunnel that would be undone.
    Confirm,
    /// Remove what a killed client has left.
    Down,
    /// Print a configuration, or go on checking its file where only the disk can tell.
    Config(Configured),
    /// Invite a client, or look after those who are invited.
    Invite(Box<invite::Options>),
    /// Become a client, with the configuration in this directory.
    Join(PathBuf),
    /// Make a client's identity in this directory.
    Keygen(PathBuf),
    /// Write the manual pages into this directory.
    Man(PathBuf),
    /// Emulate a link.
    Link(link::Action),
    /// Measure.
    Perf(Box<perf::Action>),
    /// Measure scenarios.
    Lab(lab::Action),
    /// Measure, or be measured.
    Bench(quictun_bench::Action),
    /// Run a command behind the tunnel.
    Run(wrapped::Wrapped),
    /// Run the demonstration.
    Demo(demo::Options),
    /// Try what a confined process must not be able to do.
    Forbidden {
        /// A directory to write to.
        outside: PathBuf,
        /// Try it within confinement.
        confine: bool,
    },
    /// Have a running client, at this address, replace its connections.
    Reconnect(HttpListen),
    /// Show how a running process is.
    Status(status::Options),
    /// Examine this machine; print it as JSON or not.
    Doctor(doctor::Options),
    /// Look at the system's settings.
    Tune {
        /// Change them.
        apply: bool,
        /// Print them as JSON.
        json: bool,
    },
}

/// The whole command line.
pub fn command() -> Command {
    commands::program()
        .long_version(version::LONG)
        .subcommands(commands::ends())
        .subcommands(commands::around())
        .subcommands([
            link::flags::command(),
            wrapped::command(),
            forbidden::command(),
            quictun_bench::command(),
        ])
        .subcommands(commands::machine())
        .subcommands([perf::flags::command(), lab::flags::command()])
        .subcommands(commands::about())
}

/// The words of the command line, with `help COMMAND` as `COMMAND --help`.
fn asked(args: &[OsString]) -> Vec<OsString> {
    match args {
        [program, help, rest @ ..] if help == "help" => {
            let words = [program].into_iter().chain(rest);
            words.cloned().chain(["--help".into()]).collect()
        }
        _ => args.to_vec(),
    }
}

/// Reads everything that `quictun` is started with.
pub fn parse(inputs: &Inputs<'_>) -> Result<Action, Fault> {
    let matches = match command().try_get_matches_from(asked(&inputs.args)) {
        Ok(matches) => matches,
        Err(error) if !error.use_stderr() => return Ok(Action::Print(error.render().to_string())),
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            return Ok(Action::Usage(error.render().to_string()));
        }
        Err(error) => return Err(Fault::from_clap(PROGRAM, &error)),
    };
    let (command, matches) = matches
        .subcommand()
        .expect("invariant: clap requires a command");
    match command {
        "server" => native::read_server(matches, inputs).map(Action::Server),
        "client" => native::read_client(matches, inputs).map(Action::Client),
        "connect" => native::read_connect(matches, inputs).map(|(settings, target)| {
            Action::Connect(Box::new(connect::Plan { target, settings }))
        }),
        "confirm" => Ok(Action::Confirm),
        "down" => Ok(Action::Down),
        "config" => native::config(matches, inputs).map(Action::Config),
        "invite" => invite::parse(matches, inputs).map(|options| Action::Invite(Box::new(options))),
        "join" => join::directory(native::path(matches, "out"), inputs).map(Action::Join),
        "keygen" => Ok(Action::Keygen(
            native::path(matches, "out").expect("invariant: clap requires --out"),
        )),
        "completion" => Ok(Action::Print(completion(matches))),
        "man" => Ok(native::path(matches, "out").map_or_else(
            || {
                Action::Print(
                    quictun_args::manual::pages(self::command())
                        .swap_remove(0)
                        .1,
                )
            },
            Action::Man,
        )),
        "version" => Ok(Action::Print(self::command().render_long_version())),
        "link" => link::parse(matches, inputs).map(Action::Link),
        "bench" => quictun_bench::parse(matches)
            .map(Action::Bench)
            .map_err(|error| Fault::usage(error.flag, error)),
        "run" => wrapped::parse(matches, inputs).map(Action::Run),
        "forbidden" => Ok(Action::Forbidden {
            outside: native::path(matches, "outside").unwrap_or_default(),
            confine: !matches.get_flag("no-confine"),
        }),
        "reconnect" => reconnect::parse(matches, inputs).map(Action::Reconnect),
        "status" => status::parse(matches, inputs).map(Action::Status),
        "doctor" => Ok(Action::Doctor(doctor::Options::of(matches))),
        "tune" => Ok(Action::Tune {
            apply: matches.get_flag("apply"),
            json: matches.get_flag("json"),
        }),
        "perf" => perf::parse(matches, inputs).map(|action| Action::Perf(Box::new(action))),
        "lab" => lab::parse(matches, inputs).map(Action::Lab),
        "demo" => Ok(Action::Demo(demo::Options {
            json: matches.get_flag("json"),
            loopback: matches.get_flag("loopback"),
        })),
        _ => unreachable!("invariant: clap knows no other command"),
    }
}

fn completion(matches: &ArgMatches) -> String {
    let text = |name| {
        matches
            .get_one::<String>(name)
            .map(String::as_str)
            .unwrap_or_default()
    };
    quictun_args::manual::completion(text("shell"), text("for"), command())
}
