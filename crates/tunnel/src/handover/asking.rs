//! A command's part: it asks a running process for its flows, or to drain or reload.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use quictun_sys::{PacketStream, poll_until};
use quictun_wire::handover::HandoverKind;
use quictun_wire::handover::exchange::{FlowFates, HandoverMessage};
use quictun_wire::varint;
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Signal, pidfd_send_signal};

use super::taking::agree;
use super::{ANSWER_TIME, socket_path};

/// A running server or client, found by the directory of its socket for hand-overs.
#[derive(Debug)]
pub struct RunningProcess {
    kind: HandoverKind,
    path: PathBuf,
    process: OwnedFd,
    program: String,
}

impl RunningProcess {
    /// Finds the server or client that runs with one of these directories. Also returns its flows.
    ///
    /// # Errors
    ///
    /// Fails if there is none or more than one, if it belongs to another user, or if it does not answer.
    pub fn find(directories: &[PathBuf]) -> Result<(Self, FlowFates)> {
        let (mut found, mut failure) = (Vec::new(), None);
        for directory in directories {
            for kind in [HandoverKind::Server, HandoverKind::Client] {
                let path = socket_path(kind, directory);
                match ask(kind, &path, &HandoverMessage::Ask) {
                    Ok(answer) => found.push(answer),
                    Err(error) if is_absent(&error) => {}
                    Err(error) => {
                        let what = format!("the {kind} at {}", directory.display());
                        failure.get_or_insert(error.context(what));
                    }
                }
            }
        }
        let all = directories.iter().map(|it| it.display().to_string());
        let all = all.collect::<Vec<_>>().join(", ");
        let one = found.pop().ok_or_else(|| {
            failure.unwrap_or_else(|| anyhow!("no server or client runs with one of these state directories: {all}; name another with --state-dir DIR or -c FILE"))
        })?;
        ensure!(
            found.is_empty(),
            "several processes run with these state directories: {all}; name that of one with --state-dir DIR or -c FILE"
        );
        Ok(one)
    }

    /// Finds the process of this kind that runs with this directory.
    ///
    /// # Errors
    ///
    /// Fails if there is none, if it belongs to another user, or if it does not answer.
    pub fn find_one(kind: HandoverKind, directory: &Path) -> Result<Self> {
        let path = socket_path(kind, directory);
        let (running, _) = ask(kind, &path, &HandoverMessage::Ask)
            .with_context(|| format!("no {kind} answers at {}", path.display()))?;
        Ok(running)
    }

    /// Returns the kind of the process.
    pub fn kind(&self) -> HandoverKind {
        self.kind
    }

    /// Returns the flows of the process.
    pub fn fates(&self) -> Result<FlowFates> {
        Ok(ask(self.kind, &self.path, &HandoverMessage::Ask)?.1)
    }

    /// Makes the process drain, and end with its last flow. Returns its flows.
    pub fn drain(&self) -> Result<FlowFates> {
        Ok(ask(self.kind, &self.path, &HandoverMessage::Drain)?.1)
    }

    /// Returns the version of the program.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// Makes the process read its configuration again, by SIGHUP.
    pub fn reload(&self) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.process, Signal::HUP)?)
    }

    /// Waits until the process has ended. Returns false if `until` has passed first.
    pub fn wait(&self, until: Instant) -> io::Result<bool> {
        poll_until(&mut [PollFd::new(&self.process, PollFlags::IN)], until)
    }
}

/// Sends one request to the process of this kind at this socket. Returns the process and its flows.
fn ask(
    kind: HandoverKind,
    path: &Path,
    request: &HandoverMessage,
) -> Result<(RunningProcess, FlowFates)> {
    let stream = PacketStream::connect(path)?;
    // The document has a version, and the requests have none.
    let (answer, process, _) = agree(&stream, 0..=varint::MAX, "")?;
    let program = match answer {
        HandoverMessage::Accept { program, .. } => program,
        HandoverMessage::Refuse { reason } => bail!(reason),
        _ => bail!("it is not understood"),
    };
    let until = Instant::now() + ANSWER_TIME;
    stream.send(&request.encode(), &[], until)?;
    let answer = stream.receive(until).context(
        "it gives no answer, perhaps because it is of an older version: send it SIGTERM instead",
    )?;
    match HandoverMessage::decode(&answer.bytes)? {
        HandoverMessage::Fates(fates) => {
            let running = RunningProcess {
                kind,
                path: path.to_owned(),
                process,
                program,
            };
            Ok((running, fates))
        }
        _ => bail!("it is not understood"),
    }
}

/// Returns whether no process has the socket.
fn is_absent(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<io::Error>().map(io::Error::kind);
    matches!(
        cause,
        Some(ErrorKind::NotFound | ErrorKind::ConnectionRefused)
    )
}
