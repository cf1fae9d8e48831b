//! Text for the user: results on standard output, all else on standard error.

use std::io::{self, ErrorKind, Write as _};

/// Prints to standard output. A full disk is an error; a reader who has seen enough
/// (`quictun --help | head -1`) is none.
///
/// # Errors
///
/// The system's, which says what was being done.
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
        // No reader is left; the exit code still speaks.
    }
}
