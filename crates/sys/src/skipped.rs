//! The line of a test that the machine does not allow. `tests/run` counts these lines.

use std::fmt::Display;
use std::io::{self, Write as _};

/// Prints that a test, or a part of it, was skipped.
pub(crate) fn skipped(test: &str, why: impl Display) {
    let line = format!("SKIPPED {test}: {why}\n");
    // `eprintln` would be captured.
    let said = io::stderr().write_all(line.as_bytes());
    said.expect("standard error");
}
