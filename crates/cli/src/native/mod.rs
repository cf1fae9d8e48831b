//! `quictun`: the native programs and all other commands.
//!
//! [`parse`] turns the inputs into an [`Action`]; [`main`] runs it.

use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use quictun_control::settings::{ControlSettings, LogFormat};
use quictun_trust::identity;
use quictun_wire::handover::HandoverKind;

use crate::exit::{self, ProgramError};
use crate::{
    client, confirm, connect, demo, doctor, drain, forbidden, host_tun, invite, join, lab, link,
    perf, reconnect, reload_running, status, tune, version, wrapped,
};
use quictun_args::fault::Exit;
use quictun_args::inputs::Inputs;
use quictun_args::manual;
use quictun_args::native::settings::{Client, Server};
use quictun_args::native::{self, ConfigTask};
use quictun_args::programs::QUICTUN;

mod action;
mod check;
mod reload;

pub use action::{Action, command, parse};

/// Runs `quictun`, from its arguments to its exit code.
pub fn main() -> ExitCode {
    let inputs = Inputs::of_process();
    let warn_of_variables = || warn(&native::misspelt_variables(&inputs));
    let outcome = match parse(&inputs) {
        Err(fault) => {
            // A misspelt variable may be the cause.
            warn_of_variables();
            Err(fault.into())
        }
        Ok(Action::Usage(text)) => {
            exit::say(text.trim_end());
            return Exit::Usage.into();
        }
        Ok(Action::Client(client)) => {
            // The client that a supervisor starts warns itself.
            if let Some(host) = host_tun::wanted(&client.settings) {
                return host.main(QUICTUN, std::env::args_os().skip(1).collect());
            }
            warn_of_variables();
            run_client(client)
        }
        Ok(Action::Connect(plan)) => return connect::main(*plan),
        Ok(Action::Link(action)) => return link::main(action),
        Ok(Action::Perf(action)) => return perf::main(*action),
        Ok(Action::Lab(action)) => return lab::main(action),
        Ok(Action::Bench(action)) => return bench(&action),
        Ok(Action::Run(plan)) => return wrapped::main(&plan),
        Ok(Action::Demo(options)) => return demo::main(QUICTUN, options),
        Ok(Action::Status(options)) => return status::main(&options),
        Ok(Action::Doctor(options)) => return doctor::main(options),
        Ok(Action::Tune { apply, json }) => return tune::main(apply, json),
        Ok(Action::Server(server)) => {
            warn_of_variables();
            run_server(server)
        }
        Ok(Action::Config(ConfigTask::Server(path, server))) => {
            warn(&server.warnings);
            check::server_file(&path, &server)
        }
        Ok(Action::Config(ConfigTask::Client(path, settings))) => {
            check::client_file(&path, &settings).map_err(ProgramError::from)
        }
        Ok(Action::Reconnect(at)) => reconnect::main(&at).map_err(ProgramError::from),
        Ok(Action::Drain(options)) => drain::main(&options).map_err(ProgramError::from),
        Ok(Action::Confirm) => confirm::main(),
        Ok(Action::Print(text) | Action::Config(ConfigTask::Print(text))) => {
            exit::print(&text).map_err(ProgramError::from)
        }
        Ok(Action::Down) => host_tun::down().map_err(ProgramError::from),
        Ok(Action::Invite(options)) => invite::main(&options),
        Ok(Action::Join(options)) => join::main(&options),
        Ok(Action::Keygen(dir)) => keygen(&dir).map_err(ProgramError::from),
        Ok(Action::Man(dir)) => write_pages(&dir).map_err(ProgramError::from),
        Ok(Action::Forbidden { outside, confine }) => {
            forbidden::main(&outside, confine).map_err(ProgramError::from)
        }
    };
    exit::report(QUICTUN, outcome).into()
}

fn bench(action: &quictun_bench::Action) -> ExitCode {
    let outcome = quictun_bench::run(action, &exit::say).map_err(ProgramError::of_measuring);
    let outcome = outcome.and_then(|text| Ok(exit::print(&text)?));
    exit::report(action.program(), outcome).into()
}

fn run_client(client: Client) -> Result<(), ProgramError> {
    let Client {
        mut settings,
        restart_settings,
        reload,
    } = client;
    if reload {
        let directory = settings.state_dir.as_deref();
        return reload_running::main(HandoverKind::Client, directory);
    }
    settings.control.program = version::WITH_COMMIT;
    if settings.tun.is_none() {
        settings.control.banner = banner(&settings.control);
    }
    let again = move || reload::read_client(&restart_settings);
    client::run(settings, Some(Arc::new(again)))
}

fn run_server(server: Server) -> Result<(), ProgramError> {
    if server.reload {
        let directory = Some(server.state_dir.as_path());
        return reload_running::main(HandoverKind::Server, directory);
    }
    warn(&server.warnings);
    if let Some(psk) = &server.make_psk {
        // An invalid configuration must not leave a secret behind.
        check::server_settings(&server)?;
        identity::ensure_psk(psk)
            .with_context(|| format!("cannot make the secret {}", psk.display()))
            .with_context(|| format!("--state-dir {}", server.state_dir.display()))?;
    }
    let Server {
        mut settings,
        restart_settings,
        ..
    } = server;
    settings.control.banner = banner(&settings.control);
    settings.control.program = version::WITH_COMMIT;
    let again = move || reload::read_server(&restart_settings);
    Ok(quictun_tunnel::server::run(
        settings,
        Some(Arc::new(again)),
    )?)
}

/// Returns a printer for the few lines that replace the log's start-up lines when a person reads the log at a terminal.
fn banner(control: &ControlSettings) -> Option<fn(&str)> {
    let ControlSettings { log, .. } = control;
    let is_for_people = log.format == LogFormat::Text && log.outputs == ["stderr"];
    // The lines fit 80 columns, and contain a command to copy.
    let says: fn(&str) = exit::say_as_written;
    (is_for_people && std::io::stderr().is_terminal()).then_some(says)
}

fn keygen(dir: &Path) -> anyhow::Result<()> {
    let pin = identity::generate(dir, "client").context("making a client's identity")?;
    let (key, certificate) = (dir.join("client.key"), dir.join("client.crt"));
    let (key, certificate) = (key.display(), certificate.display());
    Ok(exit::print(&format!("{key}\n{certificate}\n{pin}\n"))?)
}

/// Writes all manual pages into a directory, and makes the directory if it is missing.
fn write_pages(dir: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir)
        .with_context(|| format!("cannot make the directory {}", dir.display()))?;
    for (name, text) in manual::pages(command()) {
        let path = dir.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        exit::print(&format!("{}\n", path.display()))?;
    }
    Ok(())
}

fn warn(warnings: &[String]) {
    for line in warnings {
        exit::say(&format!("{QUICTUN}: warning: {line}"));
    }
}
