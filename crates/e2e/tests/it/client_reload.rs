//! A client that reloads its configuration: its forwards, reverse forwards and servers change, and open flows continue.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use quictun_testbed::application::{Application, through_echo};
use quictun_testbed::connection::{Connection, Endpoint};
use quictun_testbed::deadline;
use quictun_testbed::machine::Machine;
use quictun_testbed::payload::Payload;
use quictun_testbed::program::Program;
use quictun_testbed::tunnel::{Home, START, listen_address};
use rustix::process::Signal;

use crate::native::{NativeServer, bare, between};

const SOON: Duration = Duration::from_secs(20);
const SOME: Payload = Payload {
    seed: 431,
    bytes: 1 << 18,
};

const UP: &str = "Client endpoint start up successful";
const NEW: &str = "listening for a new forward";
const RELOADED: &str = "configuration reloaded";
const LISTENS: &str = "the server listens for this client";

/// `quictun client` with a configuration file that the test changes.
struct ReloadedClient {
    program: Program,
    home: Home,
    reloads: usize,
}

impl ReloadedClient {
    /// Starts a client of the first server with this configuration.
    fn start(servers: &mut [NativeServer], text: &str) -> Result<Self> {
        let home = Home::new()?;
        let client = Self::written(home, servers, text)?;
        let mut command = client.0.command(&Machine::here(), "quictun")?;
        command.args(["client", "-c", "client.toml", "--connections", "2"]);
        command.args(["--http", "off"]);
        let mut program = Program::start("client", &mut command)?;
        program.wait_for(UP, START)?;
        Ok(Self {
            program,
            home: client.0,
            reloads: 0,
        })
    }

    fn written(home: Home, servers: &mut [NativeServer], text: &str) -> Result<(Home, PathBuf)> {
        let mut file = String::new();
        for (number, server) in servers.iter_mut().enumerate() {
            let pin = between(&server.client_line()?, "--pin ", ' ')?;
            let secret = home.path().join(format!("{}.psk", server.address));
            std::fs::copy(server.home.path().join("state/client.psk"), &secret)?;
            let (address, secret) = (&server.address, secret.display());
            writeln!(
                file,
                "# server {number}\n[[server]]\naddress = '{address}'\npin = '{pin}'\npsk_file = '{secret}'"
            )?;
        }
        // Keys outside of tables come first.
        let path = home.path().join("client.toml");
        let (keys, tables) = text
            .split_once("[[")
            .map_or((text, String::new()), |(k, t)| (k, format!("[[{t}")));
        std::fs::write(&path, format!("{keys}\n{file}{tables}"))?;
        Ok((home, path))
    }

    /// Writes another configuration and makes the client read it.
    fn reload(&mut self, servers: &mut [NativeServer], text: &str) -> Result<()> {
        let home = std::mem::replace(&mut self.home, Home::new()?);
        self.home = Self::written(home, servers, text)?.0;
        self.program.signal(Signal::HUP)?;
        self.reloads += 1;
        deadline::until(RELOADED, SOON, || {
            self.program.count(RELOADED) == self.reloads
        })
    }

    /// Returns the addresses in the lines that contain `needle`, once there are `count` of them.
    fn addresses(&self, needle: &str, count: usize) -> Result<Vec<Endpoint>> {
        deadline::until(needle, SOON, || self.program.count(needle) == count)?;
        let lines = self.program.lines();
        let lines = lines.iter().filter(|line| line.contains(needle));
        lines
            .map(|line| Endpoint::parse(&listen_address(line)?))
            .collect()
    }
}

fn server(target: &str) -> Result<NativeServer> {
    NativeServer::start(&[
        "--allow",
        target,
        "--allow",
        "127.0.0.1:*",
        "--listen-for",
        "127.0.0.1:*",
    ])
}

fn forward(listen: &str, target: &str) -> String {
    format!("[[forward]]\nlisten = '{listen}'\ntarget = '{target}'\n")
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

/// An application that says one word and ends.
fn says(word: &'static [u8]) -> Result<Application> {
    Application::tcp(move |mut connection: Connection| {
        connection.write_all(word)?;
        connection.finish()
    })
}

fn said(at: &Endpoint) -> Result<String> {
    let mut said = String::new();
    at.connect()?.read_to_string(&mut said)?;
    Ok(said)
}

#[test]
fn forwards_are_added_removed_and_led_elsewhere_while_flows_continue() -> Result<()> {
    let (application, other) = (Application::echo()?, says(b"other")?);
    let (target, elsewhere) = (bare(&application.target()), bare(&other.target()));
    let mut servers = [server(&target)?];
    let directory = Home::new()?;
    let path = |name: &str| directory.path().join(name);
    let unix = |name: &str| format!("unix:{}", path(name).display());
    let first = forward("127.0.0.1:0", &target) + &forward(&unix("a"), &target);
    let mut client = ReloadedClient::start(&mut servers, &first)?;
    let before = client.addresses(UP, 2)?;
    let (tcp, a) = (&before[0], &before[1]);
    let mut flows = [open(tcp)?, open(a)?];

    let second = forward(&unix("a"), &elsewhere)
        + &forward(&unix("b"), &target)
        + "[[forward]]\nlisten = '127.0.0.2:0'\nproxy = true\n";
    client.reload(&mut servers, &second)?;
    ensure!(tcp.connect().is_err(), "a removed forward still listens");
    ensure!(said(a)? == "other", "the forward leads to the old target");
    let added = client.addresses(NEW, 2)?;
    through_echo(&added[0], SOME)?;
    let mut asked = added[1].connect()?;
    write!(asked, "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n")?;
    let mut answer = [0; 12];
    asked.read_exact(&mut answer)?;
    ensure!(&answer == b"HTTP/1.1 200", "{answer:?}");
    for flow in &mut flows {
        echo(flow)?;
    }
    client.reload(&mut servers, &forward(&unix("b"), &target))?;
    ensure!(
        a.connect().is_err() && !path("a").exists(),
        "it still listens"
    );
    through_echo(&added[0], SOME)?;
    for flow in &mut flows {
        echo(flow)?;
    }
    Ok(())
}

#[test]
fn a_forward_that_cannot_listen_is_named_and_the_others_are_served() -> Result<()> {
    let application = Application::echo()?;
    let target = bare(&application.target());
    let mut servers = [server(&target)?];
    let mut client = ReloadedClient::start(&mut servers, &forward("127.0.0.1:0", &target))?;
    let occupied = TcpListener::bind("127.0.0.1:0")?;
    let taken = occupied.local_addr()?;
    let text = forward(&taken.to_string(), &target)
        + &forward("127.0.0.1:0", &target)
        + &forward("127.0.0.1:0", &target);
    client.reload(&mut servers, &text)?;
    let line = client.program.wait_for("cannot listen", SOON)?;
    ensure!(line.contains(&taken.to_string()), "{line}");
    for at in client
        .addresses(UP, 1)?
        .iter()
        .chain(&client.addresses(NEW, 1)?)
    {
        through_echo(at, SOME)?;
    }
    drop(occupied);
    client.reload(&mut servers, &text)?;
    through_echo(&Endpoint::Tcp(taken), SOME)
}

#[test]
fn an_address_that_contains_the_old_one_takes_its_place() -> Result<()> {
    let application = Application::echo()?;
    let target = bare(&application.target());
    let mut servers = [server(&target)?];
    let mut client = ReloadedClient::start(&mut servers, &forward("127.0.0.1:0", &target))?;
    let port = client.addresses(UP, 1)?[0].port()?;
    client.reload(&mut servers, &forward(&format!("0.0.0.0:{port}"), &target))?;
    client.addresses(NEW, 1)?;
    let at = Endpoint::Tcp(([127, 0, 0, 1], port).into());
    through_echo(&at, SOME)?;
    client.reload(
        &mut servers,
        &forward(&format!("127.0.0.1:{port}"), &target),
    )?;
    through_echo(&at, SOME)
}

#[test]
fn an_invalid_file_changes_nothing_and_keys_that_need_a_restart_are_named() -> Result<()> {
    let application = Application::echo()?;
    let target = bare(&application.target());
    let mut servers = [server(&target)?];
    let good = forward("127.0.0.1:0", &target);
    let mut client = ReloadedClient::start(&mut servers, &good)?;
    let at = client.addresses(UP, 1)?.remove(0);
    let mut flow = open(&at)?;
    let bad = forward("127.0.0.1:0", "nonsense") + &forward("127.0.0.1:0", &target);
    let home = std::mem::replace(&mut client.home, Home::new()?);
    client.home = ReloadedClient::written(home, &mut servers, &bad)?.0;
    client.program.signal(Signal::HUP)?;
    let failed = "configuration not reloaded: nothing was changed";
    let line = client.program.wait_for(failed, SOON)?;
    ensure!(line.contains("nonsense"), "{line}");
    through_echo(&at, SOME)?;
    let text = format!("{good}[transport]\nworkers = 1\n[log]\nlevel = 'debug'\n");
    client.reload(&mut servers, &text)?;
    let line = client.program.wait_for("need a restart", SOON)?;
    ensure!(
        line.contains("transport.workers, log.level")
            || line.contains("log.level, transport.workers"),
        "{line}"
    );
    echo(&mut flow)
}

#[test]
fn reverse_forwards_are_added_removed_and_led_elsewhere() -> Result<()> {
    let (application, other) = (Application::echo()?, says(b"other")?);
    let target = bare(&application.target());
    let mut servers = [server(&target)?];
    let local = forward("127.0.0.1:0", &target);
    let mut client = ReloadedClient::start(&mut servers, &local)?;
    let with = |reverse: &[String]| format!("reverse = {reverse:?}\n{local}");
    let bound = |client: &ReloadedClient, count: usize| -> Result<Endpoint> {
        deadline::until(LISTENS, SOON, || client.program.count(LISTENS) == count)?;
        let lines = client.program.lines();
        let line = lines.iter().rfind(|line| line.contains(LISTENS));
        Endpoint::parse(&between(line.context("no line")?, "\"listen\": \"", '"')?)
    };
    client.reload(&mut servers, &with(&[format!("127.0.0.1:0={target}")]))?;
    let at = bound(&client, 1)?;
    let mut flow = open(&at)?;
    let changed = [format!("127.0.0.1:0={}", bare(&other.target()))];
    client.reload(&mut servers, &with(&changed))?;
    ensure!(
        said(&at)? == "other",
        "the listener leads to the old target"
    );
    let two = [changed[0].clone(), format!("127.0.0.1:0={target}")];
    client.reload(&mut servers, &with(&two))?;
    let second = bound(&client, 2)?;
    through_echo(&second, SOME)?;
    client.reload(&mut servers, &with(&two[1..]))?;
    deadline::until("the listener to close", SOON, || at.connect().is_err())?;
    through_echo(&second, SOME)?;
    client.reload(&mut servers, &local)?;
    deadline::until("the listener to close", SOON, || second.connect().is_err())?;
    echo(&mut flow)
}

#[test]
fn servers_are_added_and_removed_while_flows_continue() -> Result<()> {
    let application = Application::echo()?;
    let target = bare(&application.target());
    let [mut first, mut second] = [server(&target)?, server(&target)?];
    let local = forward("127.0.0.1:0", &target);
    let reverse = format!("reverse = ['127.0.0.1:0={target}']\n{local}");
    let mut client = ReloadedClient::start(std::slice::from_mut(&mut first), &reverse)?;
    let at = client.addresses(UP, 1)?.remove(0);
    let mut flow = open(&at)?;
    first.program.wait_for("listening for a client", SOON)?;

    client.reload(std::slice::from_mut(&mut second), &reverse)?;
    second.program.wait_for("client connected", SOON)?;
    let of_second = "\"target\": \"tcp:";
    deadline::until("new flows to take the second server", SOON, || {
        through_echo(&at, SOME).is_ok() && second.program.has_printed(of_second)
    })?;
    second.program.wait_for("listening for a client", SOON)?;
    first
        .program
        .wait_for("no longer listening for a client", SOON)?;
    echo(&mut flow)?;
    // The server that only the old configuration names may end.
    drop(flow);
    drop(first);
    through_echo(&at, SOME)
}
