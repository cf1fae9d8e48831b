//! Signals, and keepers that do not answer, while a tunnel carries traffic.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use quictun_e2e::faults::cell::Process;
use quictun_e2e::faults::storm::StormKind;
use quictun_e2e::faults::stress::{Disturbance, PROCESSES, TunnelEntry, run, survives};
use quictun_testbed::deadline;
use quictun_testbed::isolation::isolated_with;
use quictun_testbed::machine::Machine;
use quictun_testbed::program::{self, Program};
use quictun_testbed::rest::get;
use quictun_testbed::tunnel::{Home, START, listen_address};
use rustix::process::Signal;

use crate::deaths::has_devices;

/// Signals of a storm: many times as many as ended a process that took them for the end of its keeper.
const COUNT: u32 = 100;

fn storm(chosen: impl Fn(Process, TunnelEntry) -> bool) -> Result<()> {
    for (seed, (process, entry)) in (1..).zip(PROCESSES) {
        if !chosen(process, entry) {
            continue;
        }
        let kind = match StormKind::Mixed {
            mixed if survives(process, entry, mixed) => mixed,
            _ => StormKind::Stop,
        };
        run(Disturbance::Storm {
            process,
            entry,
            kind,
            count: COUNT,
            seed,
        })?;
    }
    Ok(())
}

#[test]
fn a_storm_of_signals_to_a_server_or_its_keeper_loses_no_flow() -> Result<()> {
    storm(|process, _| matches!(process, Process::Server | Process::ServerKeeper))
}

#[test]
fn a_storm_of_signals_to_a_client_or_its_keeper_loses_no_flow() -> Result<()> {
    storm(|process, entry| {
        let is_one = matches!(process, Process::Client | Process::ClientKeeper);
        is_one && entry == TunnelEntry::Forward
    })
}

#[test]
fn a_storm_of_signals_to_the_processes_of_a_device_loses_no_flow() -> Result<()> {
    isolated_with(
        |test| Ok(has_devices(test)),
        |()| storm(|_, entry| entry == TunnelEntry::Device),
    )
}

#[test]
fn a_storm_of_signals_to_the_processes_of_a_command_loses_no_flow() -> Result<()> {
    isolated_with(
        |test| Ok(has_devices(test)),
        |()| storm(|_, entry| entry == TunnelEntry::Command),
    )
}

#[test]
fn a_keeper_that_does_not_answer_delays_neither_flows_nor_the_http_interface() -> Result<()> {
    run(Disturbance::StoppedKeeper(Duration::from_secs(12))).map(drop)
}

#[test]
fn a_log_file_that_cannot_be_opened_delays_neither_a_reload_nor_the_http_interface() -> Result<()> {
    let home = Home::new()?;
    let log = home.path().join("server.log");
    let configuration = "[[client]]\nname = 'home'\npsk_file = 'home.psk'\n";
    fs::write(home.path().join("server.toml"), configuration)?;
    fs::write(
        home.path().join("home.psk"),
        "a secret, which is long enough\n",
    )?;
    let mut command = home.command(&Machine::here(), "quictun")?;
    command
        .args(["server", "-c", "server.toml", "--listen", "127.0.0.1:0"])
        .args(["--http", "127.0.0.1:0", "--log-output", "stderr,server.log"]);
    let mut server = Program::start("server", &mut command)?;
    let line = server.wait_for("HTTP interface", START)?;
    let http = listen_address(&line)?.parse()?;
    server.wait_for("Server endpoint start up successful", START)?;
    fs::remove_file(&log)?;
    // Opening a pipe for writing would wait for its reader.
    program::run(Command::new("mkfifo").arg(&log))?;
    server.signal(Signal::HUP)?;
    server.wait_for("a log file stays as it was", START)?;
    server.wait_for("configuration reloaded", START)?;
    ensure!(get(http, "/healthz")?.status == 200);
    fs::remove_file(&log)?;
    server.signal(Signal::HUP)?;
    deadline::until("the log file to be made again", START, || log.exists())?;
    server.signal(Signal::TERM)?;
    let status = server.wait_end(START)?;
    ensure!(status.success(), "{status}");
    server.silence();
    Ok(())
}
