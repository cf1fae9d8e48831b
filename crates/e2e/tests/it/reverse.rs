//! Reverse forwards: the server listens, and the client dials (PROTOCOL section 5.9).

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use quictun_testbed::application::{Application, RefusingAddress, through_echo};
use quictun_testbed::connection::{Connection, Endpoint};
use quictun_testbed::deadline;
use quictun_testbed::isolation::with_programs;
use quictun_testbed::machine::Machine;
use quictun_testbed::payload::Payload;
use quictun_testbed::program::{Program, command, installed, run};
use quictun_testbed::rest;
use quictun_testbed::tunnel::{Home, START, listen_address, server_pin};
use rustix::process::Signal;

const SOON: Duration = Duration::from_secs(20);
const SOME: Payload = Payload {
    seed: 28,
    bytes: 1 << 18,
};

pub(crate) const LISTENS: &str = "the server listens for this client";
pub(crate) const REFUSED: &str = "the server does not listen for this client";

/// A server that listens on behalf of its client 'default'.
pub(crate) struct ReverseServer {
    pub(crate) server: Program,
    address: String,
    pin: String,
    pub(crate) home: Home,
}

impl ReverseServer {
    /// Starts a server with these rules; `HOME` in a rule stands for the server's directory.
    pub(crate) fn new(rules: &[&str]) -> Result<Self> {
        let home = Home::new()?;
        let mut command = home.command(&Machine::here(), "quictun")?;
        command.args(["server", "--listen", "127.0.0.1:0", "--http", "off"]);
        for rule in rules {
            let rule = rule.replace("HOME", &home.path().display().to_string());
            command.args(["--listen-for", &rule]);
        }
        let mut server = Program::start("server", &mut command)?;
        let line = server.wait_for("Server endpoint start up successful", START)?;
        Ok(Self {
            server,
            address: listen_address(&line)?,
            pin: server_pin(&line)?,
            home,
        })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Starts a client with these reverse forwards.
    pub(crate) fn client(&self, forwards: &[&str]) -> Result<Program> {
        self.client_with(forwards, &["--http", "off"])
    }

    pub(crate) fn client_with(&self, forwards: &[&str], more: &[&str]) -> Result<Program> {
        let mut command = self.home.command(&Machine::here(), "quictun")?;
        command.args(["client", "--server", &self.address, "--pin", &self.pin]);
        command.args(["--psk-file", "state/client.psk"]).args(more);
        for forward in forwards {
            command.args(["-R", forward]);
        }
        Program::start("client", &mut command)
    }
}

/// Returns the address on which the server listens, from the client's first log line about it.
pub(crate) fn bound(client: &mut Program) -> Result<Endpoint> {
    let line = client.wait_for(LISTENS, START)?;
    Endpoint::parse(field(&line, "listen")?)
}

/// Ends a client in an orderly way.
pub(crate) fn end(client: &mut Program) -> Result<()> {
    client.signal(Signal::TERM)?;
    client.wait_end(SOON).map(drop)
}

/// Returns the lines that contain `needle`, once there are `count` of them.
fn all(program: &Program, needle: &str, count: usize) -> Result<Vec<String>> {
    deadline::until(needle, START, || program.count(needle) == count)?;
    let lines = program.lines().into_iter();
    Ok(lines.filter(|line| line.contains(needle)).collect())
}

pub(crate) fn field<'a>(line: &'a str, name: &str) -> Result<&'a str> {
    let start = format!("\"{name}\": \"");
    let value = line
        .split_once(&start)
        .and_then(|(_, rest)| rest.split_once('"'));
    Ok(value.with_context(|| format!("no {name} in {line:?}"))?.0)
}

#[test]
fn a_web_server_behind_the_client_is_reached_at_the_server_over_tcp_and_unix() -> Result<()> {
    with_programs(|| {
        let (python, curl) = (installed("python3", "python3")?, installed("curl", "curl")?);
        let mut reverse = ReverseServer::new(&["127.0.0.1:0", "unix:HOME/*"])?;
        let pages = Home::new()?;
        std::fs::write(pages.path().join("page"), "a page from behind\n")?;
        let mut web = command(python);
        web.args([
            "-u",
            "-m",
            "http.server",
            "--bind",
            "127.0.0.1",
            "--directory",
        ]);
        web.arg(pages.path()).arg("0");
        let mut web = Program::start("web", &mut web)?;
        let line = web.wait_for("Serving HTTP on", START)?;
        let port = line.split(" port ").nth(1).context("no port")?;
        let port = port.split(' ').next().unwrap_or_default();

        let socket = reverse.path("web.sock");
        let over_unix = format!("unix:{}=127.0.0.1:{port}", socket.display());
        let over_tcp = format!("127.0.0.1:0=localhost:{port}");
        let mut client = reverse.client(&[&over_tcp, &over_unix])?;
        let listeners = all(&client, LISTENS, 2)?;
        let tcp = listeners
            .iter()
            .find_map(|line| {
                Endpoint::parse(field(line, "listen").ok()?)
                    .ok()?
                    .port()
                    .ok()
            })
            .context("neither listener is a TCP listener")?;
        let page =
            |arguments: &[&str]| run(command(&curl).args(["-sS", "-m", "20"]).args(arguments));
        let got = page(&[&format!("http://127.0.0.1:{tcp}/page")])?;
        ensure!(got == "a page from behind\n", "{got:?}");
        let socket = socket.display().to_string();
        let got = page(&["--unix-socket", &socket, "http://localhost/page"])?;
        ensure!(got == "a page from behind\n", "{got:?}");

        // The server's audit line names the client, the source address and the target.
        let line = reverse.server.wait_for("flow closed", SOON)?;
        ensure!(field(&line, "client")? == "default", "{line}");
        ensure!(
            field(&line, "Server-App-Addr")?.starts_with("127.0.0.1:"),
            "{line}"
        );
        ensure!(
            field(&line, "target")? == format!("tcp:127.0.0.1:{tcp}"),
            "{line}"
        );
        let line = client.wait_for("flow closed", SOON)?;
        ensure!(
            field(&line, "target")? == format!("tcp:localhost:{port}"),
            "{line}"
        );
        end(&mut client)?;
        let removed = || !std::path::Path::new(&socket).exists();
        deadline::until(
            "the socket file of the listener to be removed",
            SOON,
            removed,
        )
    })
}

// PROTOCOL REVERSE-3, REVERSE-4, REVERSE-9.
#[test]
fn refusals_of_server_and_target_are_reported_and_other_flows_served() -> Result<()> {
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let taken = taken.local_addr()?;
    let echo = Application::echo()?;
    let refusing = RefusingAddress::new()?;
    let mut reverse = ReverseServer::new(&["127.0.0.1:*"])?;
    let target = echo.target();
    let client = reverse.client(&[
        &format!("0.0.0.0:8000={target}"),
        &format!("unix:/run/none={target}"),
        &format!("{taken}={target}"),
        &format!("0={}", refusing.target()),
        &format!("0={target}"),
    ])?;
    let mut refusals = Vec::new();
    for line in all(&client, REFUSED, 3)? {
        refusals.push((
            field(&line, "listen")?.to_owned(),
            field(&line, "reason")?.to_owned(),
        ));
    }
    refusals.sort_unstable();
    let not_allowed = "the server's rules do not let this client listen there";
    let mut expected = [
        ("tcp:0.0.0.0:8000".to_owned(), not_allowed.to_owned()),
        (
            format!("tcp:{taken}"),
            "another client or program listens there".to_owned(),
        ),
        ("unix:/run/none".to_owned(), not_allowed.to_owned()),
    ];
    expected.sort_unstable();
    ensure!(refusals == expected, "{refusals:?}");
    let line = reverse
        .server
        .wait_for("a client's listener was refused", SOON)?;
    ensure!(line.contains("would allow it"), "{line}");

    let mut served = Vec::new();
    for line in all(&client, LISTENS, 2)? {
        let at = Endpoint::parse(field(&line, "listen")?)?;
        served.push((field(&line, "target")? == refusing.target(), at));
    }
    for (refused, at) in served {
        if refused {
            ensure!(at.ending()?.is_reset(), "a refused dial must be a reset");
        } else {
            through_echo(&at, SOME)?;
        }
    }
    Ok(())
}

// PROTOCOL REVERSE-6, REVERSE-12.
#[test]
fn a_listener_outlives_its_connection_and_a_restart_of_its_client() -> Result<()> {
    let echo = Application::echo()?;
    let mut reverse = ReverseServer::new(&["127.0.0.1:*"])?;
    let one = format!("0={}", echo.target());
    let mut client = reverse.client_with(&[&one], &["--http", "127.0.0.1:0"])?;
    let line = client.wait_for("HTTP interface", START)?;
    let at = bound(&mut client)?;
    through_echo(&at, SOME)?;
    let Some(http): Option<std::net::SocketAddr> =
        line.split('"').find_map(|part| part.parse().ok())
    else {
        anyhow::bail!("no address in {line:?}");
    };
    let status = rest::get(http, "/v1/status")?.json()?;
    ensure!(status["reverse"][0]["bound"] == at.to_string(), "{status}");

    // The same process continues on another connection.
    let mut reconnect = reverse.home.command(&Machine::here(), "quictun")?;
    run(reconnect.args(["reconnect", "--http", &http.to_string()]))?;
    let goes_on = "the listener continues on another connection of its client";
    reverse.server.wait_for(goes_on, SOON)?;
    through_echo(&at, SOME)?;

    // The server does not know yet that the process is gone, and the next process takes the address over.
    client.kill()?;
    let again = format!(
        "{}={}",
        at.to_string().trim_start_matches("tcp:"),
        echo.target()
    );
    let mut client = reverse.client(&[&again])?;
    ensure!(bound(&mut client)? == at, "at another address");
    through_echo(&at, SOME)?;

    // A client that ends in an orderly way leaves nothing behind.
    end(&mut client)?;
    reverse
        .server
        .wait_for("no longer listening for a client", SOON)?;
    ensure!(at.connect().is_err(), "still listening");
    Ok(())
}

// PROTOCOL REVERSE-7.
#[test]
fn a_second_process_takes_a_listener_over_once_and_the_first_waits() -> Result<()> {
    let says = |word: &'static [u8]| {
        Application::tcp(move |mut connection: Connection| {
            connection.write_all(word)?;
            connection.finish()
        })
    };
    let (first, second) = (says(b"first")?, says(b"second")?);
    let said = |at: &Endpoint| -> Result<String> {
        let mut said = String::new();
        at.connect()?.read_to_string(&mut said)?;
        Ok(said)
    };
    let reverse = ReverseServer::new(&["127.0.0.1:*"])?;
    let mut one = reverse.client(&[&format!("0={}", first.target())])?;
    let at = bound(&mut one)?;
    ensure!(said(&at)? == "first");
    let port = at.port()?;
    let mut two = reverse.client(&[&format!("{port}={}", second.target())])?;
    ensure!(bound(&mut two)? == at, "at another address");
    let line = one.wait_for(REFUSED, SOON)?;
    ensure!(
        line.contains("another process with this client's key"),
        "{line}"
    );
    for _ in 0..20 {
        ensure!(said(&at)? == "second");
    }
    ensure!(
        two.count(LISTENS) == 1 && one.count(LISTENS) == 1,
        "the first process took the listener back"
    );
    Ok(())
}
