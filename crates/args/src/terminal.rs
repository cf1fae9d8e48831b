//! Output for the user: results go to standard output, everything else to standard error.

use std::io::{self, ErrorKind, Write as _};

use quictun_control::terminal;

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

/// Prints sentences to standard error, one or more lines. If it is a terminal, longer lines are broken between words.
pub fn say(text: &str) {
    match terminal::columns(&io::stderr()) {
        Some(columns) => say_as_written(&fitted(text, columns)),
        None => say_as_written(text),
    }
}

/// Prints a text to standard error that must not be broken: a command to copy, or data.
pub fn say_as_written(text: &str) {
    if writeln!(io::stderr(), "{text}").is_err() {
        // Nothing reads standard error any more. The exit code still reports the failure.
    }
}

/// Breaks the lines of a text that are wider than a terminal.
fn fitted(text: &str, columns: usize) -> String {
    let mut out = String::new();
    for (number, line) in text.split('\n').enumerate() {
        if number > 0 {
            out.push('\n');
        }
        let words = line.trim_start_matches(' ');
        let margin = line.len() - words.len();
        out.push_str(&line[..margin]);
        terminal::push_broken(&mut out, words, margin, margin + HANG, columns);
    }
    out
}

/// Indentation of the continuation of a line below its beginning, columns.
const HANG: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_lines_continue_below_their_beginning() {
        let text = "quictun: the rule has no meaning\n  try: `quictun --help` lists\n\nshort";
        let expected =
            "quictun: the rule\n  has no meaning\n  try:\n    `quictun --help`\n    lists\n\nshort";
        assert_eq!(fitted(text, 20), expected);
        assert_eq!(fitted(text, 32), text);
    }
}
