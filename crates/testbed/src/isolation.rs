//! A test in a world of its own: network, mounts and process ids.
//!
//! [`isolated`] runs the same test again, in a child process inside new namespaces, and lets that one do the
//! work. As root the namespaces are made directly, otherwise in a user namespace, so that no privilege is
//! needed. Where neither is permitted the test is skipped, and says so on standard error.
//!
//! Whatever a test leaves behind inside ends with it: the process is the first of its process namespace.

use std::io::Write as _;
use std::process::{Command, ExitCode, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::program::{self, Program};
use crate::{binaries, environment, machine};

/// Set in the child.
const INSIDE: &str = "QUICTUN_E2E_INSIDE";

/// A whole test, start to end, in seconds. Each wait inside has a shorter deadline of its own.
const DEADLINE_S: u64 = 120;

/// Another number of seconds, for tests that are told to do more.
const DEADLINE: &str = "QUICTUN_E2E_DEADLINE_S";

/// Runs the body of the calling test in namespaces of its own.
///
/// Call it first thing in a test function, with a closure that is all of the test.
///
/// # Errors
///
/// What the body returns, with all it printed.
pub fn isolated<F: FnOnce() -> Result<()>>(body: F) -> Result<()> {
    isolate(&test_name::<F>()?, body)
}

/// The same in a world that `make` has made there for the test of that name. Where it makes none it has said why
/// ([`skip`]).
///
/// # Errors
///
/// What `make` and the body return.
pub fn isolated_with<W, F: FnOnce(W) -> Result<()>>(
    make: impl FnOnce(&str) -> Result<Option<W>>,
    body: F,
) -> Result<()> {
    let test = test_name::<F>()?;
    isolate(&test, || make(&test)?.map_or(Ok(()), body))
}

fn isolate(test: &str, body: impl FnOnce() -> Result<()>) -> Result<()> {
    if std::env::var_os(INSIDE).is_some() {
        machine::run("ip link set lo up")?;
        return body();
    }
    let wrapper = match wrapper() {
        Ok(wrapper) => wrapper,
        Err(reason) => {
            skip(test, reason);
            return Ok(());
        }
    };
    let deadline = Duration::from_secs(environment::number(DEADLINE, DEADLINE_S)?);
    let mut command = program::command("unshare");
    command
        .args(wrapper)
        .arg("--")
        .arg(std::env::current_exe()?)
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .env(binaries::DIRECTORY, binaries::directory()?);
    let mut child = Program::start(test, &mut command)?;
    let status = child.wait_end(deadline)?;
    ensure!(
        status.success(),
        "{test} failed in its namespaces: {status}"
    );
    ensure!(
        child.has_said("1 passed"),
        "{test} is no test: isolated() belongs in the test function itself"
    );
    Ok(())
}

/// Runs this whole program again in namespaces of its own, with the same arguments and streams; `None`: it
/// is there already.
///
/// # Errors
///
/// Where namespaces are not permitted.
pub fn rerun_inside() -> Result<Option<ExitCode>> {
    if std::env::var_os(INSIDE).is_some() {
        machine::run("ip link set lo up")?;
        return Ok(None);
    }
    let wrapper = wrapper().map_err(anyhow::Error::msg)?;
    let status = program::command("unshare")
        .args(wrapper)
        .arg("--")
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .env(binaries::DIRECTORY, binaries::directory()?)
        .status()?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(Some(code.map_or(ExitCode::FAILURE, ExitCode::from)))
}

/// Says on standard error, past the capture of the test harness, that a test was not run.
pub fn skip(test: &str, reason: &str) {
    let line = format!("SKIPPED {test}: {reason}\n");
    // Nobody may be reading.
    if std::io::stderr().write_all(line.as_bytes()).is_err() {}
}

/// A closure's type is named after the function that contains it.
fn test_name<F>() -> Result<String> {
    let closure = std::any::type_name::<F>();
    let function = closure.trim_end_matches("::{{closure}}");
    let (_, test) = function
        .split_once("::")
        .with_context(|| format!("{closure} has no module"))?;
    Ok(test.to_owned())
}

/// How namespaces are made here, or why they cannot be.
fn wrapper() -> Result<&'static [&'static str], &'static str> {
    static WRAPPER: OnceLock<Result<&'static [&'static str], String>> = OnceLock::new();
    let found = WRAPPER.get_or_init(|| {
        let mut reasons = String::new();
        for flags in [&AS_ROOT[..], &AS_USER[..]] {
            match probe(flags) {
                Ok(()) => return Ok(flags),
                Err(error) => reasons.extend(["; ".to_owned(), format!("{error:#}")]),
            }
        }
        Err(format!(
            "neither root's nor user namespaces are permitted here{reasons}"
        ))
    });
    found.as_ref().copied().map_err(String::as_str)
}

const AS_ROOT: [&str; 6] = [
    "--net",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child=KILL",
    "--mount-proc",
];
const AS_USER: [&str; 8] = [
    "--user",
    "--map-root-user",
    "--net",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child=KILL",
    "--mount-proc",
];

fn probe(flags: &[&str]) -> Result<()> {
    let output = Command::new("unshare")
        .args(flags)
        .args(["--", "true"])
        .stdin(Stdio::null())
        .output()
        .context("unshare (apt-get install -y util-linux)")?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
