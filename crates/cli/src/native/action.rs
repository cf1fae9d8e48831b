//! The command line of `quictun`, and the action that it requests.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{ArgMatches, Command};
use quictun_control::settings::HttpListen;

use crate::{
    connect, demo, doctor, drain, forbidden, invite, join, lab, link, perf, reconnect, status,
    version, wrapped,
};
use quictun_args::fault::Fault;
use quictun_args::inputs::Inputs;
use quictun_args::native::settings::{Client, Server};
use quictun_args::native::{self, ConfigTask, commands};

/// The action that a command line requests.
#[derive(Debug)]
pub enum Action {
    /// Print this text and succeed.
    Print(String),
    /// Print this text as an error, because the command line is incomplete.
    Usage(String),
    /// Run a server until a signal ends it.
    Server(Server),
    /// Run a client until a signal ends it.
    Client(Client),
    /// Carry standard input and output to one target.
    Connect(Box<connect::ConnectPlan>),
    /// Keep a tunnel that would be undone without a confirmation.
    Confirm,
    /// Remove the network settings that a killed client has left.
    Down,
    /// Print a configuration, or continue the check of its file with the parts that need the disk.
    Config(ConfigTask),
    /// Invite a client, or list and revoke the clients that are invited or have joined.
    Invite(Box<invite::Options>),
    /// Become a client of a server.
    Join(join::Options),
    /// Make a client's identity in this directory.
    Keygen(PathBuf),
    /// Write the manual pages into this directory.
    Man(PathBuf),
    /// Emulate a link for any program.
    Link(link::Action),
    /// Measure the traffic between two programs.
    Perf(Box<perf::Action>),
    /// Measure scenarios, or evaluate their results.
    Lab(lab::Action),
    /// Run a benchmark, or the helper process of one.
    Bench(quictun_bench::Action),
    /// Run a command behind the tunnel.
    Run(wrapped::WrappedCommand),
    /// Run the demonstration on this machine.
    Demo(demo::Options),
    /// Try actions that confinement must prevent.
    Forbidden {
        /// A directory to which the process could write without confinement.
        outside: PathBuf,
        /// Try it under confinement.
        confine: bool,
    },
    /// Make the running client with this HTTP interface replace its connections.
    Reconnect(HttpListen),
    /// Make a process end once its flows have ended.
    Drain(drain::Options),
    /// Show the state of a running process.
    Status(status::Options),
    /// Examine this machine, or print commands for the packet filter.
    Doctor(doctor::Options),
    /// Compare the system's settings with the recommended ones.
    Tune {
        /// Change the settings that differ.
        apply: bool,
        /// Print the settings as JSON.
        json: bool,
    },
}

/// Returns the definition of the whole command line for clap.
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

/// Rewrites `help COMMAND` as `COMMAND --help`.
fn asked(args: &[OsString]) -> Vec<OsString> {
    match args {
        [program, help, rest @ ..] if help == "help" => {
            let words = [program].into_iter().chain(rest);
            words.cloned().chain(["--help".into()]).collect()
        }
        _ => args.to_vec(),
    }
}

/// Parses the arguments, environment and files of `quictun`.
pub fn parse(inputs: &Inputs<'_>) -> Result<Action, Fault> {
    let args = asked(&inputs.args);
    let matches = match command().try_get_matches_from(&args) {
        Ok(matches) => matches,
        Err(error) if !error.use_stderr() => return Ok(Action::Print(error.render().to_string())),
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            return Ok(Action::Usage(error.render().to_string()));
        }
        Err(error) => {
            let named = commands::named(&command(), &args);
            return Err(Fault::from_clap(&named, &error));
        }
    };
    let (command, matches) = matches
        .subcommand()
        .expect("invariant: clap requires a command");
    match command {
        "server" => native::read_server(matches, inputs).map(Action::Server),
        "client" => native::read_client(matches, inputs).map(Action::Client),
        "connect" => native::read_connect(matches, inputs).map(|(settings, target)| {
            Action::Connect(Box::new(connect::ConnectPlan { target, settings }))
        }),
        "confirm" => Ok(Action::Confirm),
        "down" => Ok(Action::Down),
        "config" => native::config(matches, inputs).map(Action::Config),
        "invite" => invite::parse(matches, inputs).map(|options| Action::Invite(Box::new(options))),
        "join" => join::parse(matches, inputs).map(Action::Join),
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
        "drain" => drain::parse(matches, inputs).map(Action::Drain),
        "reconnect" => reconnect::parse(matches, inputs).map(Action::Reconnect),
        "status" => status::parse(matches, inputs).map(Action::Status),
        "doctor" => doctor::Options::of(matches, inputs).map(Action::Doctor),
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
    quictun_args::completion::script(text("shell"), text("for"), &command())
}
