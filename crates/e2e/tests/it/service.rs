//! Running under a service manager: signals, readiness, passed sockets.

use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use quictun_testbed::application::{Application, through_echo};
use quictun_testbed::binaries;
use quictun_testbed::connection::Endpoint;
use quictun_testbed::deadline;
use quictun_testbed::machine::Machine;
use quictun_testbed::payload::Payload;
use quictun_testbed::program::{Program, command};
use quictun_testbed::tunnel::{Client, Home, START, Server, Tunnel, server_pin};
use rustix::process::Signal;

const SOON: Duration = Duration::from_secs(10);
const SOME: Payload = Payload {
    seed: 71,
    bytes: 1 << 20,
};

#[test]
fn sigterm_lets_open_flows_finish_and_ends_with_0() -> Result<()> {
    for who in ["server", "client"] {
        let application = Application::echo()?;
        let mut tunnel = Tunnel::with(
            &application.target(),
            &["--drain", "20s"],
            &["--drain", "20s"],
        )?;
        let mut connection = tunnel.client.forward.connect()?;
        connection.write_all(b"before")?;
        connection.read_exact(&mut [0; 6])?;
        let program = match who {
            "server" => &mut tunnel.server.program,
            _ => &mut tunnel.client.program,
        };
        program.signal(Signal::TERM)?;
        program.wait_for("a second signal ends at once", SOON)?;
        SOME.write_to(&mut connection).context(who)?;
        SOME.read_from(&mut connection).context(who)?;
        ensure!(
            program.ended()?.is_none(),
            "the {who} ended with an open flow"
        );
        connection.finish()?;
        ensure!(connection.read(&mut [0; 1])? == 0, "no clean end");
        drop(connection);
        let status = program.wait_end(SOON)?;
        ensure!(status.code() == Some(0), "the {who} ended with {status}");
        let said = tunnel
            .client
            .program
            .count("connection to server endpoint lost");
        ensure!(who == "server" || said == 0, "logged as a loss");
    }
    Ok(())
}

#[test]
fn a_second_signal_ends_at_once() -> Result<()> {
    for who in ["server", "client"] {
        let application = Application::echo()?;
        let mut tunnel = Tunnel::with(
            &application.target(),
            &["--drain", "60s"],
            &["--drain", "60s"],
        )?;
        let mut connection = tunnel.client.forward.connect()?;
        connection.write_all(b"x")?;
        connection.read_exact(&mut [0; 1])?;
        let program = match who {
            "server" => &mut tunnel.server.program,
            _ => &mut tunnel.client.program,
        };
        program.signal(Signal::TERM)?;
        program.wait_for("a second signal ends at once", SOON)?;
        program.signal(Signal::TERM)?;
        // This is a sixth of the drain time that the first signal allows.
        program.wait_end(SOON)?;
        let ending = connection.ending();
        ensure!(ending.is_reset(), "a cut flow ended as {ending:?}");
    }
    Ok(())
}

#[test]
fn a_drain_ends_at_its_deadline() -> Result<()> {
    let application = Application::echo()?;
    let mut tunnel = Tunnel::with(&application.target(), &["--drain", "1s"], &[])?;
    let mut connection = tunnel.client.forward.connect()?;
    connection.write_all(b"x")?;
    connection.read_exact(&mut [0; 1])?;
    let started = Instant::now();
    tunnel.server.program.signal(Signal::TERM)?;
    tunnel.server.program.wait_end(SOON)?;
    let took = started.elapsed();
    ensure!(took > Duration::from_millis(900), "cut early: {took:?}");
    ensure!(
        connection.ending().is_reset(),
        "a cut flow must be seen as cut"
    );
    Ok(())
}

#[test]
fn sighup_reopens_log_files_and_disturbs_no_flow() -> Result<()> {
    let home = Home::new()?;
    let (log, old) = (home.path().join("log"), home.path().join("log.1"));
    let outputs = format!("stdout,{}", log.display());
    let application = Application::echo()?;
    for who in ["server", "client"] {
        let arguments = ["--log-output-paths", &outputs];
        let (server, client) = match who {
            "server" => (&arguments[..], &[][..]),
            _ => (&[][..], &arguments[..]),
        };
        let mut tunnel = Tunnel::with(&application.target(), server, client)?;
        let mut connection = tunnel.client.forward.connect()?;
        connection.write_all(b"x")?;
        connection.read_exact(&mut [0; 1])?;
        let program = match who {
            "server" => &mut tunnel.server.program,
            _ => &mut tunnel.client.program,
        };
        std::fs::rename(&log, &old)?;
        program.signal(Signal::HUP)?;
        program.wait_for("SIGHUP: ", SOON)?;
        deadline::until("a line in the new file", SOON, || {
            std::fs::read_to_string(&log).is_ok_and(|text| text.contains("SIGHUP: "))
        })?;
        ensure!(
            std::fs::read_to_string(&old)?.contains("start up successful"),
            "the old file lost its lines"
        );
        SOME.write_to(&mut connection).context(who)?;
        SOME.read_from(&mut connection).context(who)?;
        drop(connection);
        ensure!(
            program.ended()?.is_none() && !program.has_printed("a second signal"),
            "SIGHUP ended the {who}"
        );
        std::fs::remove_file(&log)?;
    }
    Ok(())
}

#[test]
fn readiness_and_stopping_are_reported_to_the_service_manager() -> Result<()> {
    let home = Home::new()?;
    let path = home.path().join("notify.sock");
    let manager = UnixDatagram::bind(&path)?;
    manager.set_read_timeout(Some(SOON))?;
    let mut command = home.command(&Machine::here(), "quictun-server")?;
    command
        .args(["--listen-on", "127.0.0.1:0", "--httpd-listen-on", "off"])
        .env("NOTIFY_SOCKET", &path);
    let mut server = Server::from_command(home, &mut command)?;
    wait_for_message(&manager, "READY=1")?;
    server.program.signal(Signal::TERM)?;
    wait_for_message(&manager, "STOPPING=1")?;
    ensure!(server.program.wait_end(SOON)?.success(), "status not 0");
    Ok(())
}

fn wait_for_message(manager: &UnixDatagram, wanted: &str) -> Result<()> {
    let mut buffer = [0; 1024];
    loop {
        let length = manager
            .recv(&mut buffer)
            .with_context(|| format!("waiting for {wanted}"))?;
        if String::from_utf8_lossy(&buffer[..length])
            .lines()
            .any(|line| line == wanted)
        {
            return Ok(());
        }
    }
}

#[test]
fn a_servers_socket_may_come_from_the_service_manager() -> Result<()> {
    let application = Application::echo()?;
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let address = socket.local_addr()?;
    let home = Home::new()?;
    let mut command = activated(&home, "quictun-server")?;
    command.args(["--httpd-listen-on", "off"]);
    let mut server =
        Program::start_with("server", &mut command, Stdio::from(OwnedFd::from(socket)))?;
    let line = server.wait_for("Server endpoint start up successful", START)?;
    ensure!(line.contains(&address.to_string()), "{line}");
    let client = Client::start(
        &address.to_string(),
        &["--token-source", &application.target()],
    )?;
    through_echo(&client.forward, SOME)
}

#[test]
fn a_servers_tcp_socket_may_come_from_the_service_manager() -> Result<()> {
    let application = Application::echo()?;
    let socket = TcpListener::bind("127.0.0.1:0")?;
    let address = socket.local_addr()?.to_string();
    let target = application.target();
    let target = target.trim_start_matches("tcp:");
    let home = Home::new()?;
    // The UDP port has another number, so only the inherited socket is at this address.
    let mut command = activated(&home, "quictun")?;
    command.args(["server", "--listen", "127.0.0.1:0", "--http", "off"]);
    command.args(["--allow", target]);
    let mut server =
        Program::start_with("server", &mut command, Stdio::from(OwnedFd::from(socket)))?;
    let pin = server_pin(&server.wait_for("Server endpoint start up successful", START)?)?;
    let mut command = home.command(&Machine::here(), "quictun")?;
    command.args([
        "client", "--server", &address, "--pin", &pin, "--http", "off",
    ]);
    command.args(["--psk-file", "state/client.psk", "--carrier", "tls"]);
    command.args(["-L", &format!("127.0.0.1:0={target}")]);
    let client = Client::from_command(Home::new()?, command.current_dir(home.path()))?;
    through_echo(&client.forward, SOME)
}

#[test]
fn a_clients_listener_may_come_from_the_service_manager() -> Result<()> {
    let application = Application::echo()?;
    let server = Server::start(&[])?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let forward = Endpoint::Tcp(listener.local_addr()?);
    let home = Home::new()?;
    let mut command = activated(&home, "quictun-client")?;
    command.args([
        "--server-endpoint",
        &server.address.to_string(),
        "--httpd-listen-on",
        "off",
    ]);
    command.args(["--token-source", &application.target()]);
    let _client =
        Program::start_with("client", &mut command, Stdio::from(OwnedFd::from(listener)))?;
    // The socket is already listening, so connections may arrive before the program has started.
    through_echo(&forward, SOME)
}

/// Returns a command whose standard input becomes descriptor 3, as systemd passes sockets.
fn activated(home: &Home, program: &str) -> Result<Command> {
    let mut command = command("sh");
    command
        .args(["-c", "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=tunnel exec \"$0\" \"$@\""])
        .arg(binaries::path(program)?);
    home.settle(&mut command);
    Ok(command)
}
