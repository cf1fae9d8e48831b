//! What the first process of a process namespace owes the others: it starts them, takes leave of each, and ends
//! those that are left.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::{Inside, NetNamespace, Reaped, Signals, with_default_signals};

/// Commands of a session, started in networks and waited for.
///
/// Make it before there are threads: they would take signals that are meant for it.
#[derive(Debug)]
pub struct FirstProcess {
    inside: Inside,
    signals: Signals,
    /// Exit codes of our own commands that have ended and were not asked for yet.
    ended: BTreeMap<u32, u8>,
    ours: Vec<u32>,
}

/// Why a wait is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The command ended with this exit code, or was killed by a signal (128 and its number).
    Ended(u8),
    /// Somebody wants us to end.
    Asked(Signal),
    /// Its time was up.
    Late,
}

impl Outcome {
    /// The exit code that says so: that of the command, 128 and the number of the signal, or that of `timeout(1)`.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Ended(code) => code,
            Self::Asked(signal) => u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX),
            Self::Late => TIMED_OUT,
        }
    }
}

/// `timeout(1)` ends so.
const TIMED_OUT: u8 = 124;

/// Shells say so where there is no such command.
const NOT_FOUND: u8 = 127;

/// And so where there is one that cannot be run.
const NOT_EXECUTABLE: u8 = 126;

/// The exit code and the words of a shell for a program that could not be started; `None` where the fault is not the
/// program's.
#[must_use]
pub fn refusal(program: &str, error: &io::Error) -> Option<(u8, String)> {
    let not_found = (NOT_FOUND, format!("{program}: not found"));
    match error.kind() {
        ErrorKind::NotFound => Some(not_found),
        // Also where a directory of the path may not be searched, whatever it holds.
        ErrorKind::PermissionDenied if !exists(program) => Some(not_found),
        ErrorKind::PermissionDenied => Some((NOT_EXECUTABLE, format!("{program}: {error}"))),
        _ => None,
    }
}

/// Whether there is a program of this name, as far as can be seen.
fn exists(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    Path::new(program).is_file()
        || !program.contains('/')
            && std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// A look at whether something has happened, where nobody tells us.
const LOOK: Duration = Duration::from_millis(5);

impl FirstProcess {
    /// Takes over the duties.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn new(inside: Inside) -> io::Result<Self> {
        let signals = Signals::of_parents()?;
        Ok(Self {
            inside,
            signals,
            ended: BTreeMap::new(),
            ours: Vec::new(),
        })
    }

    /// Starts a command in a network and returns its process id.
    ///
    /// # Errors
    ///
    /// As [`Command::spawn`].
    pub fn start(&mut self, network: &NetNamespace, command: &mut Command) -> io::Result<u32> {
        with_default_signals(command);
        // What the handle would wait for, `wait` does.
        let pid = network.within(|| Ok(command.spawn()?.id()))?;
        self.ours.push(pid);
        Ok(pid)
    }

    /// Waits for the end of a command that was started here.
    ///
    /// Ctrl-C at the terminal is the command's to obey: it got it as well.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn wait(&mut self, pid: u32, until: Option<Instant>) -> io::Result<Outcome> {
        self.wait_any(&[pid], until).map(|(_, outcome)| outcome)
    }

    /// The same for several, of which the first to be found ended is told, and the first of all in other cases.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn wait_any(&mut self, pids: &[u32], until: Option<Instant>) -> io::Result<(u32, Outcome)> {
        let first = pids.first().copied().unwrap_or_default();
        loop {
            self.reap()?;
            for pid in pids {
                if let Some(code) = self.ended.remove(pid) {
                    return Ok((*pid, Outcome::Ended(code)));
                }
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok((first, Outcome::Late));
            }
            let came = self.signals.wait(left.unwrap_or(Duration::from_hours(1)))?;
            if let Some(came) = came
                && came.signal != Signal::CHILD
                && !came.by_terminal
            {
                return Ok((first, Outcome::Asked(came.signal)));
            }
        }
    }

    /// Looks again and again until `done`, the command's end, or `until`; whether it was `done`.
    ///
    /// # Errors
    ///
    /// The system's.
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
            self.signals.wait(LOOK)?;
        }
        Ok(false)
    }

    /// Asks everybody to end, and ends those that do not within `grace`.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn end_all(&mut self, grace: Duration) -> io::Result<()> {
        let until = Instant::now() + grace;
        self.inside.signal_all(Signal::TERM)?;
        while self.reap()? && Instant::now() < until {
            self.signals.wait(LOOK)?;
        }
        self.inside.signal_all(Signal::KILL)?;
        while self.reap()? {
            self.signals.wait(LOOK)?;
        }
        Ok(())
    }

    /// Takes leave of all who have ended; whether there are others.
    fn reap(&mut self) -> io::Result<bool> {
        loop {
            match self.inside.reap()? {
                Reaped::Nobody => return Ok(false),
                Reaped::None => return Ok(true),
                Reaped::One { pid, code } => {
                    if self.ours.contains(&pid) {
                        self.ended.insert(pid, code);
                    }
                }
            }
        }
    }
}
