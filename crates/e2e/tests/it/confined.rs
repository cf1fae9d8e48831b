//! The rights that running programs have given up, as the kernel reports them, and the functions that still work.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use quictun_testbed::application::{Application, through_echo};
use quictun_testbed::binaries;
use quictun_testbed::deadline;
use quictun_testbed::machine::Machine;
use quictun_testbed::payload::Payload;
use quictun_testbed::program::{Program, command, run};
use quictun_testbed::tunnel::{Client, Home, Server, Tunnel};
use rustix::process::{Pid, Signal, getuid, kill_process, test_kill_process};

const SOON: Duration = Duration::from_secs(10);
const SOME: Payload = Payload {
    seed: 22,
    bytes: 1 << 20,
};

/// The minimum number of attempts that `quictun forbidden` must make.
const ATTEMPTS: usize = 20;

/// Runs `quictun forbidden`; returns the number of refused attempts, and the lines of all others.
fn forbidden(user: &[&str], arguments: &[&str]) -> Result<(usize, Vec<String>)> {
    // Every user may write here, so only confinement can prevent it.
    let outside = tempfile::tempdir()?;
    fs::set_permissions(outside.path(), fs::Permissions::from_mode(0o1777))?;
    let program = binaries::path("quictun")?;
    let mut command = match user.split_first() {
        Some((first, rest)) => {
            let mut command = command(first);
            command.args(rest).arg(program);
            command
        }
        None => command(program),
    };
    command
        .arg("forbidden")
        .arg("--outside")
        .arg(outside.path());
    let said = run(command.args(arguments))?;
    let refused = said.lines().filter(|line| line.starts_with("refused"));
    let possible = said.lines().filter(|line| !line.starts_with("refused"));
    Ok((refused.count(), possible.map(str::to_owned).collect()))
}

#[test]
fn twenty_forbidden_operations_are_refused_to_every_user() -> Result<()> {
    let nobody = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
    ];
    let users: &[&[&str]] = if getuid().is_root() {
        &[&[], &nobody]
    } else {
        &[&[]]
    };
    for user in users {
        let (refused, possible) = forbidden(user, &[])?;
        ensure!(
            refused >= ATTEMPTS && possible.is_empty(),
            "{user:?}: {possible:#?}"
        );
        let (_, possible) = forbidden(user, &["--no-confine"])?;
        ensure!(possible.len() >= ATTEMPTS / 4, "{user:?}: {possible:#?}");
    }
    Ok(())
}

/// Returns the kernel's status of each thread of a process.
fn threads(program: &Program) -> Result<Vec<String>> {
    let threads = fs::read_dir(format!("/proc/{}/task", program.pid()))?;
    let status = |thread: std::io::Result<fs::DirEntry>| {
        Ok(fs::read_to_string(thread?.path().join("status"))?)
    };
    threads.map(status).collect()
}

const CONFINED: [&str; 6] = [
    "Seccomp:\t2",
    "NoNewPrivs:\t1",
    "CapInh:\t0000000000000000",
    "CapPrm:\t0000000000000000",
    "CapEff:\t0000000000000000",
    "CapAmb:\t0000000000000000",
];

#[test]
fn every_thread_of_both_programs_is_confined_and_a_flow_passes() -> Result<()> {
    let application = Application::echo()?;
    let verbose = ["--log-level", "debug"];
    let tunnel = Tunnel::with(&application.target(), &verbose, &verbose)?;
    through_echo(&tunnel.client.forward, SOME)?;
    for program in [&tunnel.client.program, &tunnel.server.program] {
        let threads = threads(program)?;
        ensure!(threads.len() > 1, "{threads:?}");
        for thread in threads {
            let missing = CONFINED.iter().find(|line| !thread.contains(*line));
            ensure!(missing.is_none(), "{missing:?}: {thread}");
        }
        ensure!(program.has_printed("confined: "), "{:?}", program.lines());
    }
    Ok(())
}

#[test]
fn confinement_can_be_switched_off_with_a_warning() -> Result<()> {
    let off = ["--no-confine"];
    let application = Application::echo()?;
    let tunnel = Tunnel::with(&application.target(), &off, &off)?;
    through_echo(&tunnel.client.forward, SOME)?;
    for program in [&tunnel.client.program, &tunnel.server.program] {
        ensure!(program.has_printed("UNSAFE: this process is not confined"));
        let filtered = threads(program)?;
        let filtered = filtered
            .iter()
            .filter(|thread| thread.contains("Seccomp:\t2"));
        ensure!(filtered.count() == 0);
        ensure!(keeper(program).is_err(), "unconfined, with a keeper");
    }
    Ok(())
}

/// Finds the keeper, the process that opens files for this one.
fn keeper(program: &Program) -> Result<Pid> {
    let path = format!("/proc/{0}/task/{0}/children", program.pid());
    let children = fs::read_to_string(path)?;
    let child = children.split_whitespace().next().context("no child")?;
    Pid::from_raw(child.parse()?).context("invariant: a process id is not 0")
}

#[test]
fn a_replaced_token_file_is_read_and_a_moved_log_is_created_again() -> Result<()> {
    let application = Application::echo()?;
    let server = Server::start(&[])?;
    let home = Home::new()?;
    let (tokens, log) = (home.path().join("tokens"), home.path().join("log"));
    fs::write(&tokens, "* 127.0.0.1:9\n")?;
    let mut command = home.command(&Machine::here(), "quictun-client")?;
    command
        .args(["--server-endpoint", &server.address.to_string()])
        .args(["--listen-on", "tcp:127.0.0.1:0", "--httpd-listen-on", "off"])
        .args(["--token-source-plugin", "File", "--token-source", "tokens"])
        .args(["--log-output-paths", "stdout,log"]);
    let mut client = Client::from_command(home, &mut command)?;
    let replacement = client.home.path().join("new");
    fs::write(&replacement, format!("* {}\n", application.target()))?;
    fs::rename(&replacement, &tokens)?;
    through_echo(&client.forward, SOME)?;
    fs::rename(&log, client.home.path().join("log.1"))?;
    client.program.signal(Signal::HUP)?;
    client.program.wait_for("SIGHUP: ", SOON)?;
    through_echo(&client.forward, SOME)?;
    let made = || {
        Ok(fs::read_to_string(&log)
            .ok()
            .filter(|text| !text.is_empty()))
    };
    deadline::wait("lines in the new log file", SOON, made)?;
    Ok(())
}

#[test]
fn neither_process_outlives_the_other() -> Result<()> {
    let mut tunnel = Tunnel::to("127.0.0.1:9")?;
    let first = keeper(&tunnel.server.program)?;
    tunnel.server.program.kill()?;
    deadline::wait("the kernel to end the keeper", SOON, || {
        Ok(test_kill_process(first).is_err().then_some(()))
    })?;
    let second = keeper(&tunnel.client.program)?;
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        kill_process(second, signal)?;
    }
    ensure!(tunnel.client.program.ended()?.is_none());
    kill_process(second, Signal::KILL)?;
    let status = tunnel.client.program.wait_end(SOON)?;
    ensure!(status.code() == Some(101), "{status}");
    ensure!(
        tunnel
            .client
            .program
            .has_printed("quictun-keeper, has died")
    );
    Ok(())
}

#[test]
fn a_unix_socket_is_reached_from_inside() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("application");
    let listener = std::os::unix::net::UnixListener::bind(&path)?;
    let served = std::thread::spawn(move || -> Result<()> {
        listener.accept()?.0.write_all(b"from a Unix socket")?;
        Ok(())
    });
    let target = format!("unix:{}", path.display());
    let tunnel = Tunnel::with(&target, &["--allow-unix"], &[])?;
    let mut said = String::new();
    std::io::Read::read_to_string(&mut tunnel.client.forward.connect()?, &mut said)?;
    ensure!(said == "from a Unix socket", "{said:?}");
    served.join().ok().context("the application panicked")?
}

#[test]
fn world_readable_secrets_and_directories_cause_a_warning() -> Result<()> {
    let home = Home::new()?;
    let (state, psk) = (
        home.path().join("state"),
        home.path().join("state/client.psk"),
    );
    let mut command = home.command(&Machine::here(), "quictun")?;
    command.args(["server", "--listen", "127.0.0.1:0", "--http", "off"]);
    command.args(["--allow", "127.0.0.1:9"]);
    let mut server = Server::from_command(home, &mut command)?;
    let mode = |path: &std::path::Path| -> Result<u32> {
        Ok(fs::metadata(path)?.permissions().mode() & 0o777)
    };
    ensure!(mode(&state)? == 0o700 && mode(&psk)? == 0o600);
    ensure!(mode(&state.join("server.key"))? == 0o600);
    ensure!(!server.program.has_printed("is open to every user"));
    server.program.kill()?;
    fs::set_permissions(&state, fs::Permissions::from_mode(0o755))?;
    fs::set_permissions(&psk, fs::Permissions::from_mode(0o644))?;
    let server = Server::from_command(server.home, &mut command)?;
    for line in ["chmod 700", "chmod 600"] {
        ensure!(
            server.program.has_printed(line),
            "{line}: {:?}",
            server.program.lines()
        );
    }
    Ok(())
}
