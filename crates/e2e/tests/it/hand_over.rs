//! A new server process takes over from the running one (docs/HANDOVER.md): the flows continue there, and applications
//! notice only a pause. If the new process fails, the old one goes on.
//!
//! `QUICTUN_E2E_TAKE_OVERS` sets the number of upgrades; each test prints the longest pause.

#![allow(clippy::print_stdout, reason = "figures for people who run one test")]

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
pub(crate) use quictun_e2e::faults::run::{GOES_ON, TAKEN};
use quictun_sys::{FdPacket, PacketStream};
use quictun_testbed::application::{Application, through_echo};
use quictun_testbed::connection::{Connection, Endpoint};
use quictun_testbed::isolation::with_programs;
use quictun_testbed::machine::Machine;
use quictun_testbed::payload::Payload;
use quictun_testbed::program::Program;
use quictun_testbed::transfer::{EndlessSource, Transfer};
use quictun_testbed::tunnel::{Client, Home, START, listen_address, server_pin};
use quictun_testbed::{deadline, environment};
use quictun_wire::handover::HandoverKind;
use quictun_wire::handover::exchange::HandoverMessage;

const VERSION: u64 = HandoverKind::Server.version();

pub(crate) const UP: &str = "Server endpoint start up successful";

/// An address with any free port.
pub(crate) const FREE: &str = "127.0.0.1:0";

pub(crate) const SOON: Duration = Duration::from_secs(20);

/// The number of take-overs in a row, if the environment does not say otherwise.
pub(crate) const TAKE_OVERS: u64 = 5;

pub(crate) const SOME: Payload = Payload {
    seed: 631,
    bytes: 1 << 18,
};

/// A server whose successors take over from it, and a client with a forward to a source, to an echo, and a reverse one.
pub(crate) struct UpgradedTunnel {
    pub(crate) home: Home,
    pub(crate) server: Program,
    pub(crate) address: String,
    pub(crate) client: Client,
    pub(crate) source: EndlessSource,
    pub(crate) echo: Application,
}

impl UpgradedTunnel {
    pub(crate) fn new(workers: &str) -> Result<Self> {
        let home = Home::new()?;
        let (source, echo) = (EndlessSource::new()?, Application::echo()?);
        let mut server = Self::start(&home, FREE, workers, &[])?;
        let line = server.wait_for(UP, START)?;
        let (pin, address) = (server_pin(&line)?, listen_address(&line)?);
        let mut command = home.command(&Machine::here(), "quictun")?;
        command.args(["client", "--server", &address]);
        command.args(["--pin", &pin, "--psk-file", "state/client.psk"]);
        command.args(["--http", "off"]);
        for application in [&source.application, &echo] {
            command.args(["-L", &format!("127.0.0.1:0={}", application.target())]);
        }
        command.args(["-R", &format!("127.0.0.1:0={}", echo.target())]);
        let client = Client::from_command(Home::new()?, &mut command)?;
        Ok(Self {
            home,
            server,
            address,
            client,
            source,
            echo,
        })
    }

    pub(crate) fn start(
        home: &Home,
        listen: &str,
        workers: &str,
        more: &[&str],
    ) -> Result<Program> {
        let mut command = home.command(&Machine::here(), "quictun")?;
        command.args(["server", "--listen", listen, "--http", "off"]);
        command.args(["--allow", "127.0.0.1:*", "--listen-for", "127.0.0.1:*"]);
        command.args(["--workers", workers]).args(more);
        Program::start("server", &mut command)
    }

    /// Lets the next process take over, and waits until the old one has ended.
    fn take_over(&mut self, workers: &str) -> Result<()> {
        let mut next = Self::start(&self.home, FREE, workers, &["--take-over"])?;
        next.wait_for(UP, START)?;
        ensure!(next.has_printed(TAKEN), "{:?}", next.lines());
        let status = self.server.wait_end(SOON)?;
        ensure!(status.success(), "{status}: {:?}", self.server.lines());
        self.server = next;
        Ok(())
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.home.path().join("state/handover.sock")
    }
}

/// An application that sends a byte and waits for its echo, again and again. Each byte differs from the one before, so a
/// lost one and one that arrives twice are noticed.
pub(crate) struct Heartbeat {
    connection: Connection,
    next: u8,
    pub(crate) longest: Duration,
}

impl Heartbeat {
    pub(crate) fn new(forward: &Endpoint) -> Result<Self> {
        Self::over(forward.connect()?)
    }

    pub(crate) fn over(connection: Connection) -> Result<Self> {
        connection.set_timeout(SOON)?;
        Ok(Self {
            connection,
            next: 0,
            longest: Duration::ZERO,
        })
    }

    pub(crate) fn beat_until(&mut self, end: Instant) -> Result<()> {
        let mut byte = [0];
        while Instant::now() < end {
            let start = Instant::now();
            self.connection.write_all(&[self.next])?;
            self.connection.read_exact(&mut byte)?;
            ensure!(byte == [self.next], "{byte:?} for {}", self.next);
            self.next = self.next.wrapping_add(1);
            self.longest = self.longest.max(start.elapsed());
        }
        Ok(())
    }
}

#[test]
fn flows_outlive_take_overs_by_processes_with_other_numbers_of_workers() -> Result<()> {
    with_programs(|| {
        let mut tunnel = UpgradedTunnel::new("2")?;
        let forwards = tunnel.client.forwards(2)?;
        let transfer = Transfer::start(&forwards[0])?;
        transfer.advance(1 << 20, SOON)?;
        let visitors = crate::reverse::bound(&mut tunnel.client.program)?;
        let mut visitor = Heartbeat::new(&visitors)?;
        let mut heart = Heartbeat::new(&forwards[1])?;
        let count = environment::number("QUICTUN_E2E_TAKE_OVERS", TAKE_OVERS)?;
        for number in 0..count {
            let workers = ["1", "3", "2"][usize::try_from(number % 3)?];
            let beats = std::thread::scope(|scope| {
                let end = Instant::now() + Duration::from_secs(5);
                let beats = [&mut heart, &mut visitor]
                    .map(|heart| scope.spawn(move || heart.beat_until(end)));
                tunnel.take_over(workers)?;
                anyhow::Ok(beats.map(std::thread::ScopedJoinHandle::join))
            })?;
            for beat in beats {
                beat.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            }
            transfer.advance(1 << 20, SOON)?;
            // New flows and visitors find the new process.
            through_echo(&forwards[1], SOME)?;
        }
        let longest = [heart.longest, visitor.longest];
        println!("{count} take-overs, longest pauses: {longest:?}");
        transfer.finish(&tunnel.source)?;
        tunnel.echo.outcome(SOON)
    })
}

/// A process that speaks to a running server as its successor would.
pub(crate) struct Successor(PacketStream);

impl Successor {
    pub(crate) fn connect(path: &Path) -> Result<Self> {
        Ok(Self(PacketStream::connect(path)?))
    }

    fn say(&self, message: &HandoverMessage) -> Result<()> {
        Ok(self.0.send(&message.encode(), &[], Instant::now() + SOON)?)
    }

    fn hear(&self) -> Result<(HandoverMessage, FdPacket)> {
        let packet = self.0.receive(Instant::now() + SOON)?;
        Ok((HandoverMessage::decode(&packet.bytes)?, packet))
    }

    pub(crate) fn greet(&self, highest: u64) -> Result<HandoverMessage> {
        self.say(&HandoverMessage::Hello {
            lowest: highest,
            highest,
            program: "0.0.0".to_owned(),
        })?;
        Ok(self.hear()?.0)
    }

    /// Takes everything of a process of this kind up to the document.
    pub(crate) fn take(&self, kind: HandoverKind) -> Result<Vec<FdPacket>> {
        let greeted = self.greet(kind.version())?;
        ensure!(
            matches!(greeted, HandoverMessage::Accept { .. }),
            "{greeted:?}"
        );
        self.say(&HandoverMessage::Take)?;
        let mut packets = Vec::new();
        loop {
            let (message, packet) = self.hear()?;
            packets.push(packet);
            match message {
                HandoverMessage::State => return Ok(packets),
                HandoverMessage::Sockets(_) | HandoverMessage::Flows { .. } => {}
                other => bail!("{other:?}"),
            }
        }
    }
}

#[test]
fn the_server_goes_on_with_its_flows_if_its_successor_fails_at_any_step() -> Result<()> {
    with_programs(|| {
        let mut tunnel = UpgradedTunnel::new("2")?;
        let forwards = tunnel.client.forwards(2)?;
        let mut heart = Heartbeat::new(&forwards[1])?;
        let transfer = Transfer::start(&forwards[0])?;
        transfer.advance(1 << 20, SOON)?;
        let path = tunnel.socket();
        let goes_on = |tunnel: &UpgradedTunnel, failures: usize| -> Result<()> {
            let told = || tunnel.server.count(GOES_ON) == failures;
            deadline::until(GOES_ON, SOON, told)?;
            transfer.advance(1 << 20, SOON).map(drop)
        };
        let beat =
            |heart: &mut Heartbeat| heart.beat_until(Instant::now() + Duration::from_millis(100));
        // It reads another format.
        let answer = Successor::connect(&path)?.greet(VERSION + 1)?;
        ensure!(
            matches!(&answer, HandoverMessage::Refuse { reason } if reason.contains("restart")),
            "{answer:?}"
        );
        goes_on(&tunnel, 1)?;
        // It leaves before it takes anything.
        drop(Successor::connect(&path)?);
        let asked = Successor::connect(&path)?;
        asked.greet(VERSION)?;
        drop(asked);
        goes_on(&tunnel, 1)?;
        beat(&mut heart)?;
        // It dies with the flows in its hands.
        let dies = Successor::connect(&path)?;
        let packets = dies.take(HandoverKind::Server)?;
        ensure!(
            packets.iter().any(|packet| !packet.fds.is_empty()),
            "nothing was sent"
        );
        drop((dies, packets));
        goes_on(&tunnel, 2)?;
        beat(&mut heart)?;
        // It says nothing more, and is told that the server goes on.
        let silent = Successor::connect(&path)?;
        let packets = silent.take(HandoverKind::Server)?;
        let (last, _) = silent.hear()?;
        ensure!(matches!(last, HandoverMessage::Kept { .. }), "{last:?}");
        goes_on(&tunnel, 3)?;
        // Too late, whether or not the socket still takes it.
        silent.say(&HandoverMessage::Committed).ok();
        drop(packets);
        beat(&mut heart)?;
        // It breaks the order.
        let wrong = Successor::connect(&path)?;
        wrong.greet(VERSION)?;
        wrong.say(&HandoverMessage::Committed)?;
        goes_on(&tunnel, 4)?;
        beat(&mut heart)?;
        tunnel.take_over("2")?;
        beat(&mut heart)?;
        println!(
            "longest pause, silent successor included: {:?}",
            heart.longest
        );
        transfer.finish(&tunnel.source)
    })
}

#[test]
fn take_over_without_a_server_or_with_another_address_is_refused_in_one_line() -> Result<()> {
    with_programs(|| {
        let home = Home::new()?;
        let mut alone = UpgradedTunnel::start(&home, FREE, "1", &["--take-over"])?;
        alone.wait_for("no server runs that could be taken over", START)?;
        ensure!(!alone.wait_end(SOON)?.success(), "it started");
        let tunnel = UpgradedTunnel::new("1")?;
        let mut command = tunnel.home.command(&Machine::here(), "quictun")?;
        command.args(["server", "--listen", "127.0.0.1:9", "--http", "off"]);
        command.args(["--allow", "*", "--take-over"]);
        let mut other = Program::start("server", &mut command)?;
        other.wait_for("and this configuration says 127.0.0.1:9", START)?;
        ensure!(!other.wait_end(SOON)?.success(), "it started");
        through_echo(&tunnel.client.forwards(2)?[1], SOME)
    })
}
