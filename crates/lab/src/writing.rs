//! Formatting of texts and numbers.

/// Appends to a `String`: `put!(text, "{} of {}", 1, 2)`.
#[macro_export]
macro_rules! put {
    ($text:expr, $($part:tt)*) => {
        std::fmt::Write::write_fmt(&mut $text, format_args!($($part)*))
            .expect("invariant: writing to a String never fails")
    };
}

/// Values from which on a number has zero decimals, one, two and so on.
const DECIMALS: [f64; 6] = [99.95, 9.995, 0.9995, 0.099_95, 0.009_995, 0.000_999_5];

/// Formats a number with three significant digits. All digits before the decimal point are kept, and at most six after
/// it.
pub(crate) fn shown(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let needed = DECIMALS.iter().position(|from| value.abs() >= *from);
    format!("{value:.*}", needed.unwrap_or(DECIMALS.len()))
}

/// Formats a ratio. A ratio below 10 has three decimals, because the third one matters near 1.
pub(crate) fn ratio(value: f64) -> String {
    if value < 9.9995 {
        format!("{value:.3}")
    } else {
        shown(value)
    }
}

/// Duration from which on a larger unit is easier to read: [`shown`] would print 1000 of the smaller one.
const LARGER_UNIT: f64 = 999.5;

/// Returns the unit in which a figure is easiest to read, and the factor to convert the figure to it. A duration of 1000
/// microseconds or more is in milliseconds, one of 1000 milliseconds or more in seconds. Other figures keep their unit.
pub(crate) fn readable(value: f64, unit: &str) -> (&str, f64) {
    let units = ["us", "ms", "s"];
    let Some(own) = units.iter().position(|known| *known == unit) else {
        return (unit, 1.0);
    };
    let (mut larger, mut factor) = (own, 1.0);
    while larger + 1 < units.len() && value.abs() * factor >= LARGER_UNIT {
        larger += 1;
        factor /= 1000.0;
    }
    (units[larger], factor)
}

/// Returns whether figures with this unit may be shown with a larger one, see [`readable`].
pub(crate) fn has_larger_unit(unit: &str) -> bool {
    matches!(unit, "us" | "ms")
}

/// Formats a figure with the unit in which it is easiest to read, such as `8.39 ms`.
pub(crate) fn quantity(value: f64, unit: &str) -> String {
    let (unit, factor) = readable(value, unit);
    let figure = shown(value * factor);
    if unit.is_empty() {
        figure
    } else {
        format!("{figure} {unit}")
    }
}

/// Writes durations in microseconds within a text as [`quantity`] does, such as `late by more than 12.5 ms`.
pub(crate) fn with_readable_times(text: &str) -> String {
    let words: Vec<&str> = text.split(' ').collect();
    let mut all: Vec<String> = Vec::new();
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let unit = words.get(at + 1).and_then(|next| next.strip_prefix("us"));
        let rest = unit.filter(|rest| !rest.starts_with(char::is_alphanumeric));
        if let (Ok(value), Some(rest)) = (word.parse(), rest) {
            all.push(quantity(value, "us") + rest);
            at += 2;
        } else {
            all.push((*word).to_owned());
            at += 1;
        }
    }
    all.join(" ")
}

pub(crate) fn tenth(value: f64) -> String {
    format!("{value:.1}")
}

pub(crate) fn percent(share: f64) -> String {
    format!("{} %", shown(100.0 * share))
}

/// Formats rows, the first of which is the heading, in columns. If the columns are wider than `width`, they are split
/// into several parts, each of which repeats the first `fixed` columns. Headings take as many lines as they need, and
/// no row ends in blanks.
pub(crate) fn aligned(rows: &[Vec<String>], fixed: usize, width: usize) -> String {
    let columns: Vec<Column<'_>> = (0..rows.first().map_or(0, Vec::len))
        .map(|at| Column::new(rows, at))
        .collect();
    let (fixed, rest) = columns.split_at(fixed.min(columns.len()));
    let taken: usize = fixed.iter().map(|column| column.width + GAP).sum();
    let mut parts: Vec<Vec<&Column<'_>>> = Vec::new();
    let mut room = 0;
    for column in rest {
        if parts.is_empty() || column.width + GAP > room {
            parts.push(fixed.iter().collect());
            room = (width + GAP).saturating_sub(taken);
        }
        room = room.saturating_sub(column.width + GAP);
        parts
            .last_mut()
            .expect("invariant: the loop has pushed a part")
            .push(column);
    }
    let parts: Vec<String> = parts
        .iter()
        .map(|part| Column::side_by_side(part))
        .collect();
    parts.join("\n")
}

/// Number of blanks between two columns.
const GAP: usize = 2;

/// A heading up to this length stays on one line.
const SHORT: usize = 12;

struct Column<'a> {
    heading: Vec<String>,
    cells: Vec<&'a str>,
    width: usize,
}

impl<'a> Column<'a> {
    fn new(rows: &'a [Vec<String>], at: usize) -> Self {
        let cell = |row: &'a Vec<String>| row.get(at).map_or("", String::as_str);
        let letters = |text: &str| text.chars().count();
        let cells: Vec<&str> = rows.iter().skip(1).map(cell).collect();
        let heading = rows.first().map_or("", cell);
        let widest = cells.iter().map(|cell| letters(cell)).max().unwrap_or(0);
        let word = heading.split(' ').map(letters).max().unwrap_or(0);
        let width = widest.max(word).max(letters(heading).min(SHORT));
        Self {
            heading: wrapped(heading, width),
            width,
            cells,
        }
    }

    fn side_by_side(columns: &[&Self]) -> String {
        let head = columns.iter().map(|column| column.heading.len()).max();
        let rows = columns.first().map_or(0, |column| column.cells.len());
        let head = head.unwrap_or(0);
        // Short headings are aligned with the last line of the longest heading.
        let headings = (0..head).map(|line| {
            let of = |column: &&Self| {
                let above = head - column.heading.len();
                let line = line.checked_sub(above);
                line.map_or(String::new(), |line| column.heading[line].clone())
            };
            columns.iter().map(of).collect::<Vec<String>>()
        });
        let rows = (0..rows).map(|row| {
            let of = |column: &&Self| column.cells[row].to_owned();
            columns.iter().map(of).collect::<Vec<String>>()
        });
        let mut text = String::new();
        for line in headings.chain(rows) {
            let mut all = String::new();
            for (cell, column) in line.iter().zip(columns) {
                put!(all, "{cell:<width$}", width = column.width + GAP);
            }
            text += all.trim_end();
            text.push('\n');
        }
        text
    }
}

/// Breaks a text into lines of at most `width` letters. A longer word gets its own line.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("invariant: lines is never empty");
        if last.is_empty() {
            last.push_str(word);
        } else if last.chars().count() + 1 + word.chars().count() <= width {
            last.extend([" ", word]);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_wrap_if_the_terminal_is_narrow() {
        let rows = [
            ["packet loss rate", "a", "longer"],
            ["0%", "1.00 [0.9, 1.1]", "2"],
        ];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(
            aligned(&rows, 1, 80),
            "packet loss\nrate          a                longer\n0%            1.00 [0.9, 1.1]  2\n"
        );
        assert_eq!(
            aligned(&rows, 1, 30),
            "packet loss\nrate          a\n0%            1.00 [0.9, 1.1]\n\npacket loss\nrate          longer\n0%            2\n"
        );
    }

    #[test]
    fn durations_have_the_unit_that_is_easiest_to_read() {
        for (value, unit, text) in [
            (999.4, "us", "999 us"),
            (999.5, "us", "1.00 ms"),
            (1000.0, "us", "1.00 ms"),
            (8389.0, "us", "8.39 ms"),
            (12_500.0, "us", "12.5 ms"),
            (999_499.0, "us", "999 ms"),
            (999_600.0, "us", "1.00 s"),
            (1.5e9, "us", "1500 s"),
            (999.4, "ms", "999 ms"),
            (1000.0, "ms", "1.00 s"),
            (0.5, "s", "0.500 s"),
            (-2000.0, "us", "-2.00 ms"),
            (f64::NAN, "us", "NaN us"),
            (2000.0, "Mbit/s", "2000 Mbit/s"),
            (2000.0, "", "2000"),
        ] {
            assert_eq!(quantity(value, unit), text);
        }
    }

    #[test]
    fn durations_within_texts_have_that_unit_too() {
        for (text, readable) in [
            (
                "late by more than 12500 us (up); 1.4 % was stolen",
                "late by more than 12.5 ms (up); 1.4 % was stolen",
            ),
            ("2000 us, 500 us.", "2.00 ms, 500 us."),
            ("7 users, us, 5000 used", "7 users, us, 5000 used"),
        ] {
            assert_eq!(with_readable_times(text), readable);
        }
    }

    #[test]
    fn figures_have_three_significant_digits() {
        for (value, text) in [
            (12_797.4, "12797"),
            (562.3, "562"),
            (99.96, "100"),
            (80.2, "80.2"),
            (9.999, "10.0"),
            (2.7, "2.70"),
            (0.9996, "1.00"),
            (0.9994, "0.999"),
            (0.11, "0.110"),
            (0.05, "0.0500"),
            (0.0017, "0.00170"),
            (0.0, "0"),
        ] {
            assert_eq!(shown(value), text);
        }
    }
}
