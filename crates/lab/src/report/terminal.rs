//! The summary that a terminal shows at the end of a run: tables in columns, and the verdict below them, next to the
//! prompt.

use super::words::{FigureText, Tone, figure_text, legend, published_text, verdict};
use crate::findings::{Findings, Table, TableCell};
use crate::put;
use crate::writing::{aligned, wrapped};

/// Formats tables and verdict for a terminal of `width` columns.
pub fn text(findings: &Findings<'_>, width: usize) -> String {
    let mut text = String::new();
    let asked = findings.run.asked.reps;
    for table in &findings.tables {
        let rows = columns(table, asked);
        put!(text, "\n{}\n\n{}", table.title, aligned(&rows, 1, width));
    }
    text.push('\n');
    for line in wrapped(&legend(findings, "In parentheses"), width) {
        put!(text, "{line}\n");
    }
    for paragraph in [&findings.scenario.title, &findings.headline()] {
        text.push('\n');
        for line in wrapped(paragraph, width) {
            put!(text, "{line}\n");
        }
    }
    text.push('\n');
    for (tone, line) in verdict(findings) {
        let mark = match tone {
            Tone::Plain => ' ',
            Tone::Good => '+',
            Tone::Bad => '!',
        };
        let lines = wrapped(&line, width.saturating_sub(2));
        for (at, line) in lines.iter().enumerate() {
            let mark = if at == 0 { mark } else { ' ' };
            put!(text, "{mark} {line}\n");
        }
    }
    text
}

/// Formats a table in which figures and intervals are aligned within their columns.
fn columns(table: &Table, asked: u32) -> Vec<Vec<String>> {
    let head = std::iter::once(table.row.clone()).chain(table.columns.clone());
    let mut rows = vec![head.collect::<Vec<_>>()];
    let shown: Vec<Vec<FigureText>> = table
        .rows
        .iter()
        .map(|(_, cells)| cells.iter().map(|cell| figure_text(cell, asked)).collect())
        .collect();
    let widest = |at: usize, part: fn(&FigureText) -> String| {
        let parts = shown.iter().filter_map(|row| Some(part(row.get(at)?)));
        parts.map(|part| part.chars().count()).max().unwrap_or(0)
    };
    for ((label, cells), shown) in table.rows.iter().zip(&shown) {
        let one = |(at, (cell, ours)): (usize, (&TableCell, &FigureText))| {
            let middle = widest(at, |ours| ours.middle.clone());
            let behind = widest(at, FigureText::suffix);
            let published = published_text(cell).map(|published| format!("({published})"));
            let text = format!(
                "{:>middle$}{:<behind$} {}",
                ours.middle,
                ours.suffix(),
                published.unwrap_or_default()
            );
            text.trim_end().to_owned()
        };
        let cells = cells.iter().zip(shown).enumerate().map(one);
        rows.push(std::iter::once(label.clone()).chain(cells).collect());
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scenario;
    use crate::record::tests::{TEXT, run};

    #[test]
    fn a_partial_run_states_its_number_of_runs_and_gives_no_verdict() {
        let mut run = run(0.5);
        run.cells.truncate(10);
        run.ended_early = Some("interrupted".to_owned());
        run.warnings = vec!["the machine was busy".to_owned()];
        let scenario = Scenario::parse(TEXT).expect("a scenario");
        let text = text(&Findings::new(&run, &scenario), 1000);
        for part in [
            "0%     501, 3 runs: 500 to 501 ",
            "Median of the interleaved runs that count, 2 to 3 of 7; with fewer than 6 runs there is no interval",
            "! 2 of 2 assertions cannot be judged: each has 2 to 3 of the 6 valid runs that are needed",
            "! partial: 10 of 28 measurements, interrupted; of each case and arm 2 to 3 of 7 runs count",
            "! the machine was busy",
            "  second against first, receiver: too few runs for a verdict in 2 of 2 cases. Its cost",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        for part in ["[", "x0.5", "hold", "95 %"] {
            assert!(!text.contains(part), "{part}\n{text}");
        }
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_and_none_is_markdown() {
        let scenario = Scenario::parse(TEXT).expect("a scenario");
        let run = run(2.0);
        let text = text(&Findings::new(&run, &scenario), 60);
        for line in text.lines() {
            assert!(line.chars().count() <= 60, "{line}\n{text}");
            assert!(!line.contains('|') && line == line.trim_end(), "{line}");
        }
        for part in [
            "\n0%     502 [500, 503]                   2.00 [2.00, 2.00]\n1%    50.2 [50.0, 50.3] (60.3, x0.833)  2.00",
            "programs (s/GB)\n0%    1004 [1001, 1007]  1.00 [1.00, 1.00]\n",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }
}
