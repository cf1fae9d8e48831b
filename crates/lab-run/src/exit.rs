//! What people are told: faults with their remedy, and lines.

use std::io::{self, ErrorKind, Write as _};

use anyhow::Context as _;

/// Why a run cannot begin: what is wrong, why, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}")]
pub struct Fault {
    /// The flag, file or place in a scenario at fault.
    pub what: String,
    /// What is wrong with it.
    pub why: String,
    /// The remedy, where one is known.
    pub next: Option<String>,
    /// Something impossible was asked for; otherwise the world stood in the way.
    pub is_usage: bool,
}

impl Fault {
    /// Something impossible was asked for.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "texts and errors are made for this call"
    )]
    pub(crate) fn usage(what: impl Into<String>, why: impl ToString) -> Self {
        Self {
            what: what.into(),
            why: why.to_string(),
            next: None,
            is_usage: true,
        }
    }

    /// The world stood in the way.
    pub(crate) fn failure(what: impl Into<String>, why: impl ToString) -> Self {
        Self {
            is_usage: false,
            ..Self::usage(what, why)
        }
    }

    /// Adds the remedy.
    #[must_use]
    pub(crate) fn next(self, next: impl Into<String>) -> Self {
        Self {
            next: Some(next.into()),
            ..self
        }
    }
}

/// Prints to standard output. A full disk is an error, a reader who has seen enough is none.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("writing to standard output")
        }
        _ => Ok(()),
    }
}

/// Prints a line to standard error.
pub(crate) fn say(line: &str) {
    if writeln!(io::stderr(), "{line}").is_err() {
        // No reader is left; the exit code still speaks.
    }
}
