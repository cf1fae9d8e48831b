//! How a program ends: the one place that tells the user what went wrong.

use std::io::{self, ErrorKind, Write as _};

use anyhow::Context as _;
use quictun_args::fault::{Exit, Fault};

use crate::{privilege, run};

/// Tells the user why `program` ends, once, and turns the outcome into its exit code.
///
/// A running tunnel that a second signal cut short reports [`ErrorKind::Interrupted`] somewhere in its
/// chain of errors.
pub fn report(program: &str, outcome: Result<(), anyhow::Error>) -> Exit {
    let Err(error) = outcome else { return Exit::Ok };
    let forbidden = error.downcast_ref().map(privilege::explain);
    if let Some(fault) = error.downcast_ref::<Fault>().or(forbidden.as_ref()) {
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
