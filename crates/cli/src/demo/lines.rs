//! The lines for people: labels in one column, and texts that fit the terminal.

use std::io;

use quictun_control::terminal::{columns, push_broken};

use crate::exit;

/// Prints the lines of the demonstration, unless it prints JSON instead. Standard output may be a terminal.
#[derive(Clone, Copy)]
pub(super) struct DemoLines {
    json: bool,
    columns: Option<usize>,
}

impl DemoLines {
    pub(super) fn new(json: bool) -> Self {
        let columns = columns(&io::stdout());
        Self { json, columns }
    }

    /// Prints a sentence, whose next lines are indented.
    pub(super) fn sentence(self, text: &str) -> io::Result<()> {
        self.print(fitted(text, 0, HANG, self.columns))
    }

    /// Prints a result below its label.
    pub(super) fn result(self, label: &str, text: &str) -> io::Result<()> {
        self.print(result(label, text, self.columns))
    }

    /// Prints a command, after the name of the machine that runs it.
    pub(super) fn command(self, on: &str, command: &str) -> io::Result<()> {
        self.print(prompted(on, command, self.columns))
    }

    fn print(self, text: String) -> io::Result<()> {
        if self.json {
            return Ok(());
        }
        exit::print(&(text + "\n"))
    }
}

fn result(label: &str, text: &str, columns: Option<usize>) -> String {
    format!("  {label:LABEL$} ") + &fitted(text, RESULT, RESULT, columns)
}

/// Breaks a text that begins at column `at`. A file has no width.
fn fitted(text: &str, at: usize, indent: usize, columns: Option<usize>) -> String {
    let Some(columns) = columns else {
        return text.to_owned();
    };
    let mut out = String::new();
    push_broken(&mut out, text, at, indent, columns);
    out
}

/// Breaks a command before a flag, in the syntax of the shell, so that it can be copied.
fn prompted(on: &str, command: &str, columns: Option<usize>) -> String {
    let mut out = format!("  {on}$ ");
    let mut end = out.len();
    for (number, flag) in command.split(" -").enumerate() {
        if number == 0 {
            out.push_str(flag);
            end += flag.len();
            continue;
        }
        let piece = format!(" -{flag}");
        if columns.is_some_and(|columns| end + piece.len() + CONTINUED.len() > columns) {
            out.push_str(CONTINUED);
            out.push_str("\n   ");
            end = 3;
        }
        out.push_str(&piece);
        end += piece.len();
    }
    out
}

/// Width of the column of labels: that of `half-close` and `first byte`.
const LABEL: usize = 10;

/// Column in which a result begins: after the margin, the label and a blank.
const RESULT: usize = 2 + LABEL + 1;

/// Indentation of the continuation of a sentence, columns.
const HANG: usize = 2;

/// End of a line of a command that the next line continues.
const CONTINUED: &str = " \\";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_continues_below_its_beginning() {
        let text = "96.1 Mbit/s through the tunnel, 54.0 Mbit/s without it";
        let expected = "  to server  96.1 Mbit/s through the\n             tunnel, 54.0 Mbit/s\n             without it";
        assert_eq!(result("to server", text, Some(36)), expected);
        let whole = format!("  to server  {text}");
        assert_eq!(result("to server", text, Some(whole.len())), whole);
        assert_eq!(result("to server", text, None), whole);
    }

    #[test]
    fn a_long_command_is_continued_before_a_flag() {
        let command = "quictun client --server SERVER --psk-file client.psk -L 2222:127.0.0.1:22";
        let expected = "  client$ quictun client --server SERVER \\\n    --psk-file client.psk \\\n    -L 2222:127.0.0.1:22";
        assert_eq!(prompted("client", command, Some(42)), expected);
        assert_eq!(
            prompted("client", command, None),
            format!("  client$ {command}")
        );
        for columns in 44..100 {
            let broken = prompted("client", command, Some(columns));
            assert!(
                broken.lines().all(|line| line.len() <= columns),
                "{columns}: {broken}"
            );
            let joined = broken.replace("\\\n   ", "");
            assert_eq!(
                joined
                    .split_whitespace()
                    .skip(1)
                    .collect::<Vec<_>>()
                    .join(" "),
                command
            );
        }
    }
}
