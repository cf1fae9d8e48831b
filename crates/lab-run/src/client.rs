//! Starts the programs of a cell in a network, watches them, and ends them with all their descendants.

use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use quictun_sys::{NetNamespace, ReceivedSignal, Signals, with_default_signals};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

const LOOK: Duration = Duration::from_millis(50);

/// The polling interval while waiting for a program to become ready or to end.
const SOON: Duration = Duration::from_millis(2);

/// Time limits for a program to become ready, and to end after a signal.
const READY: Duration = Duration::from_secs(15);
const GRACE: Duration = Duration::from_secs(2);

/// Maximum number of bytes that are kept of a program's output. The JSON of an hour fits.
const OUTPUT: u64 = 16 << 20;

#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted;

#[derive(Debug)]
pub(crate) struct SignalWaiter(Signals);

impl SignalWaiter {
    /// Blocks the signals. Call this before the process has other threads.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(Signals::of_parents()?))
    }

    /// Waits for this time, or until a program has ended. Fails with [`Interrupted`] on any other signal.
    pub(crate) fn wait(&self, within: Duration) -> Result<()> {
        match self.0.wait(within)? {
            Some(ReceivedSignal { signal, .. }) if signal != Signal::CHILD => {
                Err(Interrupted.into())
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn pause(&self, length: Duration) -> Result<()> {
        let until = Instant::now() + length;
        while Instant::now() < until {
            self.wait(until.saturating_duration_since(Instant::now()))?;
        }
        Ok(())
    }
}

/// A function that starts a command, at either side of a link.
pub type Spawn<'a> = &'a dyn Fn(&mut Command) -> io::Result<Child>;

/// A running program. It has its own process group, unless [`Spawn`] gave it none.
#[derive(Debug)]
pub(crate) struct ChildProgram {
    name: String,
    child: Child,
    output: Receiver<String>,
    errors: Receiver<String>,
}

#[derive(Debug)]
pub(crate) struct ProgramResult {
    pub(crate) status: ExitStatus,
    pub(crate) output: String,
    pub(crate) errors: String,
}

impl ChildProgram {
    pub(crate) fn new(name: &str, network: &NetNamespace, command: &mut Command) -> Result<Self> {
        Self::spawned(name, &in_network(network), command)
    }

    pub(crate) fn spawned(name: &str, spawn: Spawn<'_>, command: &mut Command) -> Result<Self> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = spawn(command).with_context(|| format!("cannot start {name}"))?;
        let output = child
            .stdout
            .take()
            .context("the program has no standard output")?;
        let errors = child
            .stderr
            .take()
            .context("the program has no standard error")?;
        Ok(Self {
            name: name.to_owned(),
            child,
            output: read_output(output),
            errors: read_output(errors),
        })
    }

    pub(crate) fn group(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `ready` returns true. Fails if the program ends before.
    pub(crate) fn wait_ready(
        &mut self,
        waiter: &SignalWaiter,
        ready: impl Fn() -> bool,
    ) -> Result<()> {
        let until = Instant::now() + READY;
        while !ready() {
            if let Some(status) = self.child.try_wait()? {
                bail!(
                    "{} ended with {status} before it was ready: {}",
                    self.name,
                    self.said()
                );
            }
            if Instant::now() > until {
                bail!("{} was not ready after {} s", self.name, READY.as_secs());
            }
            waiter.wait(SOON)?;
        }
        Ok(())
    }

    /// Waits for the program's end, and calls `look` repeatedly meanwhile.
    pub(crate) fn wait_end(
        mut self,
        waiter: &SignalWaiter,
        within: Duration,
        mut look: impl FnMut() -> Result<()>,
    ) -> Result<ProgramResult> {
        let until = Instant::now() + within;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(ProgramResult {
                    status,
                    output: self.output.recv_timeout(GRACE).unwrap_or_default(),
                    errors: self.said(),
                });
            }
            if Instant::now() > until {
                bail!(
                    "{} did not finish within {:.0} s",
                    self.name,
                    within.as_secs_f64()
                );
            }
            look()?;
            waiter.wait(LOOK)?;
        }
    }

    pub(crate) fn check(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{} ended with {status}: {}", self.name, self.said());
        }
        Ok(())
    }

    /// Ends the program with SIGTERM, as a service manager does. Fails if it does not end within the limit, or not
    /// successfully.
    pub(crate) fn stop(&mut self, within: Duration) -> Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let until = Instant::now() + within;
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            let (name, limit) = (&self.name, within.as_secs());
            ensure!(
                Instant::now() < until,
                "{name} did not end within {limit} s"
            );
            // The output closes when the program ends, so this waits no longer than needed.
            drop(self.output.recv_timeout(SOON));
        };
        let name = &self.name;
        ensure!(
            status.success(),
            "{name} ended with {status}: {}",
            self.said()
        );
        Ok(())
    }

    /// Returns the last lines of the program's standard error. If there are none, returns those of its standard output.
    fn said(&self) -> String {
        let end =
            |pipe: &Receiver<String>| last_lines(&pipe.recv_timeout(GRACE).unwrap_or_default());
        let errors = end(&self.errors);
        if errors.is_empty() {
            end(&self.output)
        } else {
            errors
        }
    }

    fn send_signal(&mut self, signal: Signal) {
        let sent = kill_process_group(Pid::from_child(&self.child), signal);
        // Without its own process group, the program alone is killed. An error means that it has ended already.
        if sent.is_err() && self.child.kill().is_err() {}
    }
}

/// Returns a command that runs a line in the shell.
pub(crate) fn sh(line: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", line]);
    command
}

/// Returns a function that starts commands in a network, each in its own process group. Ctrl-C therefore reaches only
/// this process, which then ends the commands in order.
pub(crate) fn in_network(network: &NetNamespace) -> impl Fn(&mut Command) -> io::Result<Child> {
    move |command| {
        with_default_signals(command).process_group(0);
        network.within(|| command.spawn())
    }
}

impl Drop for ChildProgram {
    fn drop(&mut self) {
        self.send_signal(Signal::TERM);
        // Both pipes close when the last process of the group has ended.
        let until = Instant::now() + GRACE;
        let gone = |pipe: &Receiver<String>| {
            let left = until.saturating_duration_since(Instant::now());
            pipe.recv_timeout(left) != Err(std::sync::mpsc::RecvTimeoutError::Timeout)
        };
        if !(gone(&self.output) && gone(&self.errors)) {
            self.send_signal(Signal::KILL);
        }
        if self.child.wait().is_err() {
            // The program was waited for before.
        }
    }
}

/// Reads a pipe to its end, keeps the first [`OUTPUT`] bytes, and sends them at the end.
fn read_output(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let mut pipe = pipe.take(OUTPUT);
        let read = pipe.read_to_end(&mut bytes);
        // Read and discard the rest, so that the program does not block.
        let rest = io::copy(&mut pipe.into_inner(), &mut io::sink());
        if read.and(rest).is_err() {
            // An error only shortens the output.
        }
        if sender
            .send(String::from_utf8_lossy(&bytes).into_owned())
            .is_err()
        {
            // The receiver is gone: the output is not needed.
        }
    });
    receiver
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().rev().take(3).collect();
    let lines: Vec<&str> = lines.into_iter().rev().collect();
    lines.join(" / ")
}
