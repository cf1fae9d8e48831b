//! Reasons why a program cannot start, and exit codes.

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind as ClapKind};

use crate::options;
use crate::programs::QUICTUN;

/// The remedy for a state directory that cannot be used.
pub const STATE_REMEDY: &str = "let this user read and write the directory (`chown`, `chmod 700`), or name another with --state-dir DIR";

/// The exit codes of all three programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The program finished, or shut down on request.
    Ok = 0,
    /// The environment caused a failure: a file, a port, a peer.
    Failure = 1,
    /// The command line, an environment variable or a configuration file has an invalid value.
    Usage = 2,
    /// No process can take over from the running one: only a restart replaces it.
    RestartNeeded = 3,
    /// The program has a bug, for example its main thread panicked.
    Crashed = 101,
    /// A second signal interrupted the orderly shutdown (128 + SIGINT).
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// A setting that prevents a program from starting, with the reason and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The flag, variable, file or key at fault.
    pub what: String,
    /// The reason why its value cannot be used.
    pub why: String,
    /// The remedy, if one is known.
    pub next: Option<String>,
    /// The program's exit code.
    pub exit: Exit,
}

impl Fault {
    /// Reports an invalid setting (exit code 2).
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

    /// Reports a failure of the environment (exit code 1).
    pub fn failure(what: impl Into<String>, why: impl ToString) -> Self {
        Self {
            exit: Exit::Failure,
            ..Self::usage(what, why)
        }
    }

    /// Sets the remedy and returns the fault.
    #[must_use]
    pub fn next(self, next: impl Into<String>) -> Self {
        Self {
            next: Some(next.into()),
            ..self
        }
    }

    /// Translates an error of the argument parser into a fault. The remedy may name the help of `command`: the program
    /// and its subcommands, as the user types them.
    pub fn from_clap(command: &str, error: &clap::Error) -> Self {
        let context = |kind| match error.get(kind) {
            Some(ContextValue::String(text)) => vec![text.clone()],
            Some(ContextValue::Strings(texts)) => texts.clone(),
            _ => Vec::new(),
        };
        let help = format!("`{command} --help` shows the usage");
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
                // "error: a value is required for ..." is followed by the usage, to which the remedy points.
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
            UNEXPECTED
        };
        // clap suggests a candidate for every word. Only a likely typing error is worth a suggestion.
        let candidates = context(near);
        let near = options::nearest(&what, candidates.iter().map(String::as_str));
        let next = if why == UNEXPECTED && is_configuration(command, &what) {
            format!("did you mean -c {what}?")
        } else {
            near.map_or(help, |near| format!("did you mean {near}?"))
        };
        Self::usage(what, why).next(next)
    }
}

/// The reason given for an argument that a command does not take.
const UNEXPECTED: &str = "unexpected argument";

/// Commands of `quictun` that take a configuration file as `-c FILE`.
const CONFIGURED: [&str; 7] = [
    "server",
    "client",
    "connect",
    "status",
    "reconnect",
    "drain",
    "invite",
];

/// Returns whether an argument looks like the configuration file of a command that takes one.
fn is_configuration(command: &str, argument: &str) -> bool {
    let named = command.split_once(' ');
    let takes_file = matches!(named, Some((QUICTUN, name)) if CONFIGURED.contains(&name));
    let endings = [".toml", ".yaml", ".yml", ".json"];
    takes_file && endings.iter().any(|ending| argument.ends_with(ending))
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.what, self.why)
    }
}

impl std::error::Error for Fault {}
