//! Text in terminal columns, of which a character takes none, one or two.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Returns the number of columns that a text takes.
pub(super) fn width(text: &str) -> usize {
    text.width()
}

/// Cuts a text to at most `limit` columns. The last column of a cut text is an ellipsis.
pub(super) fn cut(text: &str, limit: usize) -> String {
    // The number of characters is limited, too, because combining marks take no column.
    if text.chars().count() <= limit.saturating_mul(2) && width(text) <= limit {
        return text.to_owned();
    }
    let mut cut = String::new();
    let mut left = limit.saturating_sub(1);
    for c in text.chars().take(limit.saturating_mul(2)) {
        let Some(rest) = left.checked_sub(c.width().unwrap_or(0)) else {
            break;
        };
        cut.push(c);
        left = rest;
    }
    if limit > 0 {
        cut.push('…');
    }
    cut
}

/// Returns the text in exactly `columns` columns, cut or padded at the end.
pub(super) fn left(text: &str, columns: usize) -> String {
    let mut text = cut(text, columns);
    let blanks = columns.saturating_sub(width(&text));
    text.extend(std::iter::repeat_n(' ', blanks));
    text
}

/// Returns the text in exactly `columns` columns, cut or padded at the start.
pub(super) fn right(text: &str, columns: usize) -> String {
    let text = cut(text, columns);
    let blanks = columns.saturating_sub(width(&text));
    " ".repeat(blanks) + &text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_fill_their_columns_for_every_character_width() {
        for text in [
            "",
            "plain",
            "a long text that does not fit",
            "日本語の名前です",
            "e\u{301}tude",
            "👩‍👩‍👧",
        ] {
            for columns in 0..12 {
                assert_eq!(width(&left(text, columns)), columns, "{text:?}");
                assert_eq!(width(&right(text, columns)), columns, "{text:?}");
            }
        }
        assert_eq!(cut("日本語", 6), "日本語");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(right("1", 3), "  1");
        let marks = format!("a{}", "\u{301}".repeat(10_000));
        assert!(cut(&marks, 10).chars().count() <= 21);
    }
}
