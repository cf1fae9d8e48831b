//! Duties of the first process of a process namespace: it starts the other processes, reaps those that have ended, and
//! ends those that are left.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions, wait};

use crate::{InitProcess, NetNamespace, Signals, exit_code, with_default_signals};

/// Commands of a session, which are started in networks and waited for.
///
/// Make it before other threads exist: they would receive signals that are meant for it.
#[derive(Debug)]
pub struct CommandRunner {
    inside: InitProcess,
    signals: Signals,
    /// Exit codes of this process's own commands that have ended and were not asked for yet.
    ended: BTreeMap<u32, u8>,
    ours: Vec<u32>,
}

/// The reason why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitOutcome {
    /// The command ended with this exit code, or was killed by a signal (128 plus its number).
    Exited(u8),
    /// This signal asks this process to end.
    EndRequested(Signal),
    /// The time limit passed.
    TimedOut,
}

impl WaitOutcome {
    /// Returns the exit code for this outcome: that of the command, 128 plus the number of the signal, or that of
    /// `timeout(1)`.
    pub fn code(self) -> u8 {
        match self {
            Self::Exited(code) => code,
            Self::EndRequested(signal) => u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX),
            Self::TimedOut => TIMED_OUT,
        }
    }
}

/// The exit code of `timeout(1)` for a command that exceeds its limit.
const TIMED_OUT: u8 = 124;

/// The exit code of shells for a command that does not exist.
const NOT_FOUND: u8 = 127;

/// The exit code of shells for a command that cannot be run.
const NOT_EXECUTABLE: u8 = 126;

/// Returns the exit code and message of a shell for a program that could not be started; `None` if the program is not
/// the cause.
pub fn refusal(program: &str, error: &io::Error) -> Option<(u8, String)> {
    let not_found = (NOT_FOUND, format!("{program}: not found"));
    match error.kind() {
        ErrorKind::NotFound => Some(not_found),
        // The system also returns this error if a directory of the path may not be searched, whatever it holds.
        ErrorKind::PermissionDenied if !exists(program) => Some(not_found),
        ErrorKind::PermissionDenied => Some((NOT_EXECUTABLE, format!("{program}: {error}"))),
        _ => None,
    }
}

/// Returns whether there is a program of this name, as far as this process can see.
fn exists(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    Path::new(program).is_file()
        || !program.contains('/')
            && std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// Interval of checks for which there is no notification.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

impl CommandRunner {
    /// Takes over the duties of the first process.
    pub fn new(inside: InitProcess) -> io::Result<Self> {
        let signals = Signals::of_parents()?;
        Ok(Self {
            inside,
            signals,
            ended: BTreeMap::new(),
            ours: Vec::new(),
        })
    }

    /// Starts a command in a network and returns its process id.
    pub fn start(&mut self, network: &NetNamespace, command: &mut Command) -> io::Result<u32> {
        with_default_signals(command);
        // `wait` reaps the process, so the handle is not needed.
        let pid = network.within(|| Ok(command.spawn()?.id()))?;
        self.ours.push(pid);
        Ok(pid)
    }

    /// Waits for the end of a command that was started here.
    ///
    /// Ctrl-C at the terminal does not end the wait: the command has received it as well and decides itself.
    pub fn wait(&mut self, pid: u32, until: Option<Instant>) -> io::Result<WaitOutcome> {
        self.wait_any(&[pid], until).map(|(_, outcome)| outcome)
    }

    /// Waits as [`Self::wait`] does, for several commands. Returns the first that has ended, with its outcome; for
    /// other outcomes, returns the first of `pids`.
    pub fn wait_any(
        &mut self,
        pids: &[u32],
        until: Option<Instant>,
    ) -> io::Result<(u32, WaitOutcome)> {
        let first = pids.first().copied().unwrap_or_default();
        loop {
            self.reap()?;
            for pid in pids {
                if let Some(code) = self.ended.remove(pid) {
                    return Ok((*pid, WaitOutcome::Exited(code)));
                }
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok((first, WaitOutcome::TimedOut));
            }
            let came = self.signals.wait(left.unwrap_or(Duration::from_hours(1)))?;
            if let Some(came) = came
                && came.signal != Signal::CHILD
                && !came.by_terminal
            {
                return Ok((first, WaitOutcome::EndRequested(came.signal)));
            }
        }
    }

    /// Checks `done` at intervals until it returns true, the command ends, or `until` passes. Returns whether it was
    /// true.
    pub fn wait_until(
        &mut self,
        pid: u32,
        until: Instant,
        mut done: impl FnMut() -> bool,
    ) -> io::Result<bool> {
        while Instant::now() < until {
            if done() {
                return Ok(true);
            }
            self.reap()?;
            if self.ended.contains_key(&pid) {
                return Ok(false);
            }
            self.signals.wait(CHECK_INTERVAL)?;
        }
        Ok(false)
    }

    /// Asks all processes to end, and kills those that have not ended within `grace`.
    pub fn end_all(&mut self, grace: Duration) -> io::Result<()> {
        let until = Instant::now() + grace;
        self.inside.signal_all(Signal::TERM)?;
        while self.reap()? && Instant::now() < until {
            self.signals.wait(CHECK_INTERVAL)?;
        }
        self.inside.signal_all(Signal::KILL)?;
        while self.reap()? {
            self.signals.wait(CHECK_INTERVAL)?;
        }
        Ok(())
    }

    /// Reaps all processes that have ended. Returns whether others are left.
    fn reap(&mut self) -> io::Result<bool> {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    let pid = pid.as_raw_pid().cast_unsigned();
                    if self.ours.contains(&pid) {
                        let status = ExitStatus::from_raw(status.as_raw());
                        self.ended.insert(pid, exit_code(status));
                    }
                }
                Ok(None) => return Ok(true),
                Err(Errno::CHILD) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
    }
}
