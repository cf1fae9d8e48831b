//! A new client process takes over from the running one (docs/HANDOVER.md): the connections of applications continue
//! there, and none is refused meanwhile. If the new process fails, the old one goes on.
//!
//! `QUICTUN_E2E_TAKE_OVERS` sets the number of upgrades; the test prints the longest pause.

#![allow(clippy::print_stdout, reason = "figures for people who run one test")]

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use quictun_testbed::application::{Application, there_and_back, through_echo};
use quictun_testbed::connection::{Connection, DirectionEnd, Endpoint};
use quictun_testbed::isolation::with_programs;
use quictun_testbed::machine::Machine;
use quictun_testbed::payload::Payload;
use quictun_testbed::program::Program;
use quictun_testbed::transfer::{EndlessSource, Transfer};
use quictun_testbed::tunnel::{Client, Home, START, listen_address, server_pin};
use quictun_testbed::{deadline, environment};
use quictun_wire::handover::HandoverKind;

use crate::hand_over::{GOES_ON, Heartbeat, SOME, SOON, Successor, TAKE_OVERS, TAKEN};

const SERVER_UP: &str = "Server endpoint start up successful";

/// The forwards of the client: to a source, to an echo, and a proxy.
pub(crate) const FORWARDS: usize = 3;

/// A part of an upload, whose echo is verified before the next one begins.
const PART: Payload = Payload {
    seed: 632,
    bytes: 4 << 20,
};

/// A server, and a client whose successors take over from it. They have a forward to a source, to an echo, a proxy, and a
/// reverse forward.
pub(crate) struct UpgradedClient {
    pub(crate) home: Home,
    _server: Program,
    pub(crate) client: Client,
    arguments: Vec<String>,
    pub(crate) source: EndlessSource,
    pub(crate) echo: Application,
}

impl UpgradedClient {
    pub(crate) fn new(of_server: &[&str]) -> Result<Self> {
        let home = Home::new()?;
        let (source, echo) = (EndlessSource::new()?, Application::echo()?);
        let mut command = home.command(&Machine::here(), "quictun")?;
        command.args(["server", "--listen", "127.0.0.1:0", "--http", "off"]);
        command.args(["--allow", "127.0.0.1:*", "--listen-for", "127.0.0.1:*"]);
        command.args(of_server);
        let mut server = Program::start("server", &mut command)?;
        let line = server.wait_for(SERVER_UP, START)?;
        let (pin, server_at) = (server_pin(&line)?, listen_address(&line)?);
        let from_source = format!("127.0.0.1:0={}", source.application.target());
        let from_echo = format!("127.0.0.1:0={}", echo.target());
        let arguments = [
            "client",
            "--server",
            &server_at,
            "--pin",
            &pin,
            "--psk-file",
            "state/client.psk",
            "--http",
            "off",
            "--state-dir",
            "client",
            "-L",
            &from_source,
            "-L",
            &from_echo,
            "-D",
            "127.0.0.1:0",
            "-R",
            &from_echo,
        ];
        let arguments = arguments.map(str::to_owned).to_vec();
        let mut command = home.command(&Machine::here(), "quictun")?;
        command.args(&arguments);
        let client = Client::from_command(Home::new()?, &mut command)?;
        Ok(Self {
            home,
            _server: server,
            client,
            arguments,
            source,
            echo,
        })
    }

    fn next(&self, more: &[&str]) -> Result<Client> {
        let mut command = self.command()?;
        command.arg("--take-over").args(more);
        Client::from_command(Home::new()?, &mut command)
    }

    /// Returns a command for a process of this client.
    pub(crate) fn command(&self) -> Result<Command> {
        let mut command = self.home.command(&Machine::here(), "quictun")?;
        command.args(&self.arguments);
        Ok(command)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.home.path().join("client/client-handover.sock")
    }

    /// Lets the next process, with this number of workers, take over, and waits until the old one has ended.
    fn take_over(&mut self, workers: &str) -> Result<()> {
        let before = self.client.forwards(FORWARDS)?;
        let next = self.next(&["--workers", workers, "--connections", workers])?;
        ensure!(
            next.program.has_printed(TAKEN),
            "{:?}",
            next.program.lines()
        );
        let status = self.client.program.wait_end(SOON)?;
        ensure!(
            status.success(),
            "{status}: {:?}",
            self.client.program.lines()
        );
        self.client = next;
        let now = self.client.forwards(FORWARDS)?;
        ensure!(now == before, "{now:?} and {before:?}");
        Ok(())
    }

    /// Lets the next process take over while these applications exchange bytes.
    fn take_over_during(&mut self, hearts: &mut [Heartbeat], workers: &str) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(5);
        std::thread::scope(|scope| {
            let beating = hearts.iter_mut();
            let beating = beating.map(|heart| scope.spawn(move || heart.beat_until(end)));
            let beating: Vec<_> = beating.collect();
            self.take_over(workers)?;
            beating.into_iter().try_for_each(|beat| joined(beat.join()))
        })
    }

    /// Connects to the echo through the proxy.
    fn by_proxy(&self) -> Result<Connection> {
        let mut connection = self.client.forwards(FORWARDS)?[2].connect()?;
        connection.set_timeout(SOON)?;
        let port = self.echo.endpoint().port()?.to_be_bytes();
        let request = [5, 1, 0, 1, 127, 0, 0, 1, port[0], port[1]];
        connection.write_all(&[5, 1, 0])?;
        let (mut choice, mut answer) = ([0; 2], [0; 10]);
        connection.read_exact(&mut choice)?;
        connection.write_all(&request)?;
        connection.read_exact(&mut answer)?;
        ensure!(choice == [5, 0] && answer[1] == 0, "{choice:?} {answer:?}");
        Ok(connection)
    }
}

fn joined<T>(ended: std::thread::Result<Result<T>>) -> Result<T> {
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Sends to an echo until it is stopped, and verifies each byte.
fn upload(forward: &Endpoint, stop: &AtomicBool) -> Result<u64> {
    let mut connection = forward.connect()?;
    connection.set_timeout(SOON)?;
    let mut parts = 0;
    while !stop.load(Ordering::Relaxed) {
        there_and_back(&mut connection, PART, false)?;
        parts += 1;
    }
    connection.finish()?;
    let ending = connection.ending();
    ensure!(ending == DirectionEnd::Finished { bytes: 0 }, "{ending:?}");
    Ok(parts)
}

#[test]
fn connections_of_applications_outlive_take_overs_of_their_client() -> Result<()> {
    with_programs(|| {
        let mut tunnel = UpgradedClient::new(&[])?;
        let forwards = tunnel.client.forwards(FORWARDS)?;
        let transfer = Transfer::start(&forwards[0])?;
        transfer.advance(1 << 20, SOON)?;
        let visitors = crate::reverse::bound(&mut tunnel.client.program)?;
        let mut hearts = [
            Heartbeat::new(&forwards[1])?,
            Heartbeat::new(&visitors)?,
            Heartbeat::over(tunnel.by_proxy()?)?,
        ];
        let count = environment::number("QUICTUN_E2E_TAKE_OVERS", TAKE_OVERS)?;
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let uploads = scope.spawn(|| upload(&forwards[1], &stop));
            let outcome = (0..count).try_for_each(|number| {
                let workers = ["1", "3", "2"][usize::try_from(number % 3)?];
                tunnel.take_over_during(&mut hearts, workers)?;
                transfer.advance(1 << 20, SOON)?;
                // New connections and visitors find the new process.
                through_echo(&forwards[1], SOME)?;
                let visitors = crate::reverse::bound(&mut tunnel.client.program)?;
                through_echo(&visitors, SOME)
            });
            stop.store(true, Ordering::Relaxed);
            let parts = joined(uploads.join())?;
            println!("{count} take-overs, {parts} parts of the upload");
            outcome
        })?;
        let longest = hearts.map(|heart| heart.longest);
        println!("longest pauses: {longest:?}");
        transfer.finish(&tunnel.source)?;
        tunnel.echo.outcome(SOON)
    })
}

#[test]
fn the_client_goes_on_with_its_flows_if_its_successor_fails() -> Result<()> {
    with_programs(|| {
        let mut tunnel = UpgradedClient::new(&[])?;
        let forwards = tunnel.client.forwards(FORWARDS)?;
        let mut heart = Heartbeat::new(&forwards[1])?;
        let transfer = Transfer::start(&forwards[0])?;
        transfer.advance(1 << 20, SOON)?;
        let path = tunnel.socket();
        let mut goes_on = |tunnel: &UpgradedClient, failures: usize| -> Result<()> {
            let told = || tunnel.client.program.count(GOES_ON) == failures;
            deadline::until(GOES_ON, SOON, told)?;
            heart.beat_until(Instant::now() + Duration::from_millis(100))?;
            transfer.advance(1 << 20, SOON).map(drop)
        };
        // A server is no successor of a client.
        let answer = Successor::connect(&path)?.greet(HandoverKind::Server.version())?;
        ensure!(format!("{answer:?}").contains("restart"), "{answer:?}");
        goes_on(&tunnel, 1)?;
        // It dies with the flows in its hands.
        let dies = Successor::connect(&path)?;
        let packets = dies.take(HandoverKind::Client)?;
        drop((dies, packets));
        goes_on(&tunnel, 2)?;
        // It cannot listen, because it has another address that is in use.
        let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
        let used = format!("{}={}", taken.local_addr()?, tunnel.echo.target());
        ensure!(tunnel.next(&["-L", &used]).is_err(), "it started");
        goes_on(&tunnel, 3)?;
        tunnel.take_over("2")?;
        heart.beat_until(Instant::now() + Duration::from_millis(100))?;
        transfer.finish(&tunnel.source)
    })
}

#[test]
fn take_over_of_another_client_or_without_one_is_refused_in_one_line() -> Result<()> {
    with_programs(|| {
        let tunnel = UpgradedClient::new(&[])?;
        let start = |directory: &str| {
            let mut command = tunnel.home.command(&Machine::here(), "quictun")?;
            command
                .args(&tunnel.arguments[..9])
                .args(["--state-dir", directory]);
            command.args(["-L", "127.0.0.1:9=127.0.0.1:9", "--take-over"]);
            Program::start("client", &mut command)
        };
        for (directory, why) in [
            ("other", "no client runs that could be taken over"),
            ("client", "it seems to be another client"),
        ] {
            let mut other = start(directory)?;
            other.wait_for(why, START)?;
            ensure!(!other.wait_end(SOON)?.success(), "it started");
        }
        through_echo(&tunnel.client.forwards(FORWARDS)?[1], SOME)
    })
}
