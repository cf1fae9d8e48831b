//! A client that uses another QUIC implementation and can also send what no library sends: `tests/foreign`, in Python.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use quictun_skip::skipped;
use serde_json::Value;

use crate::program::{self, Program};
use crate::{binaries, deadline};

/// A file whose presence says that the environment is complete; it holds the requirements that are installed.
const READY: &str = "requirements-installed";

/// A Python interpreter with all packages that the foreign client needs.
#[derive(Clone, Debug)]
pub struct Python(PathBuf);

/// A running test case of the foreign client.
#[derive(Debug)]
pub struct ForeignCase {
    program: Program,
    read: usize,
}

impl Python {
    /// Finds or creates the Python environment. Returns `None` and reports a skip if there is no Python or its packages
    /// cannot be installed.
    ///
    /// A test that runs in its own network calls this before it enters that network, because the packages come from
    /// outside.
    ///
    /// # Errors
    ///
    /// Fails if this program is not in a target directory.
    pub fn find(test: &str) -> Result<Option<Self>> {
        static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
        let environment = binaries::own_directory()?.join("foreign-client");
        let found = FOUND
            .get_or_init(|| prepare(&environment).map_err(|error| format!("{error:#}")))
            .clone();
        Ok(match found {
            Ok(python) => Some(Self(python)),
            Err(reason) => {
                skipped(test, format_args!("no foreign client: {reason}"));
                None
            }
        })
    }

    /// Starts a test case against `server`. The process dies with the calling thread.
    ///
    /// # Errors
    ///
    /// Fails if the process cannot be started.
    pub fn start(&self, case: &str, server: SocketAddr, arguments: &[&str]) -> Result<ForeignCase> {
        let mut command = program::command(&self.0);
        // `-B`: otherwise Python would leave compiled files among the sources.
        command
            .arg("-B")
            .arg(sources().join("main.py"))
            .args([case, "--server", &server.to_string()])
            .args(arguments);
        // The program's standard input stays open for as long as `Program` lives: the case ends when it is closed.
        let program = Program::start("foreign", &mut command)?;
        Ok(ForeignCase { program, read: 0 })
    }
}

impl ForeignCase {
    /// Waits for the next JSON line that the client prints, and returns it.
    ///
    /// # Errors
    ///
    /// Fails at the deadline, or if the client ends before it prints one. The error contains the client's output.
    pub fn next_line(&mut self, within: Duration) -> Result<Value> {
        let told = deadline::wait("a JSON line from the foreign client", within, || {
            let ended = self.program.ended()?;
            let lines = self.program.lines();
            let line = lines
                .iter()
                .filter(|line| line.starts_with('{'))
                .nth(self.read)
                .cloned();
            if let (None, Some(status)) = (&line, ended) {
                bail!("the foreign client ended: {status}");
            }
            Ok(line)
        });
        let line =
            told.with_context(|| format!("it wrote:\n{}", self.program.lines().join("\n")))?;
        self.read += 1;
        Ok(serde_json::from_str(&line)?)
    }
}

/// Returns the interpreter of an environment with the packages of `requirements.txt`, and creates the environment if
/// needed.
fn prepare(environment: &Path) -> Result<PathBuf> {
    let python = environment.join("bin/python");
    let list = sources().join("requirements.txt");
    let wanted = std::fs::read_to_string(&list)?;
    let ready = environment.join(READY);
    if std::fs::read_to_string(&ready).is_ok_and(|has| has == wanted) && python.exists() {
        return Ok(python);
    }
    let mut make = program::command("python3");
    make.args(["-m", "venv", "--clear"]).arg(environment);
    program::run(&mut make).context("apt-get install -y python3-venv")?;
    let mut install = program::command(&python);
    install
        .args(["-m", "pip", "install", "--quiet", "--timeout", "15", "-r"])
        .arg(&list);
    program::run(&mut install).context("installing the packages of the foreign client")?;
    std::fs::write(&ready, wanted)?;
    Ok(python)
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/foreign")
}
