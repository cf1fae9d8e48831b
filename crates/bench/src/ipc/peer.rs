//! The server of a measurement as the client sees it, and the calls that it answers.

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use quictun_ipc::{Client, Executor, Message, WaitPolicy, connect};

use crate::kind::Kind;

/// Maximum time that one side waits for the other.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// Call that makes the server square a matrix.
pub(crate) const WORK: u16 = 1;
/// Call that returns the server's notifications and processor time.
pub(crate) const STATISTICS: u16 = 2;
/// Call that makes the server add up the payload.
pub(crate) const PAYLOAD: u16 = 3;

pub(crate) struct ServerProcess {
    child: Child,
}

impl ServerProcess {
    pub(crate) fn start(kind: Kind, cpu: usize, policy: WaitPolicy) -> Result<(Self, OwnedFd)> {
        let (here, there) = quictun_ipc::sockets().context("creating a socket pair")?;
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

    pub(crate) fn with_client(
        cpu: usize,
        policy: WaitPolicy,
        arena: u32,
    ) -> Result<(Self, Client, Executor)> {
        let (peer, socket) = Self::start(Kind::Asynchronous, cpu, policy)?;
        let channel = connect(socket, arena, 1, TIMEOUT).context("connecting to the IPC server")?;
        let (client, executor) = Client::new(channel, policy);
        Ok((peer, client, executor))
    }

    pub(crate) fn of(child: Child) -> Self {
        Self { child }
    }

    /// Waits for the end of the process, which follows the closing of its socket.
    pub(crate) fn end(mut self) -> Result<()> {
        let status = self.child.wait().context("waiting for the server")?;
        if !status.success() {
            bail!("the server ended with {status}");
        }
        Ok(())
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // The process still runs only if something went wrong.
        if matches!(self.child.try_wait(), Ok(None)) && self.child.kill().is_ok() {
            drop(self.child.wait());
        }
    }
}

/// Returns the number of notifications that the server has sent, and its processor time in nanoseconds.
pub(crate) fn statistics(client: &Client, executor: &mut Executor) -> Result<(u64, u64)> {
    let answer = Rc::new(Cell::new(None));
    let (client, place) = (client.clone(), answer.clone());
    executor.spawner().spawn(1, async move {
        place.set(client.call(Message::new(STATISTICS)).await.ok());
    });
    executor.run();
    let answer = answer.get().context("the server stopped answering")?;
    let bytes = answer.bytes().try_into();
    let bytes = bytes.context("reading the server's statistics")?;
    Ok((answer.arg(), u64::from_le_bytes(bytes)))
}
