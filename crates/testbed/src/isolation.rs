//! Runs a test in its own namespaces: network, mounts and process ids.
//!
//! [`isolated`] runs the calling test again in a child process inside new namespaces, and that process executes the
//! test body. Root creates the namespaces directly. Other users create them in a user namespace, so no privilege is
//! needed. If neither is permitted, or if a program is missing that the test needs, the test is skipped and reports
//! that on standard error.
//!
//! All processes that a test leaves behind end with it, because the child is the first process of its process
//! namespace.

use std::process::{Command, ExitCode, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use quictun_skip::skipped;

use crate::program::{self, MissingProgram, Program};
use crate::{binaries, environment, machine, standstill};

/// Environment variable that is set in the child process.
const INSIDE: &str = "QUICTUN_E2E_INSIDE";

/// Deadline of a whole test, in seconds. Each wait inside has its own, shorter deadline.
const DEADLINE_S: u64 = 120;

/// Environment variable that overrides [`DEADLINE_S`], for tests that are configured to do more.
const DEADLINE: &str = "QUICTUN_E2E_DEADLINE_S";

/// Runs the body of the calling test in new namespaces.
///
/// Call this first in a test function, with a closure that contains the whole test.
///
/// # Errors
///
/// Returns the error of the body in the child. In the parent, fails if the child fails, does not end before the
/// deadline, or ran no test of this name.
pub fn isolated<F: FnOnce() -> Result<()>>(body: F) -> Result<()> {
    isolated_as(&test_name::<F>()?, body)
}

/// Like [`isolated`], but first calls `make` with the test's name inside the namespaces, and passes its value to the
/// body. If `make` returns `None` it has reported the reason with [`skipped`], and the body does not run.
///
/// # Errors
///
/// Returns the errors of `make` and of the body, and those of [`isolated`].
pub fn isolated_with<W, F: FnOnce(W) -> Result<()>>(
    make: impl FnOnce(&str) -> Result<Option<W>>,
    body: F,
) -> Result<()> {
    let test = test_name::<F>()?;
    isolated_as(&test, || make(&test)?.map_or(Ok(()), body))
}

/// Runs the body of the calling test where it is, and skips the test if the body needs a program that is missing.
///
/// # Errors
///
/// Returns every other error of the body.
pub fn with_programs<F: FnOnce() -> Result<()>>(body: F) -> Result<()> {
    skip_without_program(&test_name::<F>()?, body())
}

/// Like [`isolated`], for a body that is not written in the test function: `test` is the path of that function.
///
/// # Errors
///
/// Returns the errors of [`isolated`].
pub fn isolated_as(test: &str, body: impl FnOnce() -> Result<()>) -> Result<()> {
    if std::env::var_os(INSIDE).is_some() {
        let ran = machine::run("ip link set lo up").and_then(|_| body());
        return skip_without_program(test, ran);
    }
    let wrapper = match wrapper() {
        Ok(wrapper) => wrapper,
        Err(reason) => {
            skipped(test, reason);
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
    let root = child.pid();
    let status = child
        .wait_end(deadline)
        .with_context(|| standstill::describe(root))?;
    ensure!(
        status.success(),
        "{test} failed in its namespaces: {status}"
    );
    ensure!(
        child.has_printed("1 passed"),
        "{test} is not a test: call isolated() in the test function itself"
    );
    quictun_skip::pass_on(child.lines().iter().map(String::as_str));
    Ok(())
}

/// Turns the error of a missing program into a skip.
fn skip_without_program(test: &str, ran: Result<()>) -> Result<()> {
    let error = match ran {
        Ok(()) => return Ok(()),
        Err(error) => error.downcast::<MissingProgram>()?,
    };
    skipped(test, error);
    Ok(())
}

/// Runs this whole program again in new namespaces, with the same arguments and streams. Returns `None` if it already
/// runs inside.
///
/// # Errors
///
/// Fails if namespaces are not permitted.
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

/// Derives the test's name from the closure's type name, which contains the enclosing function.
fn test_name<F>() -> Result<String> {
    let closure = std::any::type_name::<F>();
    let function = closure.trim_end_matches("::{{closure}}");
    let (_, test) = function
        .split_once("::")
        .with_context(|| format!("{closure} has no module"))?;
    Ok(test.to_owned())
}

/// Returns the `unshare` flags that work here, or the reason why none do.
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
        .context("running unshare (apt-get install -y util-linux)")?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
