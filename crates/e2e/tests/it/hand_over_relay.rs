//! A process between the two of a hand-over. It passes their messages on, and stops at one, or alters it.
//!
//! The new process takes the relay for the old one, whose death it notices by a pidfd. The relay is therefore a process of
//! its own, which ends once the old process has ended: this test program, run again.

#![allow(clippy::print_stdout, reason = "the test reads the lines of the relay")]

use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use quictun_sys::{FdPacket, PacketListener, PacketStream, poll_until, read_sealed, seal_memory};
use quictun_testbed::program::{Program, command};
use quictun_wire::handover::exchange::HandoverMessage;
use rustix::event::{PollFd, PollFlags};
use rustix::net::{Shutdown, shutdown};

use crate::hand_over::SOON;

/// The variable that makes a test program a relay.
const RELAY: &str = "QUICTUN_E2E_RELAY";

/// The line of a relay that listens.
const LISTENS: &str = "the relay listens";

/// The line of a relay that has stopped at its message.
const HELD: &str = "the relay holds the message";

/// The first bytes of a document, which its version follows.
const MAGIC: &[u8] = b"qtunhand";

/// A step of a hand-over: the message that has been sent, and has not arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HandoverStep {
    Hello,
    Accept,
    Take,
    Sockets,
    Flows,
    State,
    Committed,
    Released,
    /// The last message has arrived.
    Done,
}

/// The process that a test kills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Victim {
    Old,
    New,
    Both,
}

/// The work of a relay at its step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The relay waits until this process has ended. The last message of a dead process still arrives.
    HoldFor(Victim),
    /// The message goes on in another version.
    OtherVersion,
    /// The message goes on with another descriptor.
    OtherDescriptor,
}

/// A running relay in the place of a socket for hand-overs.
pub(crate) struct Relay {
    program: Program,
    socket: PathBuf,
}

impl HandoverStep {
    pub(crate) const ALL: [Self; 9] = [
        Self::Hello,
        Self::Accept,
        Self::Take,
        Self::Sockets,
        Self::Flows,
        Self::State,
        Self::Committed,
        Self::Released,
        Self::Done,
    ];

    fn of(message: &HandoverMessage) -> Option<Self> {
        Some(match message {
            HandoverMessage::Hello { .. } => Self::Hello,
            HandoverMessage::Accept { .. } => Self::Accept,
            HandoverMessage::Take => Self::Take,
            HandoverMessage::Sockets(_) => Self::Sockets,
            HandoverMessage::Flows { .. } => Self::Flows,
            HandoverMessage::State => Self::State,
            HandoverMessage::Committed => Self::Committed,
            HandoverMessage::Released => Self::Released,
            _ => return None,
        })
    }

    /// Returns whether the new process sends the message.
    fn is_from_new(self) -> bool {
        matches!(self, Self::Hello | Self::Take | Self::Committed)
    }
}

impl Relay {
    /// Takes the place of a socket. `test` is the path of the calling test, which calls [`run_if_relay`] first.
    pub(crate) fn start(
        test: &str,
        socket: &Path,
        step: HandoverStep,
        action: Action,
    ) -> Result<Self> {
        std::fs::rename(socket, behind(socket))?;
        let mut again = command(std::env::current_exe()?);
        again.args(["--exact", test, "--nocapture", "--test-threads=1"]);
        again.env(RELAY, format!("{step:?} {action:?} {}", socket.display()));
        let mut program = Program::start_with("relay", &mut again, Stdio::null())?;
        program.wait_for(LISTENS, SOON)?;
        let socket = socket.to_owned();
        Ok(Self { program, socket })
    }

    /// Waits until both processes have come to the step.
    pub(crate) fn holds(&mut self) -> Result<()> {
        self.program.wait_for(HELD, SOON).map(drop)
    }

    /// Waits until a process at one of both ends has gone, and gives the socket its place back.
    pub(crate) fn finish(mut self) -> Result<()> {
        let status = self.program.wait_end(SOON)?;
        ensure!(status.success(), "{status}: {:?}", self.program.lines());
        self.program.silence();
        Ok(std::fs::rename(behind(&self.socket), &self.socket)?)
    }
}

fn behind(socket: &Path) -> PathBuf {
    socket.with_extension("behind")
}

/// Runs the relay if this process is one. Then returns true once it is done.
pub(crate) fn run_if_relay() -> Result<bool> {
    let Ok(told) = std::env::var(RELAY) else {
        return Ok(false);
    };
    let (step, rest) = told.split_once(' ').context("no action")?;
    let (action, socket) = rest.split_once(' ').context("no socket")?;
    let step = HandoverStep::ALL
        .into_iter()
        .find(|known| format!("{known:?}") == step);
    let actions = [
        Action::HoldFor(Victim::Old),
        Action::HoldFor(Victim::New),
        Action::HoldFor(Victim::Both),
        Action::OtherVersion,
        Action::OtherDescriptor,
    ];
    let action = actions
        .into_iter()
        .find(|known| format!("{known:?}") == action);
    relay(
        step.context("no such step")?,
        action.context("no such action")?,
        Path::new(socket),
    )?;
    Ok(true)
}

fn relay(step: HandoverStep, action: Action, socket: &Path) -> Result<()> {
    let listener = PacketListener::bind(socket)?;
    println!("\n{LISTENS}");
    wait(listener.as_fd(), PollFlags::IN)?;
    let (new, old) = (listener.accept()?, PacketStream::connect(&behind(socket))?);
    loop {
        let mut fds = [&new, &old].map(|it| PollFd::new(it, PollFlags::IN));
        ensure!(poll_until(&mut fds, until())?, "nothing is said");
        let is_new = !fds[0].revents().is_empty();
        let (from, to) = if is_new { (&new, &old) } else { (&old, &new) };
        // A process has ended, or is done. The other one notices that this one ends, too.
        let Ok(mut packet) = from.receive(until()) else {
            return Ok(());
        };
        let arrived = HandoverStep::of(&HandoverMessage::decode(&packet.bytes)?);
        if arrived == Some(step) {
            match action {
                Action::HoldFor(victim) => return hold(step, victim, (&new, &old), &packet),
                Action::OtherVersion => in_other_version(&mut packet)?,
                Action::OtherDescriptor => {
                    packet.fds.pop().context("no descriptor")?;
                    packet.fds.push(std::fs::File::open("/")?.into());
                }
            }
        }
        pass(&packet, to)?;
        if arrived == Some(HandoverStep::Released)
            && let (HandoverStep::Done, Action::HoldFor(victim)) = (step, action)
        {
            println!("{HELD}");
            return wait_end(victim, &new, &old);
        }
    }
}

/// Waits until the victim has ended. The message arrives if its receiver lives.
fn hold(
    step: HandoverStep,
    victim: Victim,
    (new, old): (&PacketStream, &PacketStream),
    packet: &FdPacket,
) -> Result<()> {
    println!("{HELD}");
    wait_end(victim, new, old)?;
    let receiver = match (step.is_from_new(), victim) {
        (true, Victim::New) => old,
        (false, Victim::Old) => new,
        _ => return Ok(()),
    };
    // The receiver reads the message of a dead process, and cannot answer.
    shutdown(receiver, Shutdown::Read)?;
    pass(packet, receiver)
}

fn wait_end(victim: Victim, new: &PacketStream, old: &PacketStream) -> Result<()> {
    let of_victim = if victim == Victim::Old { old } else { new };
    wait(of_victim.as_fd(), PollFlags::empty())
}

fn wait(fd: BorrowedFd<'_>, what: PollFlags) -> Result<()> {
    let happened = poll_until(&mut [PollFd::new(&fd, what)], until())?;
    ensure!(happened, "{what:?} has not happened");
    Ok(())
}

fn until() -> Instant {
    Instant::now() + SOON + Duration::from_secs(10)
}

fn pass(packet: &FdPacket, to: &PacketStream) -> Result<()> {
    let fds: Vec<_> = packet.fds.iter().map(|fd| fd.as_fd()).collect();
    Ok(to.send(&packet.bytes, &fds, until())?)
}

fn in_other_version(packet: &mut FdPacket) -> Result<()> {
    let mut message = HandoverMessage::decode(&packet.bytes)?;
    match &mut message {
        HandoverMessage::Hello {
            lowest, highest, ..
        } => (*lowest, *highest) = (*lowest + 20, *highest + 20),
        HandoverMessage::Accept { version, .. } => *version += 20,
        _ => {
            let memory = packet.fds.pop().context("no document")?;
            let mut document = read_sealed(memory, 1 << 30)?;
            ensure!(document.starts_with(MAGIC), "no document");
            document[MAGIC.len()] += 20;
            packet.fds.push(seal_memory(&document)?);
        }
    }
    packet.bytes = message.encode();
    Ok(())
}
