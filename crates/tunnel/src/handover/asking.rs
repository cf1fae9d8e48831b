//! A command's part: it asks a running process for its flows, or to drain.

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

use super::taking::agree;
use super::{ANSWER_TIME, socket_path};

/// A running server or client, found by the directory of its socket for hand-overs.
#[derive(Debug)]
pub struct RunningProcess {
    kind: HandoverKind,
    path: PathBuf,
    process: OwnedFd,
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
                match ask(&path, &HandoverMessage::Ask) {
                    Ok((fates, process)) => found.push((
                        Self {
                            kind,
                            path,
                            process,
                        },
                        fates,
                    )),
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

    /// Returns the kind of the process.
    pub fn kind(&self) -> HandoverKind {
        self.kind
    }

    /// Returns the flows of the process.
    pub fn fates(&self) -> Result<FlowFates> {
        Ok(ask(&self.path, &HandoverMessage::Ask)?.0)
    }

    /// Makes the process drain, and end with its last flow. Returns its flows.
    pub fn drain(&self) -> Result<FlowFates> {
        Ok(ask(&self.path, &HandoverMessage::Drain)?.0)
    }

    /// Waits until the process has ended. Returns false if `until` has passed first.
    pub fn wait(&self, until: Instant) -> io::Result<bool> {
        poll_until(&mut [PollFd::new(&self.process, PollFlags::IN)], until)
    }
}

/// Sends one request. Returns the answer, and a descriptor of the process that has sent it.
fn ask(path: &Path, request: &HandoverMessage) -> Result<(FlowFates, OwnedFd)> {
    let stream = PacketStream::connect(path)?;
    // The document has a version, and the requests have none.
    let (answer, process, _) = agree(&stream, 0..=varint::MAX)?;
    match answer {
        HandoverMessage::Accept { .. } => {}
        HandoverMessage::Refuse { reason } => bail!(reason),
        _ => bail!("it is not understood"),
    }
    let until = Instant::now() + ANSWER_TIME;
    stream.send(&request.encode(), &[], until)?;
    let answer = stream.receive(until).context(
        "it gives no answer, perhaps because it is of an older version: send it SIGTERM instead",
    )?;
    match HandoverMessage::decode(&answer.bytes)? {
        HandoverMessage::Fates(fates) => Ok((fates, process)),
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
