//! Why a program cannot start, and how programs end.

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind as ClapKind};

use crate::options;

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
    /// The reason why its value cannot be used.
    pub why: String,
    /// The remedy, where one is known.
    pub next: Option<String>,
    /// The exit code that the program ends with.
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
