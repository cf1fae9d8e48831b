//! The terminal while a page is live: it uses the alternate screen and keys without echo, and restores all modes at the
//! end.

use std::io::{self, Write as _};
use std::sync::{Mutex, PoisonError};

use quictun_control::put;
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};

use super::line::ScreenLine;
use super::page::ScreenSize;

/// Switches to the alternate screen, hides the cursor, and turns line wrapping off.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l\u{1b}[?7l\u{1b}[2J";
/// Undoes [`ENTER`] and shows the earlier screen again.
const LEAVE: &str = "\u{1b}[0m\u{1b}[?7h\u{1b}[?25h\u{1b}[?1049l";

/// Size that is assumed for a terminal that does not report its own.
const USUAL: ScreenSize = ScreenSize {
    columns: 80,
    rows: 24,
};

/// The terminal's modes before the page; `None` while the terminal has them.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// The terminal on standard output, which is live until this is dropped. A panic of any thread restores the terminal
/// first, so that its message can be read.
#[derive(Debug)]
pub(super) struct Terminal {
    colour: bool,
    /// The lines that the screen shows.
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

    /// Takes the terminal, also after it was given back or another program has changed its modes.
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

    /// Gives the terminal back until the next [`Self::resume`].
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        self.shown.clear();
        restore()
    }

    pub(super) fn size() -> ScreenSize {
        let Ok(size) = tcgetwinsize(io::stdout()) else {
            return USUAL;
        };
        let or = |number: u16, usual| match number {
            0 => usual,
            number => usize::from(number),
        };
        ScreenSize {
            columns: or(size.ws_col, USUAL.columns),
            rows: or(size.ws_row, USUAL.rows),
        }
    }

    /// Makes the next page draw all lines: the screen has changed.
    pub(super) fn forget(&mut self) {
        self.shown.clear();
    }

    /// Shows these lines, and writes only those that have changed.
    pub(super) fn draw(&mut self, lines: &[ScreenLine]) -> io::Result<()> {
        let lines: Vec<String> = lines.iter().map(|line| line.ansi(self.colour)).collect();
        let text = changes(&self.shown, &lines);
        self.shown = lines;
        write(&text)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if restore().is_err() {
            // The terminal has been closed, so there is nothing to restore.
        }
    }
}

/// Returns the bytes that turn a screen with lines `old` into one with `lines`. They are empty if nothing has changed.
fn changes(old: &[String], lines: &[String]) -> String {
    let mut text = String::new();
    if old.len() != lines.len() {
        text.push_str("\u{1b}[2J");
    }
    for (row, line) in lines.iter().enumerate() {
        if old.len() == lines.len() && old.get(row) == Some(line) {
            continue;
        }
        // Erases the row before it writes: after a full line, the cursor would still be on the last character.
        let row = row + 1;
        put!(text, "\u{1b}[{row};1H\u{1b}[2K{line}");
    }
    text
}

/// Restores the terminal. Does nothing if it has been restored.
fn restore() -> io::Result<()> {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(before) = before else {
        return Ok(());
    };
    // The shell must not get keys that the page has not read, so they are flushed. Modes are restored first: a program
    // that sees the end of the alternate screen finds them as before.
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
