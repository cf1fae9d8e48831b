//! The end of a program: the one place that reports a failure to the user.

use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::process::ExitCode;

use quictun_args::fault::{Exit, Fault, STATE_REMEDY};
use quictun_control::rest::ListenError;
use quictun_io::socket_path::PathOccupied;
use quictun_sys::ContainError;
use quictun_trust::access::AccessError;
use quictun_tunnel::failure::Failure;
use serde::Serialize;

use crate::ask::plain;
use crate::privilege;

pub(crate) use quictun_args::terminal::{print, say, say_as_written};

/// The reason for which a program fails.
#[derive(Debug)]
pub(crate) enum ProgramError {
    /// A fault with a name, and with a remedy if one is known.
    Fault(Fault),
    /// A second signal cut a running tunnel short. Its sender knows that, so nothing is printed.
    Interrupted,
    /// An error, which is printed with all its causes, and the exit code.
    Because(anyhow::Error, Exit),
}

impl ProgramError {
    /// Adds context, which is printed before the error.
    #[must_use]
    pub(crate) fn about(self, what: impl Display + Send + Sync + 'static) -> Self {
        match self {
            Self::Because(error, exit) => Self::Because(error.context(what), exit),
            other => other,
        }
    }

    /// Converts an error of the measuring code, which passes faults on inside of `anyhow` errors.
    pub(crate) fn of_measuring(error: anyhow::Error) -> Self {
        let error = match error.downcast::<Fault>() {
            Ok(fault) => return fault.into(),
            Err(error) => error,
        };
        error
            .downcast::<ContainError>()
            .map_or_else(Self::from, Self::from)
    }
}

impl From<Fault> for ProgramError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<ContainError> for ProgramError {
    fn from(error: ContainError) -> Self {
        Self::Fault(privilege::explain(&error))
    }
}

impl From<anyhow::Error> for ProgramError {
    fn from(error: anyhow::Error) -> Self {
        Self::Because(error, Exit::Failure)
    }
}

impl From<io::Error> for ProgramError {
    fn from(error: io::Error) -> Self {
        anyhow::Error::from(error).into()
    }
}

impl From<AccessError> for ProgramError {
    fn from(error: AccessError) -> Self {
        let exit = match error {
            // The files are wrong here, not the configuration that names them.
            AccessError::Secret { .. } | AccessError::Authorities(_) => Exit::Failure,
            _ => Exit::Usage,
        };
        Self::Because(error.into(), exit)
    }
}

impl From<Failure> for ProgramError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Access(error) => error.into(),
            Failure::NotTakenOver(error) => Self::Because(error, Exit::RestartNeeded),
            Failure::Interrupted => Self::Interrupted,
            Failure::Crashed(error) => Self::Because(error, Exit::Crashed),
            Failure::Other(error) => error.into(),
        }
    }
}

/// Prints once why `program` fails, and returns its exit code.
pub(crate) fn report(program: &str, outcome: Result<(), ProgramError>) -> Exit {
    let (text, next, exit) = match outcome {
        Ok(()) => return Exit::Ok,
        Err(ProgramError::Interrupted) => return Exit::Interrupted,
        Err(ProgramError::Fault(fault)) => (fault.to_string(), fault.next, fault.exit),
        Err(ProgramError::Because(error, exit)) => {
            let next = remedy(&error);
            (describe(&error), next, exit)
        }
    };
    let next = next.or_else(|| missing_proc(exit));
    // A peer may have shaped a part of the text.
    let shown = |text: &str| harmless(&limited(text));
    say(&format!("{program}: {}", shown(&text)));
    if let Some(next) = next {
        say(&format!("  try: {}", shown(&next)));
    }
    exit
}

/// Replaces the characters that would control a terminal, except those that end a line.
fn harmless(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(plain).collect();
    lines.join("\n")
}

/// Shortens long values in a message: a whole file that a shell has put in a flag's place would push the reason off the
/// screen. Words and lines are cut in the middle, so the beginning of a value and the reason after it stay.
fn limited(text: &str) -> String {
    let lines = text.split('\n').map(|line| {
        let words: Vec<String> = line.split(' ').map(|word| cut(word, WORD_MAX)).collect();
        cut(&words.join(" "), LINE_MAX)
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Replaces the middle of a text that has more than `limit` characters, so that about `limit` are left.
fn cut(text: &str, limit: usize) -> String {
    let length = text.chars().count();
    if length <= limit {
        return text.to_owned();
    }
    let begin: String = text.chars().take(limit / 2).collect();
    let end: String = text.chars().skip(length - limit / 2).collect();
    format!("{begin}[...]{end}")
}

/// Limit of a word in an error, characters: paths are rarely longer.
const WORD_MAX: usize = 200;

/// Limit of a line in an error, characters: the longest list of keys or choices of this program fits.
const LINE_MAX: usize = 2000;

/// Returns the exit code of a program that defines its own codes, and prints a failure.
pub(crate) fn code(program: &str, outcome: Result<u8, ProgramError>) -> ExitCode {
    outcome.map_or_else(|failed| report(program, Err(failed)).into(), ExitCode::from)
}

/// Prints a report, as one JSON object or as text for people.
pub(crate) fn show<R: Serialize + Display>(report: &R, json: bool) -> anyhow::Result<()> {
    Ok(print(&if json {
        self::json(report)?
    } else {
        report.to_string()
    })?)
}

/// Returns the text of one JSON object.
pub(crate) fn json(report: &impl Serialize) -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(report)? + "\n")
}

/// Returns an error and its causes, each once: some errors already include the text of their cause.
fn describe(error: &anyhow::Error) -> String {
    let mut said: Vec<String> = Vec::new();
    for cause in error.chain() {
        let words = cause.to_string();
        if !said.last().is_some_and(|last| last.contains(&words)) {
            said.push(words);
        }
    }
    said.join(": ")
}

/// Returns the remedy for a system without /proc, which may have caused any failure.
fn missing_proc(exit: Exit) -> Option<String> {
    let is_missing = exit == Exit::Failure && !Path::new("/proc/self").exists();
    is_missing.then(|| {
        "/proc is missing here, and this program needs it: `mount -t proc proc /proc`".to_owned()
    })
}

/// Returns the remedy of the first cause that has one.
fn remedy(error: &anyhow::Error) -> Option<String> {
    let mut causes = error.chain();
    if let Some(error) = causes.find_map(|cause| cause.downcast_ref::<ListenError>()) {
        return Some(error.remedy());
    }
    if error.to_string().starts_with("--state-dir ") {
        return Some(STATE_REMEDY.to_owned());
    }
    let mut causes = error.chain();
    let answer = causes.find_map(|cause| cause.downcast_ref::<io::Error>())?;
    if let Some(what) = PathOccupied::of(answer) {
        return Some(what.remedy());
    }
    let listening = error.to_string().starts_with("cannot listen on");
    let text = match answer.kind() {
        ErrorKind::AddrInUse => {
            "`ss -lntup` shows which program has the port; stop it, or listen on another port"
        }
        ErrorKind::AddrNotAvailable => {
            "`ip address` lists this machine's addresses; listen on one of them"
        }
        ErrorKind::PermissionDenied if listening => {
            "run as a user who may do this; ports below 1024 need CAP_NET_BIND_SERVICE"
        }
        ErrorKind::PermissionDenied => "run as a user who may do this",
        _ => return None,
    };
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
    use quictun_stackd::detour::DetourError;

    use super::*;

    #[test]
    fn the_outcome_decides_the_exit_code() {
        let exit = |failed: ProgramError| report("quictun", Err(failed));
        assert_eq!(report("quictun", Ok(())), Exit::Ok);
        assert_eq!(exit(Fault::usage("a", "b").into()), Exit::Usage);
        assert_eq!(exit(Fault::failure("a", "b").into()), Exit::Failure);
        let taken = io::Error::from(ErrorKind::AddrInUse);
        assert_eq!(
            exit(ProgramError::from(taken).about("listening")),
            Exit::Failure
        );
        assert_eq!(exit(AccessError::EmptyName.into()), Exit::Usage);
        assert_eq!(exit(Failure::Interrupted.into()), Exit::Interrupted);
        let crashed = Failure::Crashed(anyhow::anyhow!("a worker failed"));
        assert_eq!(exit(crashed.into()), Exit::Crashed);
    }

    #[test]
    fn long_values_are_cut_in_errors_and_the_reason_stays() {
        let value = "x".repeat(200);
        assert_eq!(limited(&value), value);
        let long = limited(&format!("--pin: \"{value}y\": must have 43 digits\nline 2"));
        assert!(long.starts_with("--pin: \"xxx"), "{long}");
        assert!(
            long.ends_with("xxy\": must have 43 digits\nline 2"),
            "{long}"
        );
        assert!(long.len() < 300 && long.contains("x[...]x"), "{long}");
        let words = "word ".repeat(400);
        assert_eq!(limited(&words), words);
        let line = limited(&format!("--name: {words}: is not a name"));
        assert!(line.starts_with("--name: word") && line.ends_with(": is not a name"));
        assert!(line.chars().count() < 2100);
        let accents = limited(&"é".repeat(1000));
        assert_eq!(accents.chars().count(), 205);
    }

    #[test]
    fn a_cause_is_not_printed_twice() {
        let source = io::Error::from_raw_os_error(2);
        let device = anyhow::Error::from(DetourError::Device(source));
        let once = "cannot make the TUN device quictun0: No such file or directory (os error 2); does \
                    /dev/net/tun exist (`modprobe tun`)?";
        assert_eq!(describe(&device), once);
        assert_eq!(describe(&device.context("--tun")), format!("--tun: {once}"));
        let port = anyhow::Error::from(io::Error::from_raw_os_error(98));
        let port = port.context("cannot listen on UDP [::]:7500");
        assert_eq!(
            describe(&port),
            "cannot listen on UDP [::]:7500: Address already in use (os error 98)"
        );
    }

    #[test]
    fn an_error_with_text_of_a_peer_controls_no_terminal() {
        let text = "perf: the server refuses: \u{1b}]0;title\u{7}\u{202e}x\nsecond line";
        let shown = "perf: the server refuses: ?]0;title??x\nsecond line";
        assert_eq!(harmless(text), shown);
    }

    #[test]
    fn a_port_fault_names_the_port() {
        let refused = || anyhow::Error::from(io::Error::from(ErrorKind::PermissionDenied));
        let next = |what: &'static str| remedy(&refused().context(what)).unwrap_or_default();
        assert!(next("cannot listen on TCP 127.0.0.1:22").contains("1024"));
        assert!(!next("the log file /var/log/quictun.log").contains("1024"));
    }
}
