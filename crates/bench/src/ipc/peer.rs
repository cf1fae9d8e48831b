//! The server of a measurement, seen from the client, and the calls that it answers.

use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use quictun_ipc::WaitPolicy;

use crate::kind::Kind;

/// How long one waits for the other.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// To square a matrix.
pub(crate) const WORK: u16 = 1;
/// To tell what it has used.
pub(crate) const STATISTICS: u16 = 2;
/// To add up the bytes.
pub(crate) const PAYLOAD: u16 = 3;

/// A server that runs, and the socket to it.
pub(crate) struct Peer {
    child: Child,
}

impl Peer {
    pub(crate) fn start(kind: Kind, cpu: usize, policy: WaitPolicy) -> Result<(Self, OwnedFd)> {
        let (here, there) = quictun_ipc::sockets().context("a pair of sockets")?;
        let program = std::env::current_exe().context("finding this program")?;
        let child = Command::new(program)
            .args([
                "bench",
                "ipc",
                "--peer",
                kind.word(),
                &cpu.to_string(),
                policy.word(),
            ])
            .stdin(Stdio::from(there))
            .spawn()
            .context("starting this program again")?;
        Ok((Self { child }, here))
    }

    /// One that was started otherwise.
    pub(crate) fn of(child: Child) -> Self {
        Self { child }
    }

    /// Waits for its end, which comes once its socket is closed.
    pub(crate) fn end(mut self) -> Result<()> {
        let status = self.child.wait().context("waiting for the server")?;
        if !status.success() {
            bail!("the server ended with {status}");
        }
        Ok(())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Only where something went wrong is it still running.
        if matches!(self.child.try_wait(), Ok(None)) && self.child.kill().is_ok() {
            drop(self.child.wait());
        }
    }
}
