//! Programs of a cell: started in a network, watched, and ended with all that they started.

use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use quictun_sys::{Came, NetNamespace, Signals, with_default_signals};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

const LOOK: Duration = Duration::from_millis(50);

/// The same while one waits for it to be ready.
const SOON: Duration = Duration::from_millis(2);

/// How long a program may take to be ready, and to end after it was asked to.
const READY: Duration = Duration::from_secs(15);
const GRACE: Duration = Duration::from_secs(2);

/// What is kept of a program's output, bytes: the JSON of an hour.
const OUTPUT: u64 = 16 << 20;

#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted;

#[derive(Debug)]
pub(crate) struct Patience(Signals);

impl Patience {
    /// Call it before there are threads.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(Signals::of_parents()?))
    }

    /// Waits for so long, or until a program has ended. Fails with [`Interrupted`].
    pub(crate) fn wait(&self, within: Duration) -> Result<()> {
        match self.0.wait(within)? {
            Some(Came { signal, .. }) if signal != Signal::CHILD => Err(Interrupted.into()),
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

/// Starts a command, at one side of a link or another.
pub type Spawn<'a> = &'a dyn Fn(&mut Command) -> io::Result<Child>;

/// A program, in a process group of its own unless it was started otherwise.
#[derive(Debug)]
pub(crate) struct Started {
    name: String,
    child: Child,
    output: Receiver<String>,
    errors: Receiver<String>,
}

#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) output: String,
    pub(crate) errors: String,
}

impl Started {
    pub(crate) fn new(name: &str, network: &NetNamespace, command: &mut Command) -> Result<Self> {
        Self::by(name, &in_network(network), command)
    }

    pub(crate) fn by(name: &str, spawn: Spawn<'_>, command: &mut Command) -> Result<Self> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = spawn(command).with_context(|| format!("starting {name}"))?;
        let output = child.stdout.take().context("its output")?;
        let errors = child.stderr.take().context("its errors")?;
        Ok(Self {
            name: name.to_owned(),
            child,
            output: kept(output),
            errors: kept(errors),
        })
    }

    pub(crate) fn group(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `ready`; its end before that is an error.
    pub(crate) fn wait_ready(
        &mut self,
        patience: &Patience,
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
            patience.wait(SOON)?;
        }
        Ok(())
    }

    /// Waits for its end, and calls `look` meanwhile again and again.
    pub(crate) fn wait_end(
        mut self,
        patience: &Patience,
        within: Duration,
        mut look: impl FnMut() -> Result<()>,
    ) -> Result<Ended> {
        let until = Instant::now() + within;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Ended {
                    status,
                    output: self.output.recv_timeout(GRACE).unwrap_or_default(),
                    errors: self.said(),
                });
            }
            if Instant::now() > until {
                bail!(
                    "{} was not done after {:.0} s",
                    self.name,
                    within.as_secs_f64()
                );
            }
            look()?;
            patience.wait(LOOK)?;
        }
    }

    pub(crate) fn check(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{} ended with {status}: {}", self.name, self.said());
        }
        Ok(())
    }

    /// Ends it as a service manager would.
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
            // Its output ends with it.
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

    /// The end of what it said on standard error or, where that is nothing, on standard output.
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

    fn tell(&mut self, signal: Signal) {
        let told = kill_process_group(Pid::from_child(&self.child), signal);
        // Where it has no group of its own it is killed. One that has ended is as good.
        if told.is_err() && self.child.kill().is_err() {}
    }
}

/// A line for the shell.
pub(crate) fn sh(line: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", line]);
    command
}

/// Starts commands in a network, each in a process group of its own: Ctrl-C ends the one who started it, who ends it in
/// order.
pub(crate) fn in_network(network: &NetNamespace) -> impl Fn(&mut Command) -> io::Result<Child> {
    move |command| {
        with_default_signals(command).process_group(0);
        network.within(|| command.spawn())
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.tell(Signal::TERM);
        // Both pipes close when the last of the group is gone.
        let until = Instant::now() + GRACE;
        let gone = |pipe: &Receiver<String>| {
            let left = until.saturating_duration_since(Instant::now());
            pipe.recv_timeout(left) != Err(std::sync::mpsc::RecvTimeoutError::Timeout)
        };
        if !(gone(&self.output) && gone(&self.errors)) {
            self.tell(Signal::KILL);
        }
        if self.child.wait().is_err() {
            // It has been waited for.
        }
    }
}

/// Reads all of a pipe, keeps so much of it, and hands it over at its end.
fn kept(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let mut pipe = pipe.take(OUTPUT);
        let read = pipe.read_to_end(&mut bytes);
        // What is beyond is read and forgotten, so that the program goes on.
        let rest = io::copy(&mut pipe.into_inner(), &mut io::sink());
        if read.and(rest).is_err() {
            // What there was will do.
        }
        if sender
            .send(String::from_utf8_lossy(&bytes).into_owned())
            .is_err()
        {
            // Nobody wants to know.
        }
    });
    receiver
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().rev().take(3).collect();
    let lines: Vec<&str> = lines.into_iter().rev().collect();
    lines.join(" / ")
}
