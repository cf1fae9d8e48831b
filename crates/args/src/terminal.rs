//! Output for the user: results go to standard output, everything else to standard error.

use std::io::{self, ErrorKind, Write as _};

/// Prints to standard output. A full disk is an error. A closed pipe (`quictun --help | head -1`) is not an error.
///
/// # Errors
///
/// Returns the system's error, with the action that failed.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(io::Error::new(
            error.kind(),
            format!("writing to standard output: {error}"),
        )),
        _ => Ok(()),
    }
}

/// Prints a line to standard error.
pub fn say(line: &str) {
    if writeln!(io::stderr(), "{line}").is_err() {
        // Nothing reads standard error any more. The exit code still reports the failure.
    }
}
