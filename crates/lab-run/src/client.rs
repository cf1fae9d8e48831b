//! Programs of a cell: started in a network, watched, and ended with all that they started.

use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use quictun_sys::{Came, NetNamespace, Signals, with_default_signals};
use rustix::process::{Pid, Signal, kill_process_group};

/// How often one looks at what a program does.
const LOOK: Duration = Duration::from_millis(50);

/// The same while one waits for it to be ready.
const SOON: Duration = Duration::from_millis(2);

/// How long a program may take to be ready, and to end after it was asked to.
const READY: Duration = Duration::from_secs(15);
const GRACE: Duration = Duration::from_secs(2);

/// What is kept of a program's output, bytes: the JSON of an hour.
const OUTPUT: u64 = 16 << 20;

/// Somebody wants the run to end.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted;

/// Waits, and notices when it is to be over.
#[derive(Debug)]
pub(crate) struct Patience {
    signals: Signals,
}

impl Patience {
    /// Call it before there are threads.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            signals: Signals::of_parents()?,
        })
    }

    /// Waits for so long, or until a program has ended.
    ///
    /// # Errors
    ///
    /// [`Interrupted`].
    pub(crate) fn wait(&self, within: Duration) -> Result<()> {
        match self.signals.wait(within)? {
            Some(Came { signal, .. }) if signal != Signal::CHILD => Err(Interrupted.into()),
            _ => Ok(()),
        }
    }

    /// Waits for all of it.
    pub(crate) fn pause(&self, length: Duration) -> Result<()> {
        let until = Instant::now() + length;
        while Instant::now() < until {
            self.wait(until.saturating_duration_since(Instant::now()))?;
        }
        Ok(())
    }
}

/// A program, in a process group of its own.
#[derive(Debug)]
pub(crate) struct Started {
    name: String,
    child: Child,
    output: Receiver<String>,
    errors: Receiver<String>,
}

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) output: String,
    pub(crate) errors: String,
}

impl Started {
    /// Starts it.
    pub(crate) fn new(name: &str, network: &NetNamespace, command: &mut Command) -> Result<Self> {
        with_default_signals(command)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = network.within(|| command.spawn());
        let mut child = child.with_context(|| format!("starting {name}"))?;
        let output = child.stdout.take().context("its output")?;
        let errors = child.stderr.take().context("its errors")?;
        Ok(Self {
            name: name.to_owned(),
            child,
            output: kept(output),
            errors: kept(errors),
        })
    }

    /// Its process group.
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

    /// What is wrong with a program that should run and does not.
    pub(crate) fn check(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{} ended with {status}: {}", self.name, self.said());
        }
        Ok(())
    }

    /// The end of what it said on standard error.
    fn said(&self) -> String {
        last_lines(&self.errors.recv_timeout(GRACE).unwrap_or_default())
    }

    fn tell(&self, signal: Signal) {
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        // Nobody left to tell is as good.
        if group.is_some_and(|group| kill_process_group(group, signal).is_err()) {}
    }
}

impl Drop for Started {
    /// Ends it and what it started.
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
        let rest = std::io::copy(&mut pipe.into_inner(), &mut std::io::sink());
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

/// Enough of a message to see what it is about.
fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().rev().take(3).collect();
    let lines: Vec<&str> = lines.into_iter().rev().collect();
    lines.join(" / ")
}
