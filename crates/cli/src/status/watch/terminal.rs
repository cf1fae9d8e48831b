//! The terminal while a page is live: the alternate screen, keys without echo, and all as it was afterwards.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::sync::{Mutex, PoisonError};

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};

use super::line::Line;
use super::page::Size;

/// To the alternate screen, without a cursor, and with lines that end at the edge.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l\u{1b}[?7l\u{1b}[2J";
/// Back to what was there before.
const LEAVE: &str = "\u{1b}[0m\u{1b}[?7h\u{1b}[?25h\u{1b}[?1049l";

/// The size of a terminal that does not tell its own.
const USUAL: Size = Size {
    columns: 80,
    rows: 24,
};

const TO_A_STRING: &str = "invariant: a String takes whatever is written to it";

/// The terminal as it was before; `None` while it is so.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// The terminal on standard output, live until it is dropped. A panic of any thread gives it back first, so that what
/// is said of that can be read.
#[derive(Debug)]
pub(super) struct Terminal {
    colour: bool,
    /// The lines on the screen.
    shown: Vec<String>,
}

impl Terminal {
    pub(super) fn enter(colour: bool) -> io::Result<Self> {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore().ok();
            hook(panic);
        }));
        let shown = Vec::new();
        let mut terminal = Self { colour, shown };
        terminal.resume()?;
        Ok(terminal)
    }

    /// Takes the terminal, also where it was given back or another program has changed it.
    pub(super) fn resume(&mut self) -> io::Result<()> {
        let out = io::stdout();
        let mut before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut modes = tcgetattr(&out)?;
        before.get_or_insert_with(|| modes.clone());
        modes.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        modes.special_codes[SpecialCodeIndex::VMIN] = 1;
        modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(&out, OptionalActions::Now, &modes)?;
        self.shown.clear();
        write(ENTER)
    }

    /// Gives the terminal back for a while.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        self.shown.clear();
        restore()
    }

    pub(super) fn size() -> Size {
        let Ok(size) = tcgetwinsize(io::stdout()) else {
            return USUAL;
        };
        let or = |number: u16, usual| match number {
            0 => usual,
            number => usize::from(number),
        };
        Size {
            columns: or(size.ws_col, USUAL.columns),
            rows: or(size.ws_row, USUAL.rows),
        }
    }

    /// Writes the next page anew: the screen is another one.
    pub(super) fn forget(&mut self) {
        self.shown.clear();
    }

    /// Shows these lines, and writes no more than has changed.
    pub(super) fn draw(&mut self, lines: &[Line]) -> io::Result<()> {
        let lines: Vec<String> = lines.iter().map(|line| line.ansi(self.colour)).collect();
        let text = changes(&self.shown, &lines);
        self.shown = lines;
        write(&text)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if restore().is_err() {
            // The terminal has gone: there is nothing to give back.
        }
    }
}

/// The bytes that make the screen show `lines` where it shows `old`; empty: nothing at all.
fn changes(old: &[String], lines: &[String]) -> String {
    let mut text = String::new();
    if old.len() != lines.len() {
        text.push_str("\u{1b}[2J");
    }
    for (row, line) in lines.iter().enumerate() {
        if old.len() == lines.len() && old.get(row) == Some(line) {
            continue;
        }
        // Erased first: at the end of a full line, the cursor is still on its last character.
        let row = row + 1;
        write!(text, "\u{1b}[{row};1H\u{1b}[2K{line}").expect(TO_A_STRING);
    }
    text
}

/// Gives the terminal back as it was. It does nothing where that was done.
fn restore() -> io::Result<()> {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(before) = before else {
        return Ok(());
    };
    // The shell must not get keys that the page has not read. Modes come first: what sees the screen left finds them back.
    let restored = tcsetattr(io::stdout(), OptionalActions::Flush, &before);
    write(LEAVE)?;
    Ok(restored?)
}

fn write(text: &str) -> io::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_that_changed_are_written() {
        let lines = |texts: [&str; 3]| texts.map(str::to_owned).to_vec();
        let old = lines(["a", "b", "c"]);
        let all = "\u{1b}[2J\u{1b}[1;1H\u{1b}[2Ka\u{1b}[2;1H\u{1b}[2Kb\u{1b}[3;1H\u{1b}[2Kc";
        assert_eq!(changes(&[], &old), all);
        assert_eq!(changes(&old, &old), "");
        let new = lines(["a", "x", "c"]);
        assert_eq!(changes(&old, &new), "\u{1b}[2;1H\u{1b}[2Kx");
    }
}
