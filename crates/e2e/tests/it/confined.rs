//! The rights that running programs have given up, as the kernel reports them, and the functions that still work.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use quictun_skip::skipped;
use quictun_testbed::application::{Application, through_echo};
use quictun_testbed::binaries;
use quictun_testbed::deadline;
use quictun_testbed::isolation::isolated;
use quictun_testbed::machine::Machine;
use quictun_testbed::payload::Payload;
use quictun_testbed::program::{Program, command, run};
use quictun_testbed::tunnel::{Client, Home, START, Server, Tunnel, listen_address, server_pin};
use rustix::process::{Pid, Signal, getuid, kill_process, test_kill_process};

use crate::native::bare;
use crate::reverse::bound;

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

/// Finds the open files of a process, by path.
fn open_files(pid: Pid) -> Result<Vec<std::path::PathBuf>> {
    let descriptors = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_pid()))?;
    // The keeper may close a descriptor meanwhile.
    let files = descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    Ok(files.collect())
}

/// Starts a program with a file open at a descriptor of which the program knows nothing.
fn with_open_file(
    file: &std::path::Path,
    command: &std::process::Command,
) -> std::process::Command {
    let mut shell = quictun_testbed::program::command("sh");
    shell.args(["-c", "exec 7<\"$0\"; exec \"$@\""]).arg(file);
    shell.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        shell.current_dir(directory);
    }
    shell
}

// SECURITY-MODEL, "uses files and sockets that the program's starter has left open".
#[test]
fn files_that_the_starter_has_left_open_are_closed() -> Result<()> {
    if !getuid().is_root() {
        skipped(
            "confined",
            "only root sees the descriptors of a process that hides its memory",
        );
        return Ok(());
    }
    let directory = tempfile::tempdir()?;
    let secret = directory.path().join("secret");
    fs::write(&secret, "a secret of the starter")?;
    let home = Home::new()?;
    let mut command = home.command(&Machine::here(), "quictun")?;
    command.args(["server", "--listen", "127.0.0.1:0", "--http", "off"]);
    command.args(["--allow", "127.0.0.1:9"]);
    let mut command = with_open_file(&secret, &command);
    let server = Server::from_command(home, &mut command)?;
    let home = Home::new()?;
    let mut command = home.command(&Machine::here(), "quictun-client")?;
    command
        .args(["--server-endpoint", &server.address.to_string()])
        .args(["--listen-on", "tcp:127.0.0.1:0", "--httpd-listen-on", "off"])
        .args(["--token-source-plugin", "Fixed"])
        .args(["--token-source", "tcp:127.0.0.1:9"]);
    let mut command = with_open_file(&secret, &command);
    let client = Client::from_command(home, &mut command)?;
    for program in [&server.program, &client.program] {
        let own = Pid::from_raw(program.pid().cast_signed()).context("a process id")?;
        for pid in [own, keeper(program)?] {
            let files = open_files(pid)?;
            ensure!(!files.is_empty() && !files.contains(&secret), "{files:?}");
        }
    }
    Ok(())
}

/// The capabilities that the keeper of root has at most: `CAP_DAC_OVERRIDE` and `CAP_NET_BIND_SERVICE`.
const KEPT: u64 = 1 << 1 | 1 << 10;

// SECURITY-MODEL, "takes over the keeper process by what it asks".
#[test]
fn the_keeper_of_root_has_two_capabilities_and_reads_files_of_other_users() -> Result<()> {
    if !getuid().is_root() {
        skipped("confined", "only root has capabilities to keep");
        return Ok(());
    }
    isolated(|| {
        // The name of the closure tells which test runs.
        capabilities_and_uses_of_a_keeper()?;
        Ok(())
    })
}

fn capabilities_and_uses_of_a_keeper() -> Result<()> {
    let home = Home::new()?;
    let other = home.path().join("other");
    fs::create_dir(&other)?;
    fs::write(other.join("secret.psk"), "a secret, long enough\n")?;
    let file = other.join("server.toml");
    let table =
        "[[client]]\nname = 'a'\npsk_file = 'other/secret.psk'\nlisten = ['127.0.0.1:80']\n";
    fs::write(&file, table)?;
    let log = other.join("log");
    fs::write(&log, "")?;
    for (path, mode) in [(&other, 0o700), (&file, 0o600), (&log, 0o600)] {
        std::os::unix::fs::chown(path, Some(65534), Some(65534))?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    let mut command = home.command(&Machine::here(), "quictun")?;
    command.args(["server", "--listen", "127.0.0.1:0", "--http", "off"]);
    command.args(["-c", "other/server.toml"]);
    command.args(["--log-output", "stdout", "--log-output", "other/log"]);
    let mut server = Program::start("server", &mut command)?;
    let line = server.wait_for("Server endpoint start up successful", START)?;
    let status = format!("/proc/{}/status", keeper(&server)?.as_raw_pid());
    let status = fs::read_to_string(status)?;
    for (set, most) in [
        ("CapInh:", 0),
        ("CapPrm:", KEPT),
        ("CapEff:", KEPT),
        ("CapBnd:", 0),
        ("CapAmb:", 0),
    ] {
        let line = status.lines().find_map(|line| line.strip_prefix(set));
        let has = u64::from_str_radix(line.context("no such line")?.trim(), 16)?;
        // A container may lack some.
        ensure!(has & !most == 0, "{set} {has:x}");
    }
    ensure!(status.contains("NoNewPrivs:\t1"), "{status}");
    server.signal(Signal::HUP)?;
    server.wait_for("configuration reloaded", SOON)?;
    ensure!(!server.has_printed("a log file stays as it was"));
    let application = Application::echo()?;
    let mut command = home.command(&Machine::here(), "quictun")?;
    let (address, pin) = (listen_address(&line)?, server_pin(&line)?);
    command.args([
        "client", "--server", &address, "--pin", &pin, "--http", "off",
    ]);
    command.args(["--psk-file", "other/secret.psk"]);
    let forward = format!("127.0.0.1:80={}", bare(&application.target()));
    let mut client = Program::start("client", command.args(["-R", &forward]))?;
    through_echo(&bound(&mut client)?, SOME)
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
