//! Lines of the screen: pieces of text, each with its look.

use crate::status::cells::{cut, width};

/// The look of a piece of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextStyle {
    Plain,
    Strong,
    Faint,
    /// The heading of the selected table.
    Chosen,
    Graph,
    Alarm,
}

impl TextStyle {
    /// Returns the parameters of the ANSI SGR sequence; empty if the look needs none.
    fn parameters(self, colour: bool) -> &'static str {
        match (self, colour) {
            (Self::Plain, _) | (Self::Graph, false) => "",
            (Self::Strong, _) => "1",
            (Self::Faint, _) => "2",
            (Self::Chosen, _) => "7",
            (Self::Graph, true) => "36",
            (Self::Alarm, true) => "1;31",
            (Self::Alarm, false) => "1;7",
        }
    }
}

/// One line of the screen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ScreenLine(Vec<(TextStyle, String)>);

impl ScreenLine {
    pub(super) fn new(look: TextStyle, text: impl Into<String>) -> Self {
        Self(vec![(look, text.into())])
    }

    pub(super) fn push(&mut self, look: TextStyle, text: impl Into<String>) {
        self.0.push((look, text.into()));
    }

    /// Returns the line with one look for all its pieces.
    #[must_use]
    pub(super) fn all(self, look: TextStyle) -> Self {
        let pieces = self.0.into_iter();
        Self(pieces.map(|(_, text)| (look, text)).collect())
    }

    /// Cuts the line to at most `columns` columns.
    #[must_use]
    pub(super) fn cut(self, columns: usize) -> Self {
        let mut left = columns;
        let pieces = self.0.into_iter().map(|(look, text)| {
            let text = cut(&text, left);
            left -= width(&text).min(left);
            (look, text)
        });
        Self(pieces.collect())
    }

    /// Returns the text without looks and without trailing blanks.
    pub(super) fn text(&self) -> String {
        let text: String = self.0.iter().map(|(_, text)| text.as_str()).collect();
        text.trim_end().to_owned()
    }

    /// Returns the text with ANSI sequences, for a terminal.
    pub(super) fn ansi(&self, colour: bool) -> String {
        let pieces = self.0.iter().map(|(look, text)| {
            let parameters = look.parameters(colour);
            if parameters.is_empty() {
                text.clone()
            } else {
                format!("\u{1b}[{parameters}m{text}\u{1b}[0m")
            }
        });
        pieces.collect()
    }
}
