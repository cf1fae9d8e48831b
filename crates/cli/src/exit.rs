//! How a program ends: exit codes, and the one place that tells the user what went wrong.

use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::error::{ContextKind, ContextValue, ErrorKind as ClapKind};

use crate::{options, privilege, run};

/// Exit codes of all three programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done, or shut down when asked.
    Ok = 0,
    /// The world stood in the way: a file, a port, a peer.
    Failure = 1,
    /// The command line, an environment variable or a configuration file says something impossible.
    Usage = 2,
    /// A fault of the program itself: as where its main thread panics.
    Crashed = 101,
    /// A second signal cut the orderly end short (128 + SIGINT).
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a program cannot start: what is wrong, why, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The flag, variable, file or key at fault.
    pub what: String,
    /// What is wrong with it.
    pub why: String,
    /// The remedy, where one is known.
    pub next: Option<String>,
    /// How the program ends.
    pub exit: Exit,
}

impl Fault {
    /// Something impossible was asked for (exit code 2).
    #[expect(
        clippy::needless_pass_by_value,
        reason = "texts and errors are made for this call"
    )]
    pub fn usage(what: impl Into<String>, why: impl ToString) -> Self {
        Self {
            what: what.into(),
            why: why.to_string(),
            next: None,
            exit: Exit::Usage,
        }
    }

    /// The world stood in the way (exit code 1).
    pub fn failure(what: impl Into<String>, why: impl ToString) -> Self {
        Self {
            exit: Exit::Failure,
            ..Self::usage(what, why)
        }
    }

    /// Adds the remedy.
    #[must_use]
    pub fn next(self, next: impl Into<String>) -> Self {
        Self {
            next: Some(next.into()),
            ..self
        }
    }

    /// Says in our words what the argument parser found.
    pub fn from_clap(program: &str, error: &clap::Error) -> Self {
        let context = |kind| match error.get(kind) {
            Some(ContextValue::String(text)) => vec![text.clone()],
            Some(ContextValue::Strings(texts)) => texts.clone(),
            _ => Vec::new(),
        };
        let help = format!("{program} --help lists what there is");
        let (what, near, why) = match error.kind() {
            ClapKind::UnknownArgument => (
                ContextKind::InvalidArg,
                ContextKind::SuggestedArg,
                "unknown flag",
            ),
            ClapKind::InvalidSubcommand => (
                ContextKind::InvalidSubcommand,
                ContextKind::SuggestedSubcommand,
                "unknown command",
            ),
            ClapKind::MissingRequiredArgument => {
                let missing = context(ContextKind::InvalidArg).join(" ");
                return Self::usage("command line", format!("{missing} is missing")).next(help);
            }
            _ => {
                // "error: a value is required for ..." and then usage, which the remedy points at.
                let text = error.render().to_string();
                let first = text.lines().next().unwrap_or_default();
                let why = first.strip_prefix("error: ").unwrap_or(first);
                let choices = context(ContextKind::ValidValue).join(", ");
                let choices = if choices.is_empty() {
                    choices
                } else {
                    format!(": choose one of {choices}")
                };
                return Self::usage("command line", format!("{why}{choices}")).next(help);
            }
        };
        let what = context(what)
            .pop()
            .unwrap_or_else(|| "command line".to_owned());
        let why = if what.starts_with('-') || why == "unknown command" {
            why
        } else {
            "unexpected argument"
        };
        // clap finds something for every word; only what could be a slip of the hand is worth saying.
        let candidates = context(near);
        let near = options::nearest(&what, candidates.iter().map(String::as_str));
        let next = near.map_or(help, |near| format!("did you mean {near}?"));
        Self::usage(what, why).next(next)
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.what, self.why)
    }
}

impl std::error::Error for Fault {}

/// Tells the user why `program` ends, once, and turns the outcome into its exit code.
///
/// A running tunnel that a second signal cut short reports [`ErrorKind::Interrupted`] somewhere in its
/// chain of errors.
pub fn report(program: &str, outcome: Result<(), anyhow::Error>) -> Exit {
    let Err(error) = outcome else { return Exit::Ok };
    let forbidden = error.downcast_ref().map(privilege::explain);
    if let Some(fault) = error.downcast_ref().or(forbidden.as_ref()) {
        say(&format!("{program}: {fault}"));
        if let Some(next) = &fault.next {
            say(&format!("  try: {next}"));
        }
        return fault.exit;
    }
    if io_kind(&error) == Some(ErrorKind::Interrupted) {
        return Exit::Interrupted;
    }
    say(&format!("{program}: {error:#}"));
    if let Some(next) = io_kind(&error).and_then(remedy) {
        say(&format!("  try: {next}"));
    }
    if run::blames_the_program(&error) {
        Exit::Crashed
    } else if run::blames_configuration(&error) {
        Exit::Usage
    } else {
        Exit::Failure
    }
}

/// Prints to standard output. A full disk is an error; a reader who has seen enough
/// (`quictun --help | head -1`) is none.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("writing to standard output")
        }
        _ => Ok(()),
    }
}

/// Prints a line to standard error.
pub fn say(line: &str) {
    if writeln!(io::stderr(), "{line}").is_err() {
        // Nobody listens; the exit code still speaks.
    }
}

fn io_kind(error: &anyhow::Error) -> Option<ErrorKind> {
    error
        .chain()
        .find_map(|cause| cause.downcast_ref::<io::Error>())
        .map(io::Error::kind)
}

fn remedy(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::AddrInUse => {
            Some("`ss -lntup` shows which program has the port; stop it, or listen on another port")
        }
        ErrorKind::AddrNotAvailable => {
            Some("`ip address` lists this machine's addresses; listen on one of them")
        }
        ErrorKind::PermissionDenied => {
            Some("run as a user who may do this; ports below 1024 need CAP_NET_BIND_SERVICE")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use quictun_io::crash::Crash;

    use super::*;

    fn outcome(kind: ErrorKind) -> Result<(), anyhow::Error> {
        Err(io::Error::from(kind)).context("listening on [::]:7500")
    }

    #[test]
    fn the_outcome_decides_the_exit_code() {
        assert_eq!(report("quictun", Ok(())), Exit::Ok);
        assert_eq!(
            report("quictun", Err(Fault::usage("a", "b").into())),
            Exit::Usage
        );
        assert_eq!(
            report("quictun", Err(Fault::failure("a", "b").into())),
            Exit::Failure
        );
        assert_eq!(
            report("quictun", outcome(ErrorKind::AddrInUse)),
            Exit::Failure
        );
        assert_eq!(
            report("quictun", outcome(ErrorKind::Interrupted)),
            Exit::Interrupted
        );
        let crashed = Err(io::Error::from(Crash::Panic)).context("a worker failed");
        assert_eq!(report("quictun", crashed), Exit::Crashed);
    }
}
