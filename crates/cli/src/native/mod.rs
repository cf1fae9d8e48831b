//! `quictun`: the native programs and everything around them.
//!
//! [`command`] is the command line, [`parse`] a pure function from inputs to what is to be done; [`main`] does it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::error::ErrorKind;
use clap::{ArgMatches, Command};
use quictun_trust::settings::{Access, ClientProof};
use quictun_tunnel::settings::{ClientSettings, ServerSettings};

use crate::exit;
use crate::{
    confirm, demo, doctor, forbidden, host_tun, lab, link, manual, perf, run, status, tune, wrapped,
};
use quictun_args::fault::{Exit, Fault};
use quictun_args::inputs::Inputs;
use quictun_args::native::settings::Server;
use quictun_args::native::{self, Configured, PROGRAM, commands};

mod reload;

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
    /// Keep a tunnel that would be undone.
    Confirm,
    /// Remove what a killed client has left.
    Down,
    /// Go on checking a server's file where only the disk can tell.
    CheckServer(PathBuf, Server),
    /// Go on checking a client's file where only the disk can tell.
    CheckClient(PathBuf, ClientSettings),
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
    Forbidden(forbidden::Forbidden),
    /// Show how a running process is.
    Status(status::Options),
    /// Examine this machine; print it as JSON or not.
    Doctor(bool),
    /// Look at the system's settings.
    Tune {
        /// Change them.
        apply: bool,
        /// Print them as JSON.
        json: bool,
    },
}

/// `quictun`, from the arguments to the exit code.
pub fn main() -> ExitCode {
    let asked = parse(&Inputs::of_process());
    if let Ok(Action::Usage(text)) = &asked {
        exit::say(text.trim_end());
        return Exit::Usage.into();
    }
    let asked = match asked {
        Ok(Action::Link(action)) => return link::main(action),
        Ok(Action::Perf(action)) => return perf::main(*action),
        Ok(Action::Lab(action)) => return lab::main(action),
        Ok(Action::Bench(action)) => return bench(&action),
        Ok(Action::Run(plan)) => return wrapped::main(&plan),
        Ok(Action::Demo(options)) => return demo::main(PROGRAM, options),
        Ok(Action::Status(options)) => return status::main(&options),
        Ok(Action::Doctor(json)) => return doctor::main(json),
        Ok(Action::Tune { apply, json }) => return tune::main(apply, json),
        Ok(Action::Client(settings)) => match host_tun::wanted(&settings) {
            Some(host) => return host.main(PROGRAM, std::env::args_os().skip(1).collect()),
            None => Ok(Action::Client(settings)),
        },
        other => other,
    };
    let outcome = asked.map_err(anyhow::Error::from).and_then(act);
    exit::report(PROGRAM, outcome).into()
}

/// The whole command line.
pub fn command() -> Command {
    commands::program().subcommands([
        commands::server(),
        commands::client(),
        commands::confirm(),
        commands::down(),
        commands::status(),
        commands::config(),
        commands::keygen(),
        commands::demo(),
        link::flags::command(),
        wrapped::command(),
        forbidden::command(),
        quictun_bench::command(),
        commands::doctor(),
        commands::tune(),
        perf::flags::command(),
        lab::flags::command(),
        commands::completion(),
        commands::man(),
        commands::version(),
    ])
}

/// Reads everything that `quictun` is started with.
pub fn parse(inputs: &Inputs<'_>) -> Result<Action, Fault> {
    let matches = match command().try_get_matches_from(&inputs.args) {
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
        "confirm" => Ok(Action::Confirm),
        "down" => Ok(Action::Down),
        "config" => native::config(matches, inputs).map(|configured| match configured {
            Configured::Print(text) => Action::Print(text),
            Configured::Server(path, server) => Action::CheckServer(path, server),
            Configured::Client(path, client) => Action::CheckClient(path, client),
        }),
        "keygen" => Ok(Action::Keygen(
            native::path(matches, "out").expect("invariant: clap requires --out"),
        )),
        "completion" => Ok(Action::Print(completion(matches))),
        "man" => Ok(native::path(matches, "out").map_or_else(
            || Action::Print(quictun_args::manual::page(self::command())),
            Action::Man,
        )),
        "version" => Ok(Action::Print(self::command().render_version())),
        "link" => link::parse(matches, inputs).map(Action::Link),
        "bench" => quictun_bench::parse(matches)
            .map(Action::Bench)
            .map_err(|error| Fault::usage(error.flag, error)),
        "run" => wrapped::parse(matches, inputs).map(Action::Run),
        "forbidden" => Ok(Action::Forbidden(forbidden::parse(matches))),
        "status" => status::parse(matches, inputs).map(Action::Status),
        "doctor" => Ok(Action::Doctor(matches.get_flag("json"))),
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

fn bench(action: &quictun_bench::Action) -> ExitCode {
    let outcome = quictun_bench::run(action, &exit::say).and_then(|text| exit::print(&text));
    exit::report(action.program(), outcome).into()
}

fn act(action: Action) -> anyhow::Result<()> {
    match action {
        Action::Print(text) | Action::Usage(text) => exit::print(&text),
        Action::Server(server) => {
            warn(&server.warnings);
            if let Some(psk) = &server.make_psk {
                // A rule that makes no sense must leave nothing behind.
                run::check_server(&existing(&server))?;
                run::ensure_psk(psk)
                    .with_context(|| format!("making the secret {}", psk.display()))?;
            }
            run::server(server.settings, Some(Arc::new(reload::read_server)))
        }
        Action::Client(settings) => run::client(settings, Some(Arc::new(reload::read_client))),
        Action::Confirm => confirm::main(),
        Action::Down => host_tun::down(),
        Action::CheckServer(path, server) => {
            warn(&server.warnings);
            let settings = existing(&server);
            run::check_server(&settings).with_context(|| path.display().to_string())?;
            let mut line = format!("{}: in order", path.display());
            if denies_all(&settings) {
                line.push_str(", but no client may reach any target");
            }
            exit::print(&format!("{line}\n"))?;
            exit::print(&reload::would_change(&server.settings))
        }
        Action::CheckClient(path, settings) => {
            run::check_client(&settings).with_context(|| path.display().to_string())?;
            exit::print(&format!("{}: in order\n", path.display()))
        }
        Action::Keygen(dir) => {
            let pin =
                run::generate_identity(&dir, "client").context("making a client's identity")?;
            exit::print(&format!(
                "{}\n{}\n{pin}\n",
                dir.join("client.key").display(),
                dir.join("client.crt").display()
            ))
        }
        Action::Man(dir) => manual::write_pages(&dir),
        Action::Forbidden(plan) => forbidden::main(&plan),
        Action::Link(_)
        | Action::Perf(_)
        | Action::Run(_)
        | Action::Lab(_)
        | Action::Bench(_)
        | Action::Demo(_)
        | Action::Status(_)
        | Action::Doctor(_)
        | Action::Tune { .. } => {
            unreachable!("invariant: main() has its own way for these")
        }
    }
}

fn warn(warnings: &[String]) {
    for line in warnings {
        exit::say(&format!("{PROGRAM}: warning: {line}"));
    }
}

fn denies_all(settings: &ServerSettings) -> bool {
    matches!(&settings.access, Access::Named { clients, .. } if clients.iter().all(|client| client.allow.is_empty()))
}

/// A server's settings without the secret that its first run makes.
fn existing(server: &Server) -> ServerSettings {
    let mut settings = server.settings.clone();
    if let (Access::Named { clients, .. }, Some(made)) = (&mut settings.access, &server.make_psk) {
        let made = ClientProof::PskFile(made.clone());
        for client in clients {
            client.proofs.retain(|proof| *proof != made);
        }
    }
    settings
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
