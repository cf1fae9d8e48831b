//! SIGHUP from a terminal that has closed.

use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Result, ensure};
use quictun_testbed::binaries;
use quictun_testbed::machine::Machine;
use quictun_testbed::program::Program;
use quictun_testbed::tunnel::{Home, START};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};

const SOON: Duration = Duration::from_secs(20);

/// Starts a server as the only program of a terminal, after the shell commands `first`; also returns the terminal.
fn server(home: &Home, first: &str) -> Result<(Program, OwnedFd)> {
    // Programs that other tests start must not keep the terminal open.
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let terminal = openpt(flags)?;
    grantpt(&terminal)?;
    unlockpt(&terminal)?;
    let inside = ioctl_tiocgptpeer(&terminal, flags)?;
    let program = binaries::path("quictun")?;
    let program = program.display();
    let line = format!("{first} exec {program} server --listen 127.0.0.1:0 --http off");
    // The tests themselves may run under `nohup`, which ignores SIGHUP.
    let mut command = Machine::here().command("env");
    command.args([
        "--default-signal=HUP",
        "setsid",
        "--ctty",
        "sh",
        "-c",
        &line,
    ]);
    home.settle(&mut command);
    let mut program = Program::start_with("server", &mut command, Stdio::from(inside))?;
    program.wait_for("start up successful", START)?;
    Ok((program, terminal))
}

#[test]
fn a_server_ends_with_its_terminal_unless_nohup_is_set() -> Result<()> {
    let home = Home::new()?;
    let (mut program, terminal) = server(&home, "")?;
    program.signal(Signal::HUP)?;
    program.wait_for("configuration reloaded", SOON)?;
    drop(terminal);
    let status = program.wait_end(SOON)?;
    ensure!(status.success(), "{status}");
    ensure!(program.has_printed("SIGHUP: the terminal has closed"));
    let (mut program, terminal) = server(&home, "trap '' HUP;")?;
    drop(terminal);
    program.wait_for("configuration reloaded", SOON)?;
    program.signal(Signal::TERM)?;
    let status = program.wait_end(SOON)?;
    ensure!(status.success(), "{status}");
    Ok(())
}
