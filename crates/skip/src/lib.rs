//! Tests that the machine does not allow: [`as_own_root`] runs one in a user namespace, [`skipped`] reports one that
//! cannot run.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::net::ToSocketAddrs as _;
use std::process::Command;

/// Start of the line that a skipped test prints. `tests/run` counts these lines, and `.ci/run` fails if there is one.
const SKIPPED: &str = "SKIPPED ";

/// Prints that a test, or a part of it, was skipped because the machine does not allow it or lacks a program.
///
/// Writes to standard error, around the capture of the test harness. Ignores that the other end of the stream is closed.
pub fn skipped(test: &str, why: impl Display) {
    let line = format!("{SKIPPED}{test}: {why}\n");
    if io::stderr().write_all(line.as_bytes()).is_err() {}
}

/// Runs the test of this name again, as the root of a user namespace of its own. Skips it if the system permits none.
///
/// # Panics
///
/// Panics if the test fails there.
pub fn as_own_root(test: &str) {
    let own = std::env::current_exe().and_then(|program| {
        Command::new("unshare")
            .args(["--user", "--map-root-user", "--"])
            .arg(program)
            .args(["--exact", test, "--nocapture"])
            .output()
    });
    let output = match own {
        Ok(output) => output,
        Err(why) => return skipped(test, format_args!("unshare: {why}")),
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    if !said.contains("running 1 test") {
        return skipped(test, format_args!("no user namespaces here: {errors}"));
    }
    assert!(output.status.success(), "{said}{errors}");
    pass_on(errors.lines());
}

/// Prints again the skips among the output of a process that has run tests.
pub fn pass_on<'a>(lines: impl IntoIterator<Item = &'a str>) {
    for line in lines {
        let skip = line.strip_prefix(SKIPPED);
        if let Some((test, why)) = skip.and_then(|skip| skip.split_once(": ")) {
            skipped(test, why);
        }
    }
}

/// Returns whether `localhost` resolves. Skips the test if not: a system without `/etc/hosts` may know no such name.
pub fn knows_localhost(test: &str) -> bool {
    let found = ("localhost", 0).to_socket_addrs();
    if let Err(why) = &found {
        skipped(test, format_args!("localhost: {why}"));
    }
    found.is_ok()
}
