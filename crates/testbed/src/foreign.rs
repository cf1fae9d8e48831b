//! A client on another QUIC implementation, which also sends what no library would: `tests/foreign`, in Python.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::isolation::skip;
use crate::program::{self, Program};
use crate::{binaries, deadline};

/// Where the environment says that it is complete, and for which requirements.
const READY: &str = "requirements-installed";

/// An interpreter that has all that the client needs.
#[derive(Clone, Debug)]
pub struct Python(PathBuf);

/// A running case of the client.
#[derive(Debug)]
pub struct Case {
    program: Program,
    read: usize,
}

impl Python {
    /// Finds or makes the environment; `None`, loudly, where there is no Python or its packages cannot be had.
    ///
    /// A test with a network of its own calls this before it enters that: packages come from the outside.
    ///
    /// # Errors
    ///
    /// Where this program is not in a target directory.
    pub fn find(test: &str) -> Result<Option<Self>> {
        static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
        let environment = binaries::own_directory()?.join("foreign-client");
        let found = FOUND
            .get_or_init(|| prepare(&environment).map_err(|error| format!("{error:#}")))
            .clone();
        Ok(match found {
            Ok(python) => Some(Self(python)),
            Err(reason) => {
                skip(test, &format!("no foreign client: {reason}"));
                None
            }
        })
    }

    /// Starts a case against that server. It ends with the calling thread.
    ///
    /// # Errors
    ///
    /// Where it does not start.
    pub fn start(&self, case: &str, server: SocketAddr, arguments: &[&str]) -> Result<Case> {
        let mut command = program::command(&self.0);
        // Without compiled files, which Python would leave among the sources.
        command
            .arg("-B")
            .arg(sources().join("main.py"))
            .args([case, "--server", &server.to_string()])
            .args(arguments);
        // Its standard input stays open for as long as the program is kept: the case ends with it.
        let program = Program::start("foreign", &mut command)?;
        Ok(Case { program, read: 0 })
    }
}

impl Case {
    /// The next thing that it tells.
    ///
    /// # Errors
    ///
    /// At the deadline, or where it ends without a word; with what it wrote.
    pub fn tells(&mut self, within: Duration) -> Result<Value> {
        let told = deadline::wait("the foreign client to tell something", within, || {
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

/// The interpreter of an environment with the packages of `requirements.txt`.
fn prepare(environment: &Path) -> Result<PathBuf> {
    let python = environment.join("bin/python");
    let list = sources().join("requirements.txt");
    let wanted = std::fs::read_to_string(&list)?;
    let ready = environment.join(READY);
    if std::fs::read_to_string(&ready).is_ok_and(|has| has == wanted) {
        return Ok(python);
    }
    let mut make = program::command("python3");
    make.args(["-m", "venv", "--clear"]).arg(environment);
    program::run(&mut make).context("apt-get install -y python3-venv")?;
    let mut install = program::command(&python);
    install
        .args(["-m", "pip", "install", "--quiet", "--timeout", "15", "-r"])
        .arg(&list);
    program::run(&mut install).context("its packages cannot be installed")?;
    std::fs::write(&ready, wanted)?;
    Ok(python)
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/foreign")
}
