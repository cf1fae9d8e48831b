//! Fits text to the width of a terminal, so that no word is broken in two.

use std::io::IsTerminal;
use std::os::fd::AsFd;

/// Appends to a `String`, as `write!` does.
#[macro_export]
macro_rules! put {
    ($text:expr, $($part:tt)*) => {{
        use std::fmt::Write as _;
        $text
            .write_fmt(format_args!($($part)*))
            .expect("invariant: a String takes whatever is written to it");
    }};
}

/// Assumed width of a terminal that does not report one, columns.
const COLUMNS: usize = 80;

/// Returns the width of the terminal, columns, or `None` if the stream is not a terminal.
pub fn columns(stream: &(impl AsFd + IsTerminal)) -> Option<usize> {
    stream.is_terminal().then(|| {
        let size = rustix::termios::tcgetwinsize(stream);
        match size.map_or(0, |size| usize::from(size.ws_col)) {
            0 => COLUMNS,
            columns => columns,
        }
    })
}

/// Appends a text that begins at column `at`. Breaks it between words where it would exceed `columns`, and indents the
/// next lines by `indent`. A command in backquotes stays in one piece, so that it can be copied. A longer piece gets its
/// own line.
pub fn push_broken(out: &mut String, text: &str, at: usize, indent: usize, columns: usize) {
    let mut end = at;
    for (index, piece) in pieces(text).enumerate() {
        let width = piece.chars().count();
        if index > 0 && end + 1 + width > columns {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            end = indent;
        } else if index > 0 {
            out.push(' ');
            end += 1;
        }
        out.push_str(piece);
        end += width;
    }
}

/// Splits a text at blanks outside of backquotes.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut in_command = false;
    text.split(move |c: char| {
        in_command ^= c == '`';
        c == ' ' && !in_command
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(text: &str, columns: usize) -> String {
        let mut out = String::new();
        push_broken(&mut out, text, 0, 2, columns);
        out
    }

    #[test]
    fn a_text_is_broken_between_words_at_the_width() {
        assert_eq!(broken("ab cd efg", 9), "ab cd efg");
        assert_eq!(broken("ab cd efg", 8), "ab cd\n  efg");
        assert_eq!(broken("ab cd efg hi", 8), "ab cd\n  efg hi");
        assert_eq!(broken("é é é", 5), "é é é", "characters count, not bytes");
        assert_eq!(broken("a verylongword b", 8), "a\n  verylongword\n  b");
        assert_eq!(broken("", 0), "");
    }

    #[test]
    fn a_command_stays_in_one_piece() {
        let text = "run `chmod 600 key`, or stop";
        assert_eq!(broken(text, 12), "run\n  `chmod 600 key`,\n  or stop");
    }

    #[test]
    fn a_file_has_no_width() {
        assert_eq!(columns(&tempfile::tempfile().expect("a file")), None);
    }
}
