//! Rules for listeners that change while flows of reverse forwards are open, in a server with a configuration file
//! (PROTOCOL section 5.9).

use std::io::{Read, Write};
use std::time::Duration;

use anyhow::{Result, ensure};
use quictun_testbed::application::Application;
use quictun_testbed::connection::{Connection, Endpoint};
use quictun_testbed::machine::Machine;
use quictun_testbed::program::Program;
use quictun_testbed::tunnel::{Home, START, listen_address, server_pin};
use rustix::process::Signal;

use crate::native::bare;
use crate::reverse::{self, bound};

const SOON: Duration = Duration::from_secs(20);

/// Timeouts that end the connection of a killed client soon.
const IDLE: [&str; 4] = ["--idle-timeout", "2s", "--keep-alive", "500ms"];

/// A server with one client in its configuration file.
struct ConfiguredServer {
    home: Home,
    program: Program,
    line: String,
    application: Application,
}

impl ConfiguredServer {
    fn new(rules: &str) -> Result<Self> {
        let home = Home::new()?;
        std::fs::write(home.path().join("laptop.psk"), "a secret, long enough\n")?;
        let application = Application::echo()?;
        write_rules(&home, rules)?;
        let mut command = home.command(&Machine::here(), "quictun")?;
        command.args(["server", "--listen", "127.0.0.1:0", "--http", "off"]);
        command.args(["-c", "server.toml"]).args(IDLE);
        let mut program = Program::start("server", &mut command)?;
        let line = program.wait_for("Server endpoint start up successful", START)?;
        Ok(Self {
            home,
            program,
            line,
            application,
        })
    }

    /// Starts a client with a reverse forward from this port of the server to an echo.
    fn client(&self, port: u16) -> Result<Program> {
        let mut command = self.home.command(&Machine::here(), "quictun")?;
        let (address, pin) = (listen_address(&self.line)?, server_pin(&self.line)?);
        command.args(["client", "--server", &address, "--pin", &pin]);
        command.args(["--psk-file", "laptop.psk", "--http", "off"]);
        let target = bare(&self.application.target());
        command.args(["-R", &format!("127.0.0.1:{port}={target}")]);
        Program::start("client", &mut command)
    }

    fn reload(&mut self, rules: &str) -> Result<()> {
        write_rules(&self.home, rules)?;
        self.program.signal(Signal::HUP)?;
        self.program
            .wait_for("configuration reloaded", SOON)
            .map(drop)
    }
}

fn write_rules(home: &Home, rules: &str) -> Result<()> {
    let text = format!("[[client]]\nname = 'laptop'\npsk_file = 'laptop.psk'\n{rules}\n");
    Ok(std::fs::write(home.path().join("server.toml"), text)?)
}

/// Opens a flow and sends one byte to the echo and back.
fn open(at: &Endpoint) -> Result<Connection> {
    let mut connection = at.connect()?;
    connection.write_all(b"x")?;
    connection.read_exact(&mut [0; 1])?;
    Ok(connection)
}

// PROTOCOL REVERSE-12.
#[test]
fn listeners_and_flows_of_an_expired_client_end_at_once_although_it_has_no_connection() -> Result<()>
{
    let rules = "listen = ['127.0.0.1:0']";
    let mut server = ConfiguredServer::new(rules)?;
    let mut client = server.client(0)?;
    let at = bound(&mut client)?;
    let mut flow = open(&at)?;
    client.kill()?;
    let waits = "client endpoint gone: its flows wait for its return";
    server.program.wait_for(waits, SOON)?;
    let mut queued = at.connect()?;
    server.reload(&format!("{rules}\nexpires = 2020-12-31"))?;
    server
        .program
        .wait_for("no longer listening for a client", SOON)?;
    for connection in [&mut flow, &mut queued] {
        let ending = connection.ending();
        ensure!(ending.is_reset(), "{ending:?}");
    }
    ensure!(at.connect().is_err(), "still listening");
    let line = server.program.wait_for("its access has expired", SOON)?;
    ensure!(line.contains("\"flows\": 1"), "{line}");
    Ok(())
}

// SECURITY-MODEL, "asks the keeper process".
#[test]
fn the_keeper_listens_by_the_rules_of_the_last_reload() -> Result<()> {
    let mut server = ConfiguredServer::new("listen = ['127.0.0.1:0']")?;
    let mut client = server.client(0)?;
    let port = bound(&mut client)?.port()?;
    reverse::end(&mut client)?;
    server
        .program
        .wait_for("no longer listening for a client", SOON)?;
    server.reload(&format!("listen = ['127.0.0.1:{port}']"))?;
    let mut client = server.client(port)?;
    open(&bound(&mut client)?)?;
    Ok(())
}

// PROTOCOL REVERSE-12.
#[test]
fn a_reload_ends_flows_whose_listener_was_closed_before() -> Result<()> {
    let mut server = ConfiguredServer::new("listen = ['127.0.0.1:*']")?;
    let mut first = server.client(0)?;
    let at = bound(&mut first)?;
    let mut flow = open(&at)?;
    // The second process takes the listener from the first, and closes it at its end. The first one has its flow, and
    // waits for 5 s before it asks for the listener again.
    let mut second = server.client(at.port()?)?;
    bound(&mut second)?;
    reverse::end(&mut second)?;
    server
        .program
        .wait_for("no longer listening for a client", SOON)?;
    flow.write_all(b"y")?;
    flow.read_exact(&mut [0; 1])?;
    server.reload("listen = ['127.0.0.1:1']")?;
    let ending = flow.ending();
    ensure!(ending.is_reset(), "{ending:?}");
    Ok(())
}
