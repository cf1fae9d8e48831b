//! Child processes: their lines, their signals, their memory, their end.
//!
//! A [`Program`] is killed when it is dropped (its lines are then printed, which shows them where a test failed), and by the kernel when the thread that started it ends: start
//! it on the thread of the test.

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

/// Where Debian keeps programs that are not on every user's path.
const EXTRA_PATHS: [&str; 2] = ["/usr/sbin", "/sbin"];
/// One directory for each version.
const POSTGRESQL: &str = "/usr/lib/postgresql";

/// The priority of threads that run last.
const LAST: i32 = 19;

/// The path of a program that a test needs.
///
/// # Errors
///
/// Where it is not installed, with the line to type.
pub fn installed(program: &str, package: &str) -> Result<PathBuf> {
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
        .with_context(|| format!("this test needs {program}: apt-get install -y {package}"))
}

/// A command whose process is killed when the calling thread ends.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// Runs a command to its end.
///
/// # Errors
///
/// Where it cannot be started or fails, with what it wrote.
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

/// Runs a command to its end, which may be a failure.
///
/// # Errors
///
/// Where it cannot be started.
pub fn output(command: &mut Command) -> Result<Output> {
    command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("starting {command:?}"))
}

/// A process under test, or one that helps.
#[derive(Debug)]
pub struct Program {
    name: String,
    child: Child,
    status: Option<ExitStatus>,
    lines: Arc<Mutex<Vec<String>>>,
    readers: Vec<JoinHandle<()>>,
    hushed: bool,
}

impl Program {
    /// Starts `command`; what it writes is collected line by line under `name`.
    ///
    /// # Errors
    ///
    /// Where it cannot be started.
    pub fn start(name: &str, command: &mut Command) -> Result<Self> {
        Self::start_with(name, command, Stdio::piped())
    }

    /// The same, with this standard input.
    ///
    /// # Errors
    ///
    /// Where it cannot be started.
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
            hushed: false,
        })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything it has written so far.
    pub fn lines(&self) -> Vec<String> {
        self.lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Whether a line with `needle` in it has been written.
    pub fn has_said(&self, needle: &str) -> bool {
        self.count(needle) > 0
    }

    /// How many lines with `needle` in them have been written.
    pub fn count(&self, needle: &str) -> usize {
        self.lines()
            .iter()
            .filter(|line| line.contains(needle))
            .count()
    }

    /// Waits for a line with `needle` in it.
    ///
    /// # Errors
    ///
    /// At the deadline, or where the program ends first; with what it wrote.
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

    /// Sends a signal.
    ///
    /// # Errors
    ///
    /// Where it has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).with_context(|| format!("signalling {}", self.name))
    }

    /// Waits for its end.
    ///
    /// # Errors
    ///
    /// At the deadline.
    pub fn wait_end(&mut self, within: Duration) -> Result<ExitStatus> {
        let what = format!("{} to end", self.name);
        deadline::wait(&what, within, || self.ended())
            .with_context(|| format!("it wrote:\n{}", self.lines().join("\n")))
    }

    /// Its end, where it has ended; all of its lines are then there.
    ///
    /// # Errors
    ///
    /// Where the system does not say.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        if self.status.is_none() {
            self.status = self.child.try_wait()?;
            if self.status.is_some() {
                for reader in self.readers.drain(..) {
                    if reader.join().is_err() {
                        bail!("reading the output of {} panicked", self.name);
                    }
                }
            }
        }
        Ok(self.status)
    }

    /// Kills it, as a crash or the lack of memory would.
    ///
    /// # Errors
    ///
    /// Where it had ended by itself.
    pub fn kill(&mut self) -> Result<()> {
        self.signal(Signal::KILL)?;
        let status = self.wait_end(Duration::from_secs(5))?;
        ensure!(
            status.signal() == Some(Signal::KILL.as_raw()),
            "{} had ended: {status}",
            self.name
        );
        Ok(())
    }

    /// Lets it go without its lines being printed: all went well.
    pub fn hush(&mut self) {
        self.hushed = true;
    }

    /// Resident memory, bytes.
    ///
    /// # Errors
    ///
    /// Where it has ended.
    pub fn resident_bytes(&self) -> Result<u64> {
        resident_bytes(self.pid())
    }

    /// Open descriptors.
    ///
    /// # Errors
    ///
    /// Where it has ended.
    pub fn descriptors(&self) -> Result<usize> {
        descriptors(self.pid())
    }

    /// Work of its threads so far.
    ///
    /// # Errors
    ///
    /// Where it has ended.
    pub fn work(&self) -> Result<Work> {
        Work::of(self.pid())
    }

    /// Has its present threads run where no others want to, as a program on another machine would take nobody's processor here.
    ///
    /// # Errors
    ///
    /// Where it has ended.
    pub fn give_way(&self) -> Result<()> {
        let threads = Path::new("/proc").join(self.pid().to_string()).join("task");
        for thread in threads.read_dir()? {
            let id = thread?.file_name().to_string_lossy().parse()?;
            match setpriority_process(Pid::from_raw(id), LAST) {
                // It has ended in the meantime.
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let mut lines = self.lines();
        if let Err(error) = self.child.kill().and_then(|()| self.child.wait()) {
            lines.push(format!("it could not be killed: {error}"));
        }
        if !self.hushed {
            report(&self.name, &lines);
        }
    }
}

#[expect(
    clippy::print_stdout,
    reason = "the test harness shows it where the test failed"
)]
fn report(name: &str, lines: &[String]) {
    for line in lines {
        println!("[{name}] {line}");
    }
}

/// Resident memory of a process, bytes.
///
/// # Errors
///
/// Where there is none of that id.
pub fn resident_bytes(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.trim().strip_suffix(" kB"))
        .with_context(|| format!("process {pid} has no memory: has it ended?"))?;
    Ok(kib.trim().parse::<u64>()? * 1024)
}

/// Open descriptors of a process.
///
/// # Errors
///
/// Where there is none of that id.
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
