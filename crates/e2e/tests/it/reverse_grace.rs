//! Listeners of clients that do not answer: they wait for `--reverse-grace`, then close, and open again when their
//! client returns (PROTOCOL REVERSE-12).

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::time::Duration;

use anyhow::{Result, ensure};
use quictun_testbed::application::{Application, through_echo};
use quictun_testbed::connection::{Connection, Endpoint};
use quictun_testbed::deadline;
use quictun_testbed::isolation::isolated;
use quictun_testbed::machine::Machine;
use quictun_testbed::payload::Payload;
use quictun_testbed::program::Program;
use quictun_testbed::tunnel::{Home, START, listen_address, server_pin};
use rustix::process::Signal;

use crate::lost_connections::CableTunnel;
use crate::reverse::bound;

const SOON: Duration = Duration::from_secs(20);
const SOME: Payload = Payload {
    seed: 158,
    bytes: 1 << 18,
};

const SILENT: &str = "client endpoint does not answer";
const CLOSED: &str = "no longer listening for a client";
const LISTENS: &str = "the server listens for this client";

/// A server on which the clients `a` and `b` may listen at each port of 127.0.0.1, and an echo.
struct GraceServer {
    program: Program,
    address: String,
    pin: String,
    home: Home,
    echo: Application,
}

impl GraceServer {
    /// Starts a server with this grace, which soon notices that a client does not answer.
    fn new(grace: &str) -> Result<Self> {
        let home = Home::new()?;
        let mut file = String::new();
        for name in ["a", "b"] {
            let secret = format!("the secret of {name}, long enough\n");
            std::fs::write(home.path().join(format!("{name}.psk")), secret)?;
            writeln!(
                file,
                "[[client]]\nname = '{name}'\npsk_file = '{name}.psk'\nlisten = ['127.0.0.1:*', 'unix:{}/*']",
                home.path().display()
            )?;
        }
        std::fs::write(home.path().join("server.toml"), file)?;
        let mut command = home.command(&Machine::here(), "quictun")?;
        command.args(["server", "--listen", "127.0.0.1:0", "--http", "off"]);
        command.args(["-c", "server.toml", "--keep-alive", "500ms"]);
        command.args(["--reverse-grace", grace]);
        let mut program = Program::start("server", &mut command)?;
        let line = program.wait_for("Server endpoint start up successful", START)?;
        Ok(Self {
            program,
            address: listen_address(&line)?,
            pin: server_pin(&line)?,
            home,
            echo: Application::echo()?,
        })
    }

    /// Starts the client of this name, for which the server listens at `listen` on behalf of the echo.
    fn client(&self, name: &str, listen: &str) -> Result<Program> {
        let mut command = self.home.command(&Machine::here(), "quictun")?;
        command.args(["client", "--server", &self.address, "--pin", &self.pin]);
        command.args(["--psk-file", &format!("{name}.psk"), "--http", "off"]);
        command.args(["-R", &format!("{listen}={}", self.echo.target())]);
        Program::start(name, &mut command)
    }

    fn client_at(&self, name: &str, at: &Endpoint) -> Result<Program> {
        self.client(name, at.to_string().trim_start_matches("tcp:"))
    }
}

/// Opens a flow and sends one byte to the echo and back.
fn open(at: &Endpoint) -> Result<Connection> {
    let mut connection = at.connect()?;
    echo(&mut connection)?;
    Ok(connection)
}

fn echo(connection: &mut Connection) -> Result<()> {
    connection.write_all(b"x")?;
    Ok(connection.read_exact(&mut [0; 1])?)
}

fn until_refused(at: &Endpoint) -> Result<()> {
    deadline::until("connections to be refused", SOON, || at.connect().is_err())
}

#[test]
fn a_visitor_that_comes_within_the_grace_waits_and_is_served_by_the_next_process() -> Result<()> {
    let mut server = GraceServer::new("1h")?;
    let mut client = server.client("a", "0")?;
    let at = bound(&mut client)?;
    client.kill()?;
    server.program.wait_for(SILENT, SOON)?;
    let mut visitor = at.connect()?;
    visitor.write_all(b"x")?;
    let mut client = server.client_at("a", &at)?;
    client.wait_for(LISTENS, START)?;
    visitor.read_exact(&mut [0; 1])?;
    through_echo(&at, SOME)
}

#[test]
fn after_the_grace_visitors_are_refused_and_the_address_is_free_for_another_client() -> Result<()> {
    let mut server = GraceServer::new("1s")?;
    let path = server.home.path().join("socket");
    let over_unix = format!("unix:{}", path.display());
    let mut clients = [server.client("a", "0")?, server.client("a", &over_unix)?];
    let tcp = bound(&mut clients[0])?;
    let unix = bound(&mut clients[1])?;
    for client in &mut clients {
        client.kill()?;
    }
    // The first of them become flows before the silence is noticed; the others wait in the listener's queue.
    let visitors = (0..80).map(|_| tcp.connect());
    for mut visitor in visitors.collect::<Result<Vec<_>>>()? {
        let ending = visitor.ending();
        ensure!(ending.is_reset(), "a visitor: {ending:?}");
    }
    for at in [&tcp, &unix] {
        until_refused(at)?;
    }
    ensure!(!path.exists(), "the socket file stays");
    let line = server.program.wait_for(CLOSED, SOON)?;
    ensure!(line.contains("has not answered for 1 s"), "{line}");
    let mut other = server.client_at("b", &tcp)?;
    other.wait_for(LISTENS, START)?;
    through_echo(&tcp, SOME)?;
    let mut late = server.client_at("a", &tcp)?;
    late.wait_for("another client or program listens there", START)?;
    Ok(())
}

#[test]
fn a_client_that_was_stopped_for_longer_than_the_grace_is_served_again_without_a_restart()
-> Result<()> {
    let server = GraceServer::new("1s")?;
    let mut client = server.client("a", "0")?;
    let first = bound(&mut client)?;
    drop(client);
    let mut client = server.client_at("a", &first)?;
    let at = bound(&mut client)?;
    let mut flow = open(&at)?;
    for round in 1..=2 {
        client.signal(Signal::STOP)?;
        until_refused(&at)?;
        client.signal(Signal::CONT)?;
        deadline::until("the client to be served again", SOON, || open(&at).is_ok())?;
        echo(&mut flow)?;
        ensure!(server.program.count(CLOSED) >= round);
    }
    through_echo(&at, SOME)
}

#[test]
fn a_client_that_was_cut_from_the_network_for_longer_than_the_grace_is_served_again() -> Result<()>
{
    isolated(|| {
        let mut tunnel = CableTunnel::with(&["--reverse-grace", "1s"], &[])?;
        let at = bound(&mut tunnel.client)?;
        let mut flow = tunnel.far.within(|| open(&at))?;
        tunnel.cut()?;
        tunnel.far.within(|| until_refused(&at))?;
        tunnel.server.wait_for(CLOSED, SOON)?;
        let before = tunnel.client.count(LISTENS);
        tunnel.restore()?;
        // The system chooses a port again.
        deadline::until("another listener", SOON, || {
            tunnel.client.count(LISTENS) > before
        })?;
        let lines = tunnel.client.lines();
        let line = lines.iter().rfind(|line| line.contains(LISTENS));
        let again = listen_field(line.map_or("", String::as_str))?;
        tunnel.far.within(|| through_echo(&again, SOME))?;
        echo(&mut flow)
    })
}

fn listen_field(line: &str) -> Result<Endpoint> {
    Endpoint::parse(&crate::native::between(line, "\"listen\": \"", '"')?)
}
