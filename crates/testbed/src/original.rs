//! A peer that behaves like quic-tun: `tests/original`, a Go program.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use quictun_skip::skipped;

use crate::binaries;
use crate::connection::Endpoint;
use crate::program::{self, Program};

const START: Duration = Duration::from_secs(20);

/// A running server or client that behaves like the original.
#[derive(Debug)]
pub struct Original {
    /// The process of the server or client.
    pub program: Program,
    /// The address on which it listens: a UDP address for a server, the address for applications for a client.
    pub address: String,
}

impl Original {
    /// Starts the program with these arguments. Returns `None` and reports a skip if there is no Go to build it with.
    ///
    /// # Errors
    ///
    /// Fails if the program does not build or start.
    pub fn start<S: AsRef<OsStr>>(test: &str, arguments: &[S]) -> Result<Option<Self>> {
        let Some(go) = go() else {
            skipped(
                test,
                "no Go of 1.21 or newer here: https://go.dev/dl, or apt-get install -y golang-go",
            );
            return Ok(None);
        };
        let mut command = program::command(binary(&go)?);
        let mut program = Program::start("original", command.args(arguments))?;
        let line = program.wait_for("listening ", START)?;
        let address = line
            .rsplit(' ')
            .next()
            .with_context(|| format!("no address in {line:?}"))?
            .to_owned();
        Ok(Some(Self { program, address }))
    }

    /// Returns the address at which applications connect to a client.
    ///
    /// # Errors
    ///
    /// Fails if the address does not parse.
    pub fn forward(&self) -> Result<Endpoint> {
        Endpoint::parse(&self.address)
    }
}

/// Finds Go 1.21 or newer: since that version Go itself downloads the newer toolchain that a module requires.
fn go() -> Option<PathBuf> {
    let mut places: Vec<_> =
        std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect();
    places.push("/usr/local/go/bin".into());
    places
        .into_iter()
        .map(|place| place.join("go"))
        .find(|go| minor_version(go).is_some_and(|minor| minor >= 21))
}

/// Returns the minor version: 26 for `go1.26.8`.
fn minor_version(go: &Path) -> Option<u32> {
    let output = Command::new(go).args(["env", "GOVERSION"]).output().ok()?;
    let version = String::from_utf8(output.stdout).ok()?;
    version
        .trim()
        .strip_prefix("go1.")?
        .split('.')
        .next()?
        .parse()
        .ok()
}

fn binary(go: &Path) -> Result<PathBuf> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| build(go).map_err(|error| format!("{error:#}")));
    built.clone().map_err(anyhow::Error::msg)
}

fn build(go: &Path) -> Result<PathBuf> {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/original");
    let program = binaries::directory()?.join("original");
    let output = Command::new(go)
        .arg("build")
        .arg("-o")
        .arg(&program)
        .arg(".")
        .current_dir(module)
        .output()?;
    ensure!(
        output.status.success(),
        "tests/original does not build; it needs Go 1.26 and, once, a Go module proxy:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(program)
}
