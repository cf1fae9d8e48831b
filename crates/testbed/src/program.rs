//! Child processes: their output lines, signals, memory and exit.
//!
//! A [`Program`] is killed when it is dropped, and its lines are then printed, which shows them for a failed test. The
//! kernel also kills it when the thread that started it ends: start it on the test's thread.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process, setpriority_process};

use crate::deadline;
use crate::work::Work;

/// Directories in which Debian keeps programs that are not on every user's path.
const EXTRA_PATHS: [&str; 2] = ["/usr/sbin", "/sbin"];
/// Contains one directory per `PostgreSQL` version.
const POSTGRESQL: &str = "/usr/lib/postgresql";

/// Limit from the end of a process to the end of its output. Processes that it started and that hold its output must
/// end with it.
const OUTPUT_END: Duration = Duration::from_secs(20);

/// The nice value of threads that run last.
const LAST: i32 = 19;

/// A program that a test needs is not installed. [`isolated`](crate::isolation::isolated) skips such a test.
#[derive(Debug, thiserror::Error)]
#[error("this test needs {program}: apt-get install -y {package}")]
pub struct MissingProgram {
    program: String,
    package: String,
}

/// Returns the path of a program that a test needs.
///
/// # Errors
///
/// Fails if the program is not installed; the error contains the command that installs it.
pub fn installed(program: &str, package: &str) -> Result<PathBuf, MissingProgram> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let versions = std::fs::read_dir(POSTGRESQL)
        .into_iter()
        .flatten()
        .flatten();
    let places = std::env::split_paths(&path)
        .chain(EXTRA_PATHS.iter().map(PathBuf::from))
        .chain(versions.map(|version| version.path().join("bin")));
    places
        .map(|place| place.join(program))
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| MissingProgram {
            program: program.to_owned(),
            package: package.to_owned(),
        })
}

/// Returns a command whose process is killed when the calling thread ends.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// Gives the calling thread the lowest priority, so that it takes no processor time from programs under test. Threads
/// and processes that it starts inherit the priority.
///
/// # Errors
///
/// Fails if the priority cannot be set.
pub fn lower_own_priority() -> Result<()> {
    setpriority_process(None, LAST).context("lowering the priority of a thread")
}

/// Runs a command to its end and returns its standard output.
///
/// # Errors
///
/// Fails if the command cannot be started or fails; the error contains its output.
pub fn run(command: &mut Command) -> Result<String> {
    let output = output(command)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "{command:?}: {}\n{text}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(text)
}

/// Runs a command to its end and returns its output, even if the command fails.
///
/// # Errors
///
/// Fails if the command cannot be started.
pub fn output(command: &mut Command) -> Result<Output> {
    command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("starting {command:?}"))
}

/// A process under test, or one that supports a test.
#[derive(Debug)]
pub struct Program {
    name: String,
    child: Child,
    status: Option<ExitStatus>,
    lines: Arc<Mutex<Vec<String>>>,
    readers: Vec<JoinHandle<()>>,
    is_silent: bool,
}

impl Program {
    /// Starts `command` and collects its output line by line under `name`.
    ///
    /// # Errors
    ///
    /// Fails if the command cannot be started.
    pub fn start(name: &str, command: &mut Command) -> Result<Self> {
        Self::start_with(name, command, Stdio::piped())
    }

    /// Like [`Program::start`], with the given standard input.
    ///
    /// # Errors
    ///
    /// Fails if the command cannot be started.
    pub fn start_with(name: &str, command: &mut Command, stdin: Stdio) -> Result<Self> {
        let mut child = command
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {command:?}"))?;
        let lines = Arc::default();
        let readers = vec![
            collect(
                child.stdout.take().context("invariant: stdout is piped")?,
                &lines,
            ),
            collect(
                child.stderr.take().context("invariant: stderr is piped")?,
                &lines,
            ),
        ];
        Ok(Self {
            name: name.to_owned(),
            child,
            status: None,
            lines,
            readers,
            is_silent: false,
        })
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns all lines written so far.
    pub fn lines(&self) -> Vec<String> {
        self.lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Returns true if the program has written a line that contains `needle`.
    pub fn has_printed(&self, needle: &str) -> bool {
        self.count(needle) > 0
    }

    /// Returns the number of lines written so far that contain `needle`.
    pub fn count(&self, needle: &str) -> usize {
        self.lines()
            .iter()
            .filter(|line| line.contains(needle))
            .count()
    }

    /// Waits for a line that contains `needle`, and returns it.
    ///
    /// # Errors
    ///
    /// Fails at the deadline, or if the program ends first; the error contains its output.
    pub fn wait_for(&mut self, needle: &str, within: Duration) -> Result<String> {
        let what = format!("{} to write {needle:?}", self.name);
        let found = deadline::wait(&what, within, || {
            let ended = self.ended()?;
            let line = self.lines().into_iter().find(|line| line.contains(needle));
            if line.is_none()
                && let Some(status) = ended
            {
                bail!("{} ended ({status}) before it wrote {needle:?}", self.name);
            }
            Ok(line)
        });
        found.with_context(|| format!("it wrote:\n{}", self.lines().join("\n")))
    }

    /// Sends a signal to the process.
    ///
    /// # Errors
    ///
    /// Fails if the signal cannot be delivered.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).with_context(|| format!("signalling {}", self.name))
    }

    /// Waits for the process to end, and returns its exit status.
    ///
    /// # Errors
    ///
    /// Fails at the deadline; the error contains the program's output.
    pub fn wait_end(&mut self, within: Duration) -> Result<ExitStatus> {
        let what = format!("{} to end", self.name);
        deadline::wait(&what, within, || self.ended())
            .with_context(|| format!("it wrote:\n{}", self.lines().join("\n")))
    }

    /// Returns the exit status if the process has ended. All of its lines are then collected.
    ///
    /// # Errors
    ///
    /// Fails if the status cannot be read, if a process that this one started still holds its output open, or if a
    /// thread that collects output has panicked.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        if self.status.is_none() {
            self.status = self.child.try_wait()?;
        }
        if self.status.is_some() {
            let what = format!(
                "the output of {} to end: the process has ended, but another one holds its output open",
                self.name
            );
            deadline::until(&what, OUTPUT_END, || {
                self.readers.iter().all(JoinHandle::is_finished)
            })?;
            for reader in self.readers.drain(..) {
                if reader.join().is_err() {
                    bail!("reading the output of {} panicked", self.name);
                }
            }
        }
        Ok(self.status)
    }

    /// Kills the process, as a crash or the out-of-memory killer would.
    ///
    /// # Errors
    ///
    /// Fails if the process had already ended.
    pub fn kill(&mut self) -> Result<()> {
        self.signal(Signal::KILL)?;
        let status = self.wait_end(Duration::from_secs(20))?;
        ensure!(
            status.signal() == Some(Signal::KILL.as_raw()),
            "{} had already ended: {status}",
            self.name
        );
        Ok(())
    }

    /// Suppresses the printing of the lines at drop, for a test that passed.
    pub fn silence(&mut self) {
        self.is_silent = true;
    }

    /// Returns the resident memory in bytes.
    ///
    /// # Errors
    ///
    /// Fails if the process has ended.
    pub fn resident_bytes(&self) -> Result<u64> {
        resident_bytes(self.pid())
    }

    /// Returns the most resident memory that the process has had, in bytes.
    ///
    /// # Errors
    ///
    /// Fails if the process has ended.
    pub fn resident_bytes_at_most(&self) -> Result<u64> {
        status_bytes(self.pid(), "VmHWM")
    }

    /// Returns the number of open descriptors.
    ///
    /// # Errors
    ///
    /// Fails if the process has ended.
    pub fn descriptors(&self) -> Result<usize> {
        descriptors(self.pid())
    }

    /// Returns the work of the process's threads so far.
    ///
    /// # Errors
    ///
    /// Fails if the process has ended.
    pub fn work(&self) -> Result<Work> {
        Work::of(self.pid())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let mut lines = self.lines();
        if let Err(error) = self.child.kill().and_then(|()| self.child.wait()) {
            lines.push(format!("the process could not be killed: {error}"));
        }
        if !self.is_silent {
            report(&self.name, &lines);
        }
    }
}

#[expect(
    clippy::print_stdout,
    reason = "the test harness shows this output if the test fails"
)]
fn report(name: &str, lines: &[String]) {
    for line in lines {
        println!("[{name}] {line}");
    }
}

/// Returns the resident memory of a process in bytes.
///
/// # Errors
///
/// Fails if there is no process of this id.
pub fn resident_bytes(pid: u32) -> Result<u64> {
    status_bytes(pid, "VmRSS")
}

/// Returns an amount of memory that the kernel reports for a process (`/proc/PID/status`), in bytes.
fn status_bytes(pid: u32, name: &str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .and_then(|rest| rest.trim().strip_suffix(" kB"))
        .with_context(|| format!("no {name} for process {pid}: has it ended?"))?;
    Ok(kib.trim().parse::<u64>()? * 1024)
}

/// Returns the number of open descriptors of a process.
///
/// # Errors
///
/// Fails if there is no process of this id.
pub fn descriptors(pid: u32) -> Result<usize> {
    Ok(Path::new("/proc")
        .join(pid.to_string())
        .join("fd")
        .read_dir()?
        .count())
}

fn collect(output: impl Read + Send + 'static, lines: &Arc<Mutex<Vec<String>>>) -> JoinHandle<()> {
    let lines = lines.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n') {
            let Ok(line) = line else { return };
            let text = String::from_utf8_lossy(&line).into_owned();
            lines
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(text);
        }
    })
}
